"""From a request line to what is asked: verb, resource, namespace, name, subresource."""

from collections.abc import Mapping
from typing import NamedTuple

from simulator.apiserver.listing import is_true
from simulator.apiserver.refusals import Subject
from simulator.apiserver.resources import BY_PATH, Resource

_VERBS = {
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "GET": "get",
    "HEAD": "get",
}
_OF_NAMESPACES = ("status", "finalize")
"""Subresources of a namespace; anything else below one is a resource in it."""


class Call(NamedTuple):
    """What authorization and audit see of a request (``k8s.io/apiserver`` RequestInfo)."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    plural: str = ""
    """Empty: the path is no resource's (discovery, health)."""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    """Of a list or watch: the only name that its field selector allows."""

    @property
    def resource(self) -> Resource | None:
        """``None``: there is no such resource."""
        return BY_PATH.get((self.group, self.version, self.plural))

    @property
    def full_resource(self) -> str:
        """As rules name it: ``pods/eviction``."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    @property
    def subject(self) -> Subject:
        return Subject(self.plural, self.group, self.name)


def parse_call(method: str, path: str, query: Mapping[str, str]) -> Call:
    """A method that the API does not know gets the verb "", as nobody is allowed that."""
    verb = _VERBS.get(method, "")
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Call(verb, path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    if not name:
        verb = {"get": "list", "delete": "deletecollection"}.get(verb, verb)
        if verb == "list" and "watch" in query and is_true(query["watch"]):
            verb = "watch"
        name = _one_name(query.get("fieldSelector", ""))
    return Call(verb, path, group, version, plural, "/".join([subresource, *rest[3:]]), namespace, name)


def _one_name(field_selector: str) -> str:
    """The only name that a field selector allows: a rule for that name is enough to list and watch it."""
    for term in field_selector.split(","):
        field, sign, value = term.partition("=")
        if field == "metadata.name" and sign:
            return value.removeprefix("=")
    return ""
