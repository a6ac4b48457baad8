"""What a running descheduler says of its decisions, fetched from its health port."""

from http import HTTPStatus
from http.client import HTTPException
from urllib.parse import SplitResult, urlsplit

import msgspec
from urllib3 import PoolManager, Timeout
from urllib3.exceptions import HTTPError

from controller.plan.parts import plain
from controller.plan.sources import LookError
from controller.report import API_VERSION, Decisions, StandBy
from informers.connection import Exchange, in_words, make_patient, read_bounded, waiting
from informers.errors import ApiError

PATH = "/debug/decisions"
WITHIN_S = 10.0
CONNECT_S = 5.0
MAX_BYTES = 16 << 20


class _Kind(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str


def decisions_of(url: str) -> Decisions:
    """``url``: of the health port, with or without the path of the page. Raises LookError."""
    where, shown = _address(url)
    status, body = _fetched(where, shown)
    try:
        kind = msgspec.json.decode(body, type=_Kind)
        if kind.api_version == API_VERSION and kind.kind == "StandBy":
            raise LookError(_standing_by(shown, msgspec.json.decode(body, type=StandBy)))
        if kind.api_version == API_VERSION and kind.kind == "Decisions":
            return msgspec.json.decode(body, type=Decisions)
    except (msgspec.DecodeError, RecursionError):
        pass
    found = f"{status} {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else str(status)
    raise LookError(
        f"{shown} is no descheduler of this version of vm-rebalancer: it answers {found}"
        f"{', with something else' if status == HTTPStatus.OK else ''}"
    )


def _address(url: str) -> tuple[SplitResult, str]:
    """Where to ask, and how messages call it: without user, password and query."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise LookError("--from-controller: allowed: http://HOST:PORT or https://HOST:PORT")
    path = parts.path.rstrip("/")
    parts = parts._replace(path=path if path.endswith(PATH) else path + PATH)
    address = parts.netloc.rpartition("@")[2]
    return parts._replace(fragment=""), f"{parts.scheme}://{address}"


def _fetched(where: SplitResult, shown: str) -> tuple[int, bytes]:
    exchange = Exchange(within_s=WITHIN_S, silence_s=None, given_up=())
    try:
        with PoolManager() as manager, waiting(exchange):
            make_patient(manager)
            answer = manager.request(
                "GET",
                where.geturl(),
                headers={"Accept": "application/json", "User-Agent": "vm-rebalancer"},
                preload_content=False,
                redirect=False,
                retries=False,
                timeout=Timeout(connect=CONNECT_S, read=WITHIN_S),
            )
            return answer.status, read_bounded(answer, MAX_BYTES)
    except (ApiError, HTTPError, HTTPException, OSError) as error:
        raise LookError(f"the descheduler at {shown} cannot be asked: {plain(in_words(error))}") from None


def _standing_by(shown: str, standing: StandBy) -> str:
    if standing.holder == standing.identity:
        return f"{shown} has only just got the lease, and does not decide yet"
    holder = plain(standing.holder) or "nobody, or somebody that it does not know"
    return f"{shown} stands by and decides nothing; the lease is held by {holder}"
