"""Least privilege, judged over a whole session: what our accounts have asked for, against what the chart grants them.

Each lab leaves a note of its calls and grants in a directory that all of the session's processes share. A call that
is not granted is a fault whatever has run; a grant that nobody has used is one only once the whole suite has.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from e2e import chart
from e2e.truth import Request

_OPEN_TO_ALL = ("/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz")
"""Kubernetes' roles system:discovery and system:public-info-viewer."""
FORBIDDEN = 403


class Grant(NamedTuple):
    """What an account may do."""

    account: str
    namespace: str
    """Empty: everywhere."""
    resource: str
    """With its group: ``leases.coordination.k8s.io``, ``pods/eviction``."""
    name: str
    """Of the object; empty: any."""
    verb: str

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {self.resource} {self.name}".rstrip() + where


class Call(NamedTuple):
    """What an account has asked for."""

    account: str
    namespace: str
    resource: str
    name: str
    verb: str
    path: str
    """Of what is no resource; else empty."""
    refused: bool

    @property
    def open_to_all(self) -> bool:
        return any(self.path == path or self.path.startswith(f"{path}/") for path in _OPEN_TO_ALL)

    def uses(self, grant: Grant) -> bool:
        return (
            (self.account, self.resource, self.verb) == (grant.account, grant.resource, grant.verb)
            and grant.namespace in ("", self.namespace)
            and grant.name in ("", self.name)
        )

    def __str__(self) -> str:
        what = self.path or f"{self.resource} {self.namespace}/{self.name}"
        return f"{self.account}: {self.verb} {what}" + (" (403)" if self.refused else "")


class Note(msgspec.Struct, frozen=True):
    """Of one lab."""

    grants: list[Grant]
    calls: list[Call]


def grants(objects: Iterable[Mapping[str, Any]], accounts: Mapping[str, str]) -> set[Grant]:
    """By the roles among these manifests. ``accounts``: service account -> what it is called in the result.

    Roles that are not among the manifests (a cluster's own) are passed over.
    """
    rendered = list(objects)
    roles = {
        (o["kind"], o["metadata"]["name"]): o["rules"]
        for o in rendered
        if o["kind"] in ("Role", "ClusterRole")
    }
    found: set[Grant] = set()
    for binding in (o for o in rendered if o["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        reference = binding["roleRef"]
        given = [accounts[s["name"]] for s in binding["subjects"] if s["name"] in accounts]
        for rule in roles.get((reference["kind"], reference["name"]), ()):
            namespace = binding["metadata"].get("namespace", "")
            found |= {Grant(account, namespace, *what) for account in given for what in _combinations(rule)}
    return found


def _combinations(rule: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(resource, name, verb)"""
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                for verb in rule["verbs"]:
                    yield f"{resource}.{group}".rstrip("."), name, verb


def calls(requests: Iterable[Request]) -> set[Call]:
    """Those of our accounts, replicas taken together."""
    programs = {
        f"system:serviceaccount:{chart.NAMESPACE}:{chart.account(program, replica)}": program
        for program in chart.PROGRAMS
        for replica in range(chart.REPLICAS)
    }
    return {_call(request, programs[request.user]) for request in requests if request.user in programs}


def _call(request: Request, account: str) -> Call:
    resource = f"{request.resource}/{request.subresource}".rstrip("/")
    return Call(
        account,
        request.namespace,
        f"{resource}.{request.api_group}".rstrip("."),
        request.name,
        request.verb,
        "" if request.resource else request.path,
        request.status == FORBIDDEN,
    )


def write_note(directory: Path, name: str, rendered: chart.Chart, requests: Iterable[Request]) -> None:
    """``name``: of the test; the file's name is made of it."""
    accounts = {f"{chart.RELEASE}-{program}": program for program in chart.PROGRAMS}
    note = Note(sorted(grants(rendered.objects, accounts)), sorted(calls(requests)))
    file = "".join(c if c.isalnum() else "-" for c in name)
    (directory / f"{file}.json").write_bytes(msgspec.json.encode(note))


def read_notes(directory: Path) -> list[Note]:
    return [msgspec.json.decode(path.read_bytes(), type=Note) for path in sorted(directory.glob("*.json"))]


def not_granted(notes: Iterable[Note]) -> list[Call]:
    """Calls that the account's own lab did not grant, whatever the API server has answered."""
    return sorted(
        {
            call
            for note in notes
            for call in note.calls
            if not call.open_to_all and not any(call.uses(grant) for grant in note.grants)
        }
    )


def never_used(notes: Iterable[Note]) -> list[Grant]:
    """Grants that nobody has used in any lab; a call that was refused uses nothing."""
    notes = list(notes)
    made = {call for note in notes for call in note.calls if not call.refused}
    granted = {grant for note in notes for grant in note.grants}
    return sorted(grant for grant in granted if not any(call.uses(grant) for call in made))
