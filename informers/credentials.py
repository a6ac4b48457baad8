"""Where the API server is and how to prove who we are: the ``kubernetes`` package's configuration, reloadable.

Kubeconfig files (tokens, client certificates, exec plugins, OIDC, proxies) and the service account of a pod are
read by ``kubernetes.config``; this module makes connection pools of what it finds. What it adds:

* Everything is read afresh on demand (:meth:`Credentials.renew`), whatever the package believes about
  expiry: a token file of a kubeconfig it reads only once, and a client certificate from a plugin it never renews.
* Nothing secret gets into an error or a log: the package's own errors may quote a whole user entry, and it logs
  what a plugin has written to stderr.
* Whoever has a plugin that fails is nobody: the package would go on without a token, as anonymous.
* Tokens are stripped: a newline at the end of a token file would make an invalid header.

The package takes 0.15 s and 20 MB to import, so it is imported when it is needed.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import TYPE_CHECKING

from urllib3 import PoolManager
from urllib3.util import parse_url

from informers.connection import make_patient
from informers.errors import Unreachable

if TYPE_CHECKING:
    from kubernetes.client import Configuration

log = logging.getLogger(__name__)

_OF_PLUGIN = re.compile(r"(exec: process returned -?[0-9]+).*")

CONNECTIONS = 32
"""So many idle connections are kept at most."""


class CredentialsError(ValueError):
    """There is no usable kubeconfig or service account here. Holds nothing secret."""


@dataclass(frozen=True, slots=True)
class Access:
    """What was read at one time: ``url`` of the API server, a pool of connections to it, and who we are."""

    url: str
    pool: PoolManager
    configuration: "Configuration" = field(repr=False)


class Credentials:
    """See the module. Safe to use from any thread; ``where`` is for messages."""

    def __init__(self, where: str, load: Callable[["Configuration"], None]) -> None:
        """``load`` fills a configuration; it is called again for each renewal. Raises CredentialsError."""
        self._where = where
        self._load = load
        # Guards reading credentials: the package's hooks are not thread-safe and may run a plugin.
        self._lock = Lock()
        self._access = self._read()

    @property
    def current(self) -> Access:
        return self._access

    def headers(self, access: Access, within_s: float) -> Mapping[str, str]:
        """The ``Authorization`` header, renewed before its time is over; empty without a token.

        Raises Unreachable if it cannot be had, or not in time since another thread is renewing it.
        """
        if not self._lock.acquire(timeout=within_s):
            raise Unreachable(f"credentials from {self._where} are not renewed within {within_s:g} s")
        try:
            with _log_as_error():
                key = access.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:  # noqa: BLE001 - plugins and parsers raise anything
            raise Unreachable(f"no credentials from {self._where}: {_without_secrets(error)}") from None
        finally:
            self._lock.release()
        value = (key or "").strip()
        if not (value.isascii() and value.isprintable()):
            raise Unreachable(f"the token from {self._where} has characters that no HTTP header may have")
        return {"Authorization": value} if value else {}

    def renew(self, refused: Access, within_s: float) -> Access | None:
        """Another access in place of one that the server does not accept (any more); None if there is none.

        Of several threads that were refused one reads, and all get what it has read.
        """
        if not self._lock.acquire(timeout=within_s):
            return None
        try:
            if self._access is refused:
                self._access = self._read()
                refused.pool.clear()
        except CredentialsError as error:
            log.warning("credentials are not renewed: %s", error)
            return None
        finally:
            self._lock.release()
        return self._access

    def _read(self) -> Access:
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject

        configuration = Configuration()
        try:
            with _log_as_error():
                self._load(configuration)
            configuration.retries = False
            configuration.keep_alive = True
            configuration.connection_pool_maxsize = CONNECTIONS
            pool = RESTClientObject(configuration).pool_manager
            make_patient(pool)
        except Exception as error:  # noqa: BLE001 - whatever a malformed file makes the package raise
            raise CredentialsError(f"{self._where}: {_without_secrets(error)}") from None
        return Access(configuration.host.rstrip("/"), pool, configuration)

    def __repr__(self) -> str:
        url = parse_url(self._access.url)
        return f"Credentials({url.scheme}://{url.netloc}, from {self._where})"


def from_kubeconfig(path: str | None, context: str | None) -> Credentials:
    """``path`` None: as kubectl looks for it, ``$KUBECONFIG`` or ``~/.kube/config``. Raises CredentialsError."""
    path = path or os.environ.get("KUBECONFIG") or "~/.kube/config"

    def load(configuration: "Configuration") -> None:
        from kubernetes.config import load_kube_config

        load_kube_config(path, context, configuration)  # type: ignore[no-untyped-call]

    return Credentials(f"kubeconfig {path}", load)


def in_cluster() -> Credentials:
    """The service account of the pod that we run in. Raises CredentialsError."""

    def load(configuration: "Configuration") -> None:
        from kubernetes.config import load_incluster_config

        load_incluster_config(configuration)  # type: ignore[no-untyped-call]

    return Credentials("the pod's service account", load)


class _Log(logging.Filter):
    """Takes what this thread logs by the root logger itself: there, that is the ``kubernetes`` package only."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self._thread = get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        if get_ident() != self._thread:
            return True
        self.said.append(record.getMessage())
        return False


@contextmanager
def _log_as_error() -> Iterator[None]:
    """What the package only logs, and that without care for secrets, is an error in the end."""
    taken = _Log()
    logging.root.addFilter(taken)
    try:
        yield
    finally:
        logging.root.removeFilter(taken)
    if taken.said:
        raise CredentialsError(taken.said[0])


def _without_secrets(error: Exception) -> str:
    """One line; without what the package quotes.

    Of a kubeconfig it quotes what starts at a brace, of a plugin its stderr, behind the exit code.
    """
    text = " ".join(str(error).split())
    text = _OF_PLUGIN.sub(r"\1", text)
    text = text.split("{", 1)[0][:200]
    return text if isinstance(error, CredentialsError) else f"{type(error).__name__}: {text}"
