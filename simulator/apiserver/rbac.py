"""Role-based access control by manifests: Roles, ClusterRoles and their bindings, as a chart renders them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from simulator.apiserver.accounts import ANONYMOUS, MASTERS, User
from simulator.apiserver.refusals import Refusal
from simulator.apiserver.routing import Call

_PUBLIC = ("/healthz", "/livez", "/readyz", "/version")
"""Open to everybody (ClusterRole system:public-info-viewer)."""
_DISCOVERY = ("/api", "/apis", "/openapi")
"""Open to everybody with an account, with all that is below (ClusterRole system:discovery)."""


class Rule(NamedTuple):
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    verbs: frozenset[str]

    def grants(self, call: Call) -> bool:
        return (
            _holds(self.verbs, call.verb)
            and _holds(self.groups, call.group)
            and (_holds(self.resources, call.full_resource) or f"*/{call.subresource}" in self.resources)
            and (not self.names or call.name in self.names)
        )


class Grant(NamedTuple):
    """What a binding gives to one subject; ``namespace`` "": everywhere."""

    namespace: str
    rules: tuple[Rule, ...]


_ALL = frozenset("*")
_EVERYTHING = (Rule(_ALL, _ALL, frozenset(), _ALL),)


class AccessRules:
    """Decides calls. Without any manifest, whoever has an account may do anything."""

    def __init__(self, manifests: Iterable[Mapping[str, Any]] = ()) -> None:
        """References to roles that are not among the manifests give nothing, but for ``cluster-admin``."""
        objects = list(manifests)
        roles = {_role_key(obj): _rules(obj) for obj in objects if obj["kind"] in ("Role", "ClusterRole")}
        self._enforced = bool(objects)
        self._grants: dict[str, list[Grant]] = {}
        for obj in objects:
            if obj["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
                continue
            namespace = obj["metadata"].get("namespace", "") if obj["kind"] == "RoleBinding" else ""
            reference = obj["roleRef"]
            role_namespace = namespace if reference["kind"] == "Role" else ""
            rules = roles.get((role_namespace, reference["name"]), ())
            if reference["name"] == "cluster-admin":
                rules = _EVERYTHING
            for subject in obj.get("subjects") or ():
                self._grants.setdefault(_subject(subject, namespace), []).append(Grant(namespace, rules))

    def authorize(self, user: User, call: Call) -> None:
        """Raises `Refusal` (403) with the API server's words."""
        if not self._allows(user, call):
            raise Refusal(403, _forbidden(user, call), details=call.subject.details())

    def _allows(self, user: User, call: Call) -> bool:
        if MASTERS in user.groups:
            return True
        if not call.plural:
            public = call.path.rstrip("/") in _PUBLIC or call.path.startswith(("/livez/", "/readyz/"))
            discovery = any(call.path == path or call.path.startswith(f"{path}/") for path in _DISCOVERY)
            return public or (discovery and user != ANONYMOUS)
        if user == ANONYMOUS:
            return False
        if not self._enforced:
            return True
        return any(
            grant.namespace in ("", call.namespace) and any(rule.grants(call) for rule in grant.rules)
            for name in (user.name, *user.groups)
            for grant in self._grants.get(name, ())
        )


def read_manifests(text: str, source: str) -> list[Mapping[str, Any]]:
    """RBAC objects among YAML documents (lists too); others are passed over. Raises ``ValueError``."""
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ValueError(f"{source}: not YAML: {' '.join(str(error).split())}") from None
    found = [obj for document in documents for obj in _objects(document)]
    if not found:
        raise ValueError(f"{source}: no Role, ClusterRole, RoleBinding or ClusterRoleBinding in it")
    return found


def _objects(document: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(document, dict):
        return
    if document.get("kind") == "List":
        for item in document.get("items") or ():
            yield from _objects(item)
    elif str(document.get("apiVersion", "")).startswith("rbac.authorization.k8s.io/"):
        yield document


def _role_key(role: Mapping[str, Any]) -> tuple[str, str]:
    namespace = role["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
    return namespace, role["metadata"]["name"]


def _rules(role: Mapping[str, Any]) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            groups=frozenset(rule.get("apiGroups") or ()),
            resources=frozenset(rule.get("resources") or ()),
            names=frozenset(rule.get("resourceNames") or ()),
            verbs=frozenset(rule.get("verbs") or ()),
        )
        for rule in role.get("rules") or ()
    )


def _subject(subject: Mapping[str, Any], namespace: str) -> str:
    """A subject as the user or group name that it stands for."""
    if subject["kind"] != "ServiceAccount":
        return str(subject["name"])
    return f"system:serviceaccount:{subject.get('namespace', namespace)}:{subject['name']}"


def _holds(allowed: Sequence[str] | frozenset[str], value: str) -> bool:
    return value in allowed or "*" in allowed


def _forbidden(user: User, call: Call) -> str:
    if not call.plural:
        return f'forbidden: User "{user.name}" cannot {call.verb} path "{call.path}"'
    what = f'{call.subject.qualified} "{call.name}"' if call.name else call.subject.qualified
    scope = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    return (
        f'{what} is forbidden: User "{user.name}" cannot {call.verb} resource "{call.full_resource}" in API group '
        f'"{call.group}" {scope}'
    )
