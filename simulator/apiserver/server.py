"""The API over HTTPS, with aiohttp: one event loop, which owns the cluster; requests never run beside each other.

Order of things for a request: who asks (401), what goes wrong on purpose, whether he may (403), the API, the audit log.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterator
from typing import Final

from aiohttp import web

from simulator.apiserver.accounts import ANONYMOUS, Accounts, User
from simulator.apiserver.api import JSON, TEXT, Api, Reply, Request, asks_dry_run
from simulator.apiserver.audit import Answer, AuditLog
from simulator.apiserver.certificates import Certificates
from simulator.apiserver.faults import BadWatch, Cut, Error, Fault, Faults, Garbage, Latency
from simulator.apiserver.live import LiveCluster
from simulator.apiserver.rbac import AccessRules
from simulator.apiserver.refusals import Refusal, too_old
from simulator.apiserver.routing import Call, parse_call
from simulator.apiserver.subresources import Throttled
from simulator.apiserver.watches import BOOKMARK_S, Watch

MAX_BODY_BYTES: Final = 3 << 20
"""``--max-request-bytes`` of the API server."""
_LAST_BOOKMARK_S = 2.0
"""How long before a watch ends of old age its client gets a last bookmark."""
_LONGEST_NAP_S = 0.5
_PAGE = "<html><head><title>{0}</title></head><body><center><h1>{0}</h1></center><hr></body></html>\n"


class Server:
    """Serves one cluster on one port of this machine. All methods belong to the event loop's thread."""

    def __init__(
        self,
        live: LiveCluster,
        api: Api,
        accounts: Accounts,
        access: AccessRules,
        audit: AuditLog,
    ) -> None:
        self.live = live
        self.api = api
        self.accounts = accounts
        self.faults = Faults(live.monotonic)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Never done, but with the error that stopped the world."""
        self.times_started = 0
        """How often it has begun to take connections."""
        self._access = access
        self._audit = audit
        self._alarm: asyncio.TimerHandle | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._address = ("", 0)

    @property
    def url(self) -> str:
        """While it serves."""
        return "https://{}:{}".format(*self._address)

    async def start(self, host: str, port: int, certificates: Certificates, extra: web.Application) -> None:
        """Begin to serve; port 0: any. ``extra`` gets what is under ``/simulator``. Raises ``OSError``."""
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.add_subapp("/simulator", extra)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=0.2
        )
        await self._runner.setup()
        self._address = (host, port)
        await self.listen(certificates)
        self.turn()

    async def listen(self, certificates: Certificates) -> None:
        """Take connections (again), at the address it has had. Raises ``OSError``."""
        assert self._runner is not None  # noqa: S101  it was started
        site = web.TCPSite(self._runner, *self._address, ssl_context=certificates.server_context())
        await site.start()
        self._site = site
        self.times_started += 1
        host, port = self._runner.addresses[0][:2]
        self._address = (str(host), int(port))

    async def hang_up(self) -> None:
        """Take no connections any more, and break those that there are."""
        for watch in self.api.watches:
            watch.stall(is_on=False)
            watch.end(broken=True)
        site, self._site = self._site, None
        if site is not None:
            await site.stop()
        connections = self._runner.server.connections if self._runner and self._runner.server else ()
        for connection in list(connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._runner is not None:
            await self.hang_up()
            await self._runner.cleanup()
        self._audit.close()

    def turn(self) -> None:
        """Bring the cluster up to now, and come back when something is due."""
        if self._alarm is not None:
            self._alarm.cancel()
        try:
            self.live.catch_up()
        except Exception as error:  # noqa: BLE001  whatever it is, the world has stopped
            if not self.failed.done():
                self.failed.set_exception(error)
            return
        due_s = self.live.next_due_in_s()
        delay_s = _LONGEST_NAP_S if due_s is None else min(due_s, _LONGEST_NAP_S)
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self.turn)

    async def _serve(self, http: web.Request) -> web.StreamResponse:
        call = parse_call(http.method, http.path, http.query)
        user = ANONYMOUS
        try:
            user = self.accounts.authenticate(http.headers.get("Authorization", ""))
            request = await _read(http)
        except Refusal as refusal:
            refused = _refused(refusal)
            self._note(user, call, http, refused, dry_run=False)
            return _respond(refused)
        dry_run = asks_dry_run(call, request)
        faults = self.faults.hit(call, user.name, continued="continue" in http.query, dry_run=dry_run)
        work = self._answer(http, call, request, user, faults, dry_run=dry_run)
        if any(isinstance(fault, Latency) for fault in faults):
            # What was sent will be carried out, even if the client does not wait for it.
            return await asyncio.shield(asyncio.ensure_future(work))
        return await work

    async def _answer(
        self,
        http: web.Request,
        call: Call,
        request: Request,
        user: User,
        faults: list[Fault],
        *,
        dry_run: bool,
    ) -> web.StreamResponse:
        for fault in faults:
            if isinstance(fault, Latency) and not fault.after:
                await asyncio.sleep(fault.delay_s)
            elif isinstance(fault, Error):
                failed = _failed(fault)
                self._note(user, call, http, failed, dry_run=dry_run)
                return _respond(failed)
            elif isinstance(fault, Cut) and not fault.carried_out:
                return _broken(http)
        reply = self._carry_out(call, request, user)
        self.turn()
        self._note(user, call, http, reply, dry_run=dry_run)
        if isinstance(reply, Watch):
            return await self._send(http, reply, [f for f in faults if isinstance(f, BadWatch)])
        for fault in faults:
            if isinstance(fault, Latency) and fault.after:
                await asyncio.sleep(fault.delay_s)
            elif isinstance(fault, Garbage):
                reply = reply._replace(body=reply.body[: len(reply.body) // 2] + b"\x00\xff{garbage")
            elif isinstance(fault, Cut):
                return await _cut(http, reply) if fault.half else _broken(http)
        return _respond(reply)

    def _carry_out(self, call: Call, request: Request, user: User) -> Reply | Watch:
        self.turn()
        if self.failed.done():
            return _refused(Refusal(500, "Internal error occurred: the simulated world has stopped"))
        try:
            self._access.authorize(user, call)
            return self.api.handle(call, request, user.name)
        except Refusal as refusal:
            return _refused(refusal)
        except Throttled as throttled:
            return Reply(429, f"{throttled.message}\n".encode(), TEXT, throttled.retry_after_s)

    async def _send(self, http: web.Request, watch: Watch, faults: list[BadWatch]) -> web.StreamResponse:
        """Send a watch's lines as they come, until it ends, its time is over or its client has gone."""
        for fault in faults:
            if fault.do == "expire-status":
                self.api.watches.close(watch)
                asked = watch.options.version or 0
                return _respond(_refused(too_old(asked, self.api.history.version)))
            self._spoil(watch, fault)
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        try:
            await response.prepare(http)
            with contextlib.suppress(ConnectionError):
                async for lines in self._lines(watch):
                    await response.write(lines)
        finally:
            self.api.watches.close(watch)
        if watch.broken:
            return _broken(http, response)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    def _spoil(self, watch: Watch, fault: BadWatch) -> None:
        if fault.do == "stall":
            watch.stall(is_on=True)
        else:
            watch.take()
            if fault.do == "expire":
                self.api.watches.refuse(watch, too_old(watch.options.version or 0, self.api.history.version))
            else:
                watch.end()

    async def _lines(self, watch: Watch) -> AsyncIterator[bytes]:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        watch.wake = woken.set
        every_s = BOOKMARK_S / self.live.speed
        ends_s = loop.time() + watch.timeout_s
        bookmarks = _bookmark_times(loop.time(), ends_s, every_s)
        next_s = next(bookmarks)
        while True:
            woken.clear()
            if lines := watch.take():
                yield lines
                continue
            if watch.stalled:
                await woken.wait()
                continue
            if watch.ended or loop.time() >= ends_s:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(next_s, ends_s)):
                    await woken.wait()
            if loop.time() >= next_s:
                next_s = next(bookmarks)
                self.api.watches.bookmark(watch)

    def _note(
        self, user: User, call: Call, http: web.Request, reply: Reply | Watch, *, dry_run: bool
    ) -> None:
        agent = http.headers.get("User-Agent", "")
        status = 200 if isinstance(reply, Watch) else reply.status
        answer = Answer(status, b"" if isinstance(reply, Watch) or status < 400 else reply.body)
        self._audit.add(user, call, answer, dry_run=dry_run, now=self.live.now(), agent=agent)


async def _read(http: web.Request) -> Request:
    """Raises `Refusal` (413)."""
    try:
        body = await http.read() if http.can_read_body else b""
    except web.HTTPRequestEntityTooLarge:
        raise Refusal(413, f"Request entity too large: limit is {MAX_BODY_BYTES}", details={}) from None
    headers = http.headers
    return Request(http.query, headers.get("Accept", ""), headers.get("Content-Type", ""), body)


def _respond(reply: Reply) -> web.Response:
    headers = {"Content-Type": reply.content_type, "Cache-Control": "no-cache, private"}
    if reply.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(reply.retry_after_s))
    return web.Response(status=reply.status, body=reply.body, headers=headers)


def _refused(refusal: Refusal) -> Reply:
    return Reply(refusal.status, refusal.encoded(), JSON, refusal.retry_after_s)


_WORDS: Final = {
    429: "Too many requests, please try again later.",
    500: "Internal error occurred: etcdserver: request timed out",
    502: "Bad Gateway",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


def _failed(fault: Error) -> Reply:
    message = fault.message or _WORDS.get(fault.status, "")
    if fault.body == "html":
        return Reply(fault.status, _PAGE.format(message).encode(), "text/html", fault.retry_after_s)
    if fault.body == "text":
        return Reply(fault.status, f"{message}\n".encode(), TEXT, fault.retry_after_s)
    details = {} if fault.retry_after_s is None else {"retryAfterSeconds": math.ceil(fault.retry_after_s)}
    return _refused(Refusal(fault.status, message, details=details, retry_after_s=fault.retry_after_s))


def _broken(http: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Break the connection; nobody gets the response that the framework wants to see."""
    if http.transport is not None:
        http.transport.abort()
    return response or web.Response()


async def _cut(http: web.Request, reply: Reply) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers={"Content-Type": reply.content_type})
    response.content_length = len(reply.body)
    await response.prepare(http)
    await response.write(reply.body[: len(reply.body) // 2])
    return _broken(http, response)


def _bookmark_times(now_s: float, ends_s: float, every_s: float) -> Iterator[float]:
    """When a watch gets its bookmarks: regularly, and shortly before it ends."""
    time_s = now_s + every_s
    while time_s < ends_s - _LAST_BOOKMARK_S:
        yield time_s
        time_s += every_s
    yield ends_s - _LAST_BOOKMARK_S
    while True:
        yield math.inf
