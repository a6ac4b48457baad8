"""Instant queries to a real Prometheus (or Thanos Querier), over the package ``prometheus-api-client``.

That package builds the request and picks ``data.result`` out of the answer. All else is done by the
``requests.Session`` that it is given, since left alone it

* repeats a request after 429 and 5xx, and waits in between (a refresh comes again anyway);
* has no deadline but requests' own, which starts again with each byte, and no bound on the size of an answer;
* hands out neither ``warnings`` (a partial answer of Thanos) nor ``resultType`` (a scalar would pass for a vector);
* puts a query into the URL even if it is to POST it, and whole bodies into its errors.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from ssl import create_default_context, get_default_verify_paths
from threading import Event, Lock
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError

from controller.policy.model import Metrics
from controller.utilization.reading import Answer, MetricsError, Sample
from informers.connection import Exchange, in_words, make_patient, waiting
from informers.errors import ApiError, as_shown

CONNECT_S = 5.0
MAX_ANSWER_BYTES = 32 << 20
"""Unpacked. A sample of a VM takes about 300 bytes."""
MAX_SERIES = 250_000
"""The shortest ones grow to forty times their size when they are decoded."""
MAX_ERROR_BYTES = 8 << 10
LONGEST_URL_QUERY = 2000
"""Characters. A longer query is sent as a form by POST, for which an account may need another permission than GET."""

_PART_BYTES = 1 << 20
_UNREADABLE = (msgspec.DecodeError, RecursionError)
_MAX_FILE_BYTES = 64 << 10
_MAX_WARNINGS = 10
_SHOWN = 200
"""Characters of somebody else's text that a message repeats."""
_SHOWN_EXPRESSION = 80
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_NOT_TO_SET = frozenset(
    ("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "transfer-encoding")
)
_NOT_SECRET = _NOT_TO_SET | {"user-agent"}
_MARKUP = re.compile(r"(?is)<(script|style)\b.*?</\1>|<[^<>]*>")


class _QueryError(Exception):
    """Why there is no answer; holds no secrets."""


class PrometheusSource:
    """Implements :class:`controller.ports.MetricsSource`. Safe to use from any thread."""

    def __init__(self) -> None:
        self._closed = Event()
        # Guards the two below: the client and what it was made of.
        self._lock = Lock()
        self._access: _Access | None = None
        self._client: PrometheusConnect | None = None

    def instant(self, expression: str, metrics: Metrics) -> Answer:
        """Evaluate an instant query now; series are kept as they come, NaN and Inf too.

        Raises MetricsError, within ``metrics.timeout`` (the resolver's time for a name aside).
        """
        try:
            client = self._client_for(_Access.of(metrics))
            answer: Answer = client.custom_query(expression)
        except _QueryError as error:
            raise MetricsError(f"query {_shortened(expression)}: {error}") from None
        return answer

    def close(self) -> None:
        """End what is under way, and refuse what comes, with a MetricsError."""
        self._closed.set()
        with self._lock:
            if self._client is not None:
                self._client.close()

    def _client_for(self, access: "_Access") -> PrometheusConnect:
        with self._lock:
            if self._client is None or self._access != access:
                if self._client is not None:
                    self._client.close()
                session = _BoundedSession(access, self._closed)
                self._client = PrometheusConnect(access.url, session=session)
                session.mount(access.url, _PatientAdapter())  # instead of its own, which repeats requests
                self._access = access
            return self._client


@dataclass(frozen=True, slots=True)
class _Access:
    """What of the policy says where and how to ask."""

    url: str
    token_file: str
    ca_file: str
    headers_file: str
    timeout_s: float

    @staticmethod
    def of(metrics: Metrics) -> "_Access":
        url = metrics.url.rstrip("/")
        if urlsplit(url).scheme != "https" and not metrics.allow_http:
            raise _QueryError(f"{url} is not https, and metrics.allowHttp is false")
        return _Access(
            url, metrics.token_file, metrics.ca_file, metrics.headers_file, metrics.timeout.total_seconds()
        )

    def trouble_with_ca_file(self) -> str:
        """Why nobody can be checked against that file, "" if that is not so; OpenSSL's errors do not name it."""
        if self.ca_file and urlsplit(self.url).scheme == "https":
            try:
                create_default_context(cafile=self.ca_file)
            except OSError as error:
                return f"metrics.caFile {self.ca_file}: {in_words(error)}"
        return ""


class _PatientAdapter(HTTPAdapter):
    """Connections that keep an overall deadline, to the server or a proxy."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        make_patient(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
        known = proxy in self.proxy_manager
        manager = super().proxy_manager_for(proxy, **proxy_kwargs)
        if not known:
            make_patient(manager)
        return manager


class _Answered(Response):
    """What makes ``custom_query`` return the whole answer: it returns ``json()["data"]["result"]``."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.status_code = HTTPStatus.OK
        self._answer = answer

    def json(self, **_: Any) -> Any:
        return {"data": {"result": self._answer}}


class _BoundedSession(Session):
    """Sends a query once, within a deadline, and reads a bounded answer; raises _QueryError for all trouble."""

    def __init__(self, access: _Access, closed: Event) -> None:
        super().__init__()
        self._access = access
        self._closed = closed
        self._identity = _Identity(access.token_file, access.headers_file)
        self.auth = self._identity  # also keeps requests from taking a password from ~/.netrc
        self.headers.update({"User-Agent": "vm-rebalancer", "Accept": "application/json"})

    def request(self, method: str, url: Any, *args: Any, **kwargs: Any) -> Response:  # noqa: ARG002
        if self._closed.is_set():
            raise _QueryError("the program is ending")
        exchange = Exchange(within_s=self._access.timeout_s, silence_s=None, given_up=[self._closed.is_set])
        try:
            with waiting(exchange):
                return _Answered(self._ask(url, kwargs["params"], exchange))
        except (ApiError, RequestException, HTTPError, HTTPException, OSError) as error:
            raise _QueryError(self._access.trouble_with_ca_file() or in_words(error)) from None

    def get_redirect_target(self, resp: Response) -> None:
        """None is followed, nor its body read: where it leads to must not get our token."""

    def _ask(self, url: str, params: Mapping[str, str], exchange: Exchange) -> Answer:
        with self._send(url, params, exchange) as response:
            refused = response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            if not refused or self._identity.is_that_of(response.request):
                return _read(response)
        # The token has been replaced since it was read. (With the same one the answer would be the same.)
        with self._send(url, params, exchange) as response:
            return _read(response)

    def _send(self, url: str, params: Mapping[str, str], exchange: Exchange) -> Response:
        params = {**params, "timeout": f"{max(1, round(self._access.timeout_s * 1000))}ms"}
        form = urlencode(params)
        return super().request(
            "GET" if len(form) <= LONGEST_URL_QUERY else "POST",
            url,
            params=params if len(form) <= LONGEST_URL_QUERY else None,
            data=params if len(form) > LONGEST_URL_QUERY else None,
            stream=True,
            allow_redirects=False,
            timeout=(exchange.left_s(CONNECT_S), self._access.timeout_s),
            verify=self._access.ca_file or _system_certificates(),
        )


def _read(response: Response) -> Answer:
    ok = response.status_code == HTTPStatus.OK
    at_most = MAX_ANSWER_BYTES if ok else MAX_ERROR_BYTES
    parts: list[bytes] = []
    size = 0
    while size <= at_most and (part := response.raw.read(_PART_BYTES, decode_content=True)):
        parts.append(part)
        size += len(part)
    if ok and size > at_most:
        raise _QueryError(f"the answer is larger than {at_most} bytes")
    body = b"".join(parts)
    said = _Said(_secrets_of(response.request))
    if not ok:
        raise _QueryError(said.refusal(response, body))
    return _answer_in(body, said)


class _Identity(AuthBase):
    """Puts token and extra headers into each request, from their files as they are at that time."""

    def __init__(self, token_file: str, headers_file: str) -> None:
        self._token_file = token_file
        self._headers_file = headers_file

    def __call__(self, r: PreparedRequest) -> PreparedRequest:
        r.headers.update(self.headers())
        return r

    def headers(self) -> dict[str, str]:
        headers = _parse_headers(self._headers_file, _read_file("headersFile", self._headers_file))
        if self._token_file:
            if any(name.lower() == "authorization" for name in headers):
                raise _QueryError(
                    f"metrics.headersFile {self._headers_file} sets Authorization, beside a tokenFile"
                )
            token = _read_file("tokenFile", self._token_file).strip()
            if not token or not token.isascii() or not token.isprintable() or " " in token:
                raise _QueryError(
                    f"metrics.tokenFile {self._token_file} does not hold a token and nothing else"
                )
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def is_that_of(self, request: PreparedRequest) -> bool:
        return request.headers.get("Authorization") == self.headers().get("Authorization")


def _read_file(field: str, path: str) -> str:
    """Empty for no path."""
    if not path:
        return ""
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _QueryError(f"metrics.{field} {path}: {error.strerror}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise _QueryError(f"metrics.{field} {path}: larger than {_MAX_FILE_BYTES} bytes")
    return content.decode(errors="replace")


def _parse_headers(path: str, text: str) -> dict[str, str]:
    """``Name: value`` lines; empty lines and those that begin with # are skipped."""
    headers: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = (part.strip() for part in line.partition(":"))
        where = f"metrics.headersFile {path}, line {number}"
        if not colon or not _HEADER_NAME.fullmatch(name) or not value.isascii() or not value.isprintable():
            raise _QueryError(f"{where}: allowed is Name: value, in ASCII")
        if name.lower() in _NOT_TO_SET:
            raise _QueryError(f"{where}: {name} is not for you to set")
        if name.lower() in (other.lower() for other in headers):
            raise _QueryError(f"{where}: {name} again")
        headers[name] = value
    return headers


def _system_certificates() -> str | bool:
    """Where the system keeps the CAs it trusts; else True, for the ones that came with requests."""
    paths = get_default_verify_paths()
    return paths.cafile or paths.capath or True


class _Series(msgspec.Struct):
    metric: dict[str, str] = {}
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Body(msgspec.Struct, rename="camel"):
    """The envelope of Prometheus' HTTP API."""

    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: tuple[str, ...] | None = None


def _answer_in(body: bytes, said: "_Said") -> Answer:
    try:
        content = msgspec.json.decode(body, type=_Body)
        if content.status != "success" or content.data is None:
            raise _QueryError(said.error_in(content))
        if content.data.result_type != "vector":
            kind = said.short(content.data.result_type)
            raise _QueryError(f"it gives a {kind}, where an instant vector is needed")
        if (
            bytes(content.data.result).count(b"{") > 2 * MAX_SERIES
        ):  # each has two at least, its own and its labels'
            raise _QueryError(f"it gives more than {MAX_SERIES} series")
        series = msgspec.json.decode(content.data.result, type=list[_Series])
    except _UNREADABLE:
        raise _QueryError(f"the answer is not Prometheus': {said.text_of(body)}") from None
    warnings = tuple(said.short(warning) for warning in (content.warnings or ())[:_MAX_WARNINGS])
    return Answer([Sample(each.metric, _value(each, said)) for each in series], warnings)


def _value(series: _Series, said: "_Said") -> float:
    if series.value is None:
        raise _QueryError("it gives histograms, where plain values are needed")
    try:
        return float(series.value[1])
    except ValueError:
        raise _QueryError(f"the value {said.short(series.value[1])} is no number") from None


class _Said:
    """What a server says, as messages repeat it: short, on one line, without markup, and without secrets."""

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def short(self, text: str) -> str:
        text = as_shown(text, _SHOWN + 1, self._known)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"

    def text_of(self, body: bytes) -> str:
        return self.short(_MARKUP.sub(" ", body[:MAX_ERROR_BYTES].decode(errors="replace"))) or "nothing"

    def error_in(self, content: _Body) -> str:
        return (
            self.short(": ".join(part for part in (content.error_type, content.error) if part)) or "nothing"
        )

    def refusal(self, response: Response, body: bytes) -> str:
        status = self.short(f"{response.status_code} {response.reason or ''}")
        if location := response.headers.get("Location"):
            to = urlsplit(location)  # its query may be a session's, its user somebody's
            return (
                f"{status}, to {self.short(f'{to.scheme}://{to.hostname}{to.path}')}, which is not followed"
            )
        try:
            return f"{status}: {self.error_in(msgspec.json.decode(body, type=_Body))}"
        except _UNREADABLE:
            return f"{status}: {self.text_of(body)}"


def _secrets_of(request: PreparedRequest) -> list[str]:
    return [str(value) for name, value in request.headers.items() if name.lower() not in _NOT_SECRET]


def _shortened(expression: str) -> str:
    text = " ".join(expression.split())
    return text if len(text) <= _SHOWN_EXPRESSION else f"{text[:_SHOWN_EXPRESSION]}…"
