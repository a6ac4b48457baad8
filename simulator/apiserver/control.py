"""The endpoint that does things to the server and the cluster on purpose, and tells the truth about both.

Under ``/simulator`` on the API's port, for this machine and the admin's token only. Bodies are JSON; what is wrong
with one is answered with 400 and a line that says where.
"""

import asyncio
import contextlib
import ipaddress
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from simulator.apiserver.accounts import ADMIN
from simulator.apiserver.credentials import Credentials
from simulator.apiserver.faults import Fault
from simulator.apiserver.refusals import Refusal, bad_request, too_old
from simulator.apiserver.server import Server
from simulator.apiserver.truth import truth
from simulator.exporter import Exporter, ExporterTrouble
from simulator.kubevirt.objectstore import ApiError
from simulator.specs import NodeSpec, VmSpec

Asked = TypeVar("Asked", bound=msgspec.Struct)


class OpenWatches(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Do this to watches that are open now (globs; empty: all)."""

    do: Literal["break", "end", "garble", "stall", "resume", "expire"]
    resources: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class Compact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Forget all versions but the newest. ``expire_watches``: those that are open get a 410 too."""

    expire_watches: bool = False


class Restart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Be away for a while; come back with fewer resourceVersions, or another certificate authority."""

    seconds: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    roll_back: Annotated[int, msgspec.Meta(ge=0)] = 0
    new_authority: bool = False


class Tokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``expire``: an account's tokens end. ``rotate``: it gets a new one, in its file too."""

    account: str
    do: Literal["expire", "rotate"]
    keep_old: bool = False


class Clocks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the cluster's clocks are ahead of real time."""

    offset_s: float


class ClusterAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A method of the control plane by its name, and its arguments by theirs."""

    do: str
    arguments: dict[str, Any] = {}


ACTIONS = (
    *("stop_vm", "start_vm", "delete_vm", "create_vm", "set_backup", "hotplug_volume"),
    *("create_migration", "delete_migration", "evacuate_cancel", "delete_pod", "set_webhook_down"),
    *("add_node", "remove_node", "lose_node", "set_node_ready", "cordon", "uncordon", "drain"),
)
"""What ``cluster`` takes: see `ControlPlane`. ``create_vm`` and ``add_node`` take the fields of a spec as ``spec``."""
_SPECS: dict[str, type[msgspec.Struct]] = {"create_vm": VmSpec, "add_node": NodeSpec}


class Control:
    """Handlers of the endpoint."""

    def __init__(self, server: Server, credentials: Credentials, exporter: Exporter) -> None:
        self._server = server
        self._credentials = credentials
        self._exporter = exporter
        self._restarting: asyncio.Task[None] | None = None

    def application(self) -> web.Application:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            try:
                self._admit(request)
                return await handler(request)
            except Refusal as refusal:
                return web.Response(
                    status=refusal.status, body=refusal.encoded(), content_type="application/json"
                )

        application = web.Application(middlewares=[guard])
        router = application.router
        router.add_get("/truth", self._truth)
        router.add_get("/faults", self._list_faults)
        router.add_post("/faults", self._add_fault)
        router.add_delete("/faults", self._clear_faults)
        router.add_delete("/faults/{number}", self._remove_fault)
        router.add_get("/watches", self._list_watches)
        router.add_post("/watches", self._watches)
        router.add_post("/compact", self._compact)
        router.add_post("/restart", self._restart)
        router.add_post("/tokens", self._tokens)
        router.add_post("/clock", self._clock)
        router.add_post("/exporter", self._change_exporter)
        router.add_post("/cluster", self._cluster)
        return application

    async def stop(self) -> None:
        if self._restarting is not None:
            self._restarting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._restarting

    def _admit(self, http: web.Request) -> None:
        """Raises `Refusal`."""
        user = self._server.accounts.authenticate(http.headers.get("Authorization", ""))
        if user.name != ADMIN or not ipaddress.ip_address(http.remote or "0.0.0.0").is_loopback:  # noqa: S104  compared
            raise Refusal(403, "only the admin may do this, from this machine")

    async def _truth(self, _: web.Request) -> web.Response:
        live = self._server.live
        return _json(live.do(lambda: truth(live.simulation, live.now(), live.speed)))

    async def _list_faults(self, _: web.Request) -> web.Response:
        return _json({str(number): fault for number, fault in self._server.faults.listed().items()})

    async def _add_fault(self, http: web.Request) -> web.Response:
        fault: Fault = await _asked(http, Fault)  # type: ignore[arg-type]
        return _json({"number": self._server.faults.add(fault)})

    async def _clear_faults(self, _: web.Request) -> web.Response:
        self._server.faults.clear()
        return _json({})

    async def _remove_fault(self, http: web.Request) -> web.Response:
        number = http.match_info["number"]
        if not number.isdigit() or not self._server.faults.remove(int(number)):
            raise Refusal(404, f"no fault {number}")
        return _json({})

    async def _list_watches(self, _: web.Request) -> web.Response:
        """All that are open, in the order in which they were opened."""
        return _json(
            [
                {
                    "resource": watch.form.resource.plural,
                    "namespace": watch.namespace,
                    "user": watch.user,
                    "stalled": watch.stalled,
                }
                for watch in self._server.api.watches
            ]
        )

    async def _watches(self, http: web.Request) -> web.Response:
        asked = await _asked(http, OpenWatches)
        watches = self._server.api.watches
        chosen = [
            watch
            for watch in watches
            if _any_match(asked.resources, watch.form.resource.plural) and _any_match(asked.users, watch.user)
        ]
        for watch in chosen:
            match asked.do:
                case "break" | "end":
                    watch.end(broken=asked.do == "break")
                case "garble":
                    watch.garble()
                case "stall" | "resume":
                    watch.stall(is_on=asked.do == "stall")
                case "expire":
                    version = self._server.api.history.version
                    watches.refuse(watch, too_old(watch.options.version or 0, version))
        return _json({"watches": len(chosen)})

    async def _compact(self, http: web.Request) -> web.Response:
        asked = await _asked(http, Compact)
        api = self._server.api
        api.history.compact()
        for watch in api.watches if asked.expire_watches else ():
            api.watches.refuse(watch, too_old(watch.options.version or 0, api.history.version))
        return _json({"resource_version": api.history.version})

    async def _restart(self, http: web.Request) -> web.StreamResponse:
        asked = await _asked(http, Restart)
        if self._restarting is not None and not self._restarting.done():
            raise Refusal(409, "it is being restarted", reason="Conflict")
        response = _json({})
        await response.prepare(http)
        await response.write_eof()  # the caller has his answer before connections break
        self._restarting = asyncio.create_task(self._be_away(asked))
        return response

    async def _be_away(self, asked: Restart) -> None:
        server = self._server
        await server.hang_up()
        if asked.roll_back:
            server.live.do(lambda: server.live.simulation.store.roll_back(asked.roll_back))
            server.api.history.restart()
        await asyncio.sleep(asked.seconds)
        if asked.new_authority:
            self._credentials.renew_authority()
        await server.listen(self._credentials.certificates)

    async def _tokens(self, http: web.Request) -> web.Response:
        asked = await _asked(http, Tokens)
        accounts = self._server.accounts
        if asked.account not in accounts.names:
            raise bad_request(f"account: no {asked.account!r}; allowed: {', '.join(accounts.names)}")
        if asked.do == "expire":
            accounts.expire(asked.account)
        else:
            accounts.rotate(asked.account, keep_old=asked.keep_old)
            self._credentials.write(asked.account)
        return _json({})

    async def _clock(self, http: web.Request) -> web.Response:
        asked = await _asked(http, Clocks)
        self._server.live.set_clock_offset(timedelta(seconds=asked.offset_s))
        return _json({})

    async def _change_exporter(self, http: web.Request) -> web.Response:
        self._exporter.trouble = await _asked(http, ExporterTrouble)
        return _json({})

    async def _cluster(self, http: web.Request) -> web.Response:
        asked = await _asked(http, ClusterAction)
        if asked.do not in ACTIONS:
            raise bad_request(f"do: {asked.do!r}; allowed: {', '.join(ACTIONS)}")
        arguments = dict(asked.arguments)
        method = getattr(self._server.live.simulation.control_plane, asked.do)
        try:
            if asked.do in _SPECS:
                arguments["spec"] = msgspec.convert(arguments.get("spec"), _SPECS[asked.do])
            result = self._server.live.do(lambda: method(**arguments))
        except ApiError as error:
            raise Refusal(error.status, error.message, reason=error.reason) from None
        except (TypeError, ValueError) as error:  # msgspec's errors are ValueErrors
            raise bad_request(f"arguments of {asked.do}: {error}") from None
        self._server.turn()
        return _json({"result": result})


async def _asked(http: web.Request, kind: type[Asked]) -> Asked:
    """The body as what is expected. Raises `Refusal` (400)."""
    body = await http.read()
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.DecodeError as error:
        raise bad_request(f"{http.path}: {error}") from None


def _json(body: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def _any_match(globs: tuple[str, ...], text: str) -> bool:
    return not globs or any(fnmatchcase(text, glob) for glob in globs)
