"""A cluster, its API and its exporter put together and run on one event loop."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from informers.clock import Clock
from simulator.apiserver.accounts import Accounts
from simulator.apiserver.api import Api
from simulator.apiserver.audit import AuditLog
from simulator.apiserver.control import Control
from simulator.apiserver.credentials import Credentials
from simulator.apiserver.live import LiveCluster
from simulator.apiserver.rbac import AccessRules
from simulator.apiserver.server import Server
from simulator.exporter import CONTENT_TYPE, Exporter
from simulator.scenario.schema import Scenario

HOST = "127.0.0.1"
"""The only address that is ever listened on."""
_PROXY_PAGE = "<html><body><h1>502 Bad Gateway</h1></body></html>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is served, and where."""

    scenario: Scenario
    kubeconfig: Path
    seed: int = 1
    speed: float = 1.0
    port: int = 0
    """0: any that is free."""
    metrics_port: int = 0
    namespace: str = "vm-rebalancer"
    """The programs' own: it exists from the start, and is the kubeconfigs' default."""
    accounts: Mapping[str, Path] = field(default_factory=dict)
    """Service account -> its kubeconfig."""
    manifests: Sequence[Mapping[str, Any]] = ()
    """RBAC objects that hold for service accounts; none: they may do anything."""
    audit: Path | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster that is being served."""

    url: str
    metrics_url: str
    server: Server

    @property
    def live(self) -> LiveCluster:
        return self.server.live


@asynccontextmanager
async def serving(asked: Serving, clock: Clock) -> AsyncIterator[Running]:
    """Serve until the block is left. Raises ``ScenarioErrors``, and ``OSError`` for ports and files."""
    live = LiveCluster(asked.scenario, asked.seed, asked.speed, clock, asked.namespace)
    simulation = live.simulation
    accounts = Accounts(asked.namespace)
    credentials = Credentials(accounts, HOST, asked.namespace, asked.kubeconfig, asked.accounts, clock.now)
    server = Server(
        live, Api(live, asked.seed), accounts, AccessRules(asked.manifests), AuditLog(asked.audit)
    )
    exporter = Exporter(simulation.world, simulation.store, simulation.agenda, asked.speed)
    control = Control(server, credentials, exporter)
    page = web.AppRunner(_exporter_application(live, exporter), access_log=None, shutdown_timeout=0.1)
    try:
        await server.start(HOST, asked.port, credentials.certificates, control.application())
        credentials.write_all(server.url)
        await page.setup()
        await web.TCPSite(page, HOST, asked.metrics_port).start()
        metrics_port = page.addresses[0][1]
        yield Running(server.url, f"http://{HOST}:{metrics_port}/metrics", server)
    finally:
        await control.stop()
        await server.stop()
        await page.cleanup()


def _exporter_application(live: LiveCluster, exporter: Exporter) -> web.Application:
    async def metrics(http: web.Request) -> web.StreamResponse:
        trouble = exporter.trouble
        if trouble.delay_s:
            await asyncio.sleep(trouble.delay_s)
        if trouble.answer == "html":
            return web.Response(status=502, text=_PROXY_PAGE, content_type="text/html")
        if trouble.answer == "down" and http.transport is not None:
            http.transport.abort()
        return web.Response(body=live.do(exporter.page), headers={"Content-Type": CONTENT_TYPE})

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    return application
