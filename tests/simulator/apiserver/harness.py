"""A served cluster in a thread of its own, and a plain HTTP client for it."""

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

import urllib3
import yaml

from informers.clock import Clock
from informers.testing import ManualClock
from simulator.apiserver.serving import Running, Serving, serving

START = datetime(2026, 12, 1, 12, tzinfo=UTC)
DEADLINE_S = 20.0
"""How long a test waits for an answer."""
_COMES_WITHIN_S = 60.0
"""How long for anything else that must come, on a busy machine."""
_EVERY_S = 0.02

T = TypeVar("T")


class Answer(NamedTuple):
    status: int
    body: Any
    """Decoded JSON, or the text of anything else."""
    headers: Mapping[str, str]


class Connected:
    """A client with one token. Paths are as in the API; queries go by keyword, lists of a name repeat it."""

    def __init__(self, kubeconfig: Path, token: str | None = None) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self.url = cluster["server"]
        self.token = token or user.get("token") or Path(user["tokenFile"]).read_text()
        self._pool = urllib3.PoolManager(
            ssl_context=ssl.create_default_context(cadata=_authority(cluster)),
            retries=False,
            timeout=DEADLINE_S,
        )

    def close(self) -> None:
        self._pool.clear()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **query: Any,
    ) -> Answer:
        response = self._pool.request(
            method,
            self._address(path, query),
            body=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
            headers=self._headers(accept) | {"Content-Type": content_type},
        )
        text = response.data.decode(errors="replace")
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        return Answer(response.status, json.loads(text) if is_json and text else text, response.headers)

    def get(self, path: str, **query: Any) -> Any:
        """The body of an answer that must be 200."""
        answer = self.ask("GET", path, **query)
        assert answer.status == 200, answer
        return answer.body

    @contextmanager
    def watch(self, path: str, accept: str = "application/json", **query: Any) -> Iterator[Iterator[Any]]:
        """The events of a watch, as they come; ends with the stream."""
        response = self._pool.request(
            "GET",
            self._address(path, {"watch": "true", **query}),
            headers=self._headers(accept),
            preload_content=False,
        )
        assert response.status == 200, response.data
        try:
            yield _events(response)
        finally:
            response.close()
            response.release_conn()

    def control(self, what: str, **body: Any) -> Any:
        """The body of an answer of the control endpoint that must be 200."""
        answer = self.ask("POST", f"/simulator/{what}", body)
        assert answer.status == 200, answer
        return answer.body

    def _address(self, path: str, query: Mapping[str, Any]) -> str:
        return f"{self.url}{path}?{urlencode(query, doseq=True)}" if query else self.url + path

    def _headers(self, accept: str) -> dict[str, str]:
        headers = {"Accept": accept}
        return headers | ({"Authorization": f"Bearer {self.token}"} if self.token else {})


class Served:
    """A cluster that is being served. With a `ManualClock` its time stands still between calls of `pass_time`."""

    def __init__(self, what: Serving, clock: Clock) -> None:
        self.what = what
        self.clock = clock
        self.running: Running
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="served cluster")

    def __enter__(self) -> "Served":
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def do(self, action: Callable[[], T]) -> T:
        """Do something on the server's thread."""

        async def act() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(DEADLINE_S)

    def pass_time(self, seconds: float) -> None:
        """Let the cluster live for so long, of its own time."""
        assert isinstance(self.clock, ManualClock)
        clock = self.clock
        self.do(lambda: clock.advance(timedelta(seconds=seconds / self.what.speed)))
        self.do(self.running.server.turn)

    def client(self, kubeconfig: Path | None = None, token: str | None = None) -> Connected:
        return Connected(kubeconfig or self.what.kubeconfig, token)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001  it is raised in the test's thread
            self._error = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self.what, self.clock) as self.running:
            self._ready.set()
            await self._stop.wait()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread or process does."""
    deadline_s = time.monotonic() + _COMES_WITHIN_S
    while not condition():
        assert time.monotonic() < deadline_s, "waited too long"
        time.sleep(_EVERY_S)


def _authority(cluster: Mapping[str, str]) -> str:
    if "certificate-authority" in cluster:
        return Path(cluster["certificate-authority"]).read_text()
    return base64.b64decode(cluster["certificate-authority-data"]).decode()


def _events(response: urllib3.BaseHTTPResponse) -> Iterator[Any]:
    rest = b""
    for chunk in response.stream(None):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)
