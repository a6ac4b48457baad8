"""What clients need to come in, in files: kubeconfigs, tokens, the authority's certificate."""

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from simulator.apiserver.accounts import Accounts
from simulator.apiserver.certificates import Certificates, issue
from simulator.apiserver.kubeconfig import write_rotating, write_whole


class Credentials:
    """Writes the files, and writes them anew when something in them has changed."""

    def __init__(
        self,
        accounts: Accounts,
        host: str,
        namespace: str,
        admin: Path,
        others: Mapping[str, Path],
        now: Callable[[], datetime],
    ) -> None:
        """``others``: service account -> its kubeconfig; they get an account each."""
        self._accounts = accounts
        self._host = host
        self._namespace = namespace
        self._admin = admin
        self._others = dict(others)
        self._now = now
        self._url = ""
        self.certificates: Certificates = issue(host, now())
        for name in others:
            accounts.add_service_account(name)

    def write_all(self, url: str) -> None:
        """Raises ``OSError``."""
        self._url = url
        for name in ("admin", *self._others):
            self.write(name)

    def write(self, name: str) -> None:
        """An account's file or files, with its newest token. Raises ``OSError``."""
        authority, token = self.certificates.authority, self._accounts.token(name)
        if name == "admin":
            write_whole(self._admin, self._url, authority, name, token, self._namespace)
        else:
            write_rotating(self._others[name], self._url, authority, name, token, self._namespace)

    def renew_authority(self) -> None:
        """Another authority, and a certificate of it; clients that have not read the files again do not trust it."""
        self.certificates = issue(self._host, self._now())
        self.write_all(self._url)
