"""Who asks: bearer tokens and the users behind them."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from simulator.apiserver.refusals import Refusal

ADMIN = "kubernetes-admin"
MASTERS = "system:masters"
_AUTHENTICATED = "system:authenticated"
_SERVICE_ACCOUNTS = "system:serviceaccounts"


class User(NamedTuple):
    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(slots=True)
class Account:
    """A user and his tokens."""

    user: User
    tokens: list[str]
    """Oldest first; expired ones too."""


class Accounts:
    """Names are those of the command line: ``admin``, and service accounts as ``name`` or ``namespace/name``."""

    def __init__(self, namespace: str) -> None:
        """``namespace``: of service accounts that are named without one."""
        self._namespace = namespace
        self._accounts: dict[str, Account] = {}
        self._users: dict[str, User] = {}
        """Token -> user."""
        self._add("admin", User(ADMIN, (MASTERS, _AUTHENTICATED)))

    def add_service_account(self, name: str) -> str:
        """Returns its token."""
        namespace, own = name.split("/", 1) if "/" in name else (self._namespace, name)
        groups = (_SERVICE_ACCOUNTS, f"{_SERVICE_ACCOUNTS}:{namespace}", _AUTHENTICATED)
        return self._add(name, User(f"system:serviceaccount:{namespace}:{own}", groups))

    @property
    def names(self) -> Mapping[str, User]:
        return {name: account.user for name, account in self._accounts.items()}

    def token(self, name: str) -> str:
        """The newest token of an account, expired or not. Raises ``KeyError``."""
        return self._accounts[name].tokens[-1]

    def rotate(self, name: str, *, keep_old: bool) -> str:
        """Issue a new token; older ones end now or go on. Raises ``KeyError``."""
        if not keep_old:
            self.expire(name)
        account = self._accounts[name]
        account.tokens.append(self._new_token(account.user))
        return account.tokens[-1]

    def expire(self, name: str) -> None:
        """End all tokens of an account. Raises ``KeyError``."""
        for token in self._accounts[name].tokens:
            self._users.pop(token, None)

    def authenticate(self, authorization: str) -> User:
        """The user of an Authorization header. Raises `Refusal` (401)."""
        scheme, _, token = authorization.partition(" ")
        if not authorization:
            return ANONYMOUS
        user = self._users.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise Refusal(401, "Unauthorized")
        return user

    def _add(self, name: str, user: User) -> str:
        token = self._new_token(user)
        self._accounts[name] = Account(user, [token])
        return token

    def _new_token(self, user: User) -> str:
        token = secrets.token_urlsafe(32)
        self._users[token] = user
        return token
