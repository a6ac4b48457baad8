"""What clients ask to learn the API: versions, groups, resources, and as much OpenAPI as kubectl wants to see."""

from collections.abc import Iterable
from typing import Any

from simulator.apiserver.resources import BY_PATH, SUBRESOURCES_GROUP, Resource, groups
from simulator.kubevirt.objectstore import Json

VERSION: Json = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-04-22T00:00:00Z",
    "goVersion": "go1.26",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force", "pretty")


def document(path: str) -> Json | None:
    """The discovery document at a path; ``None``: there is none."""
    parts = path.strip("/").split("/")
    match parts:
        case ["version"]:
            return VERSION
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case ["api", "v1"]:
            return _resource_list("", "v1")
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g) for g in _group_names()]}
        case ["apis", group] if group in _group_names():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["apis", group, "v1"] if group in _group_names():
            return _resource_list(group, "v1")
        case ["openapi", "v2"]:
            return _openapi_v2()
        case ["openapi", "v3"]:
            names = ["api/v1", *(f"apis/{group}/v1" for group in _group_names())]
            return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}"} for name in names}}
        case ["openapi", "v3", "api", "v1"]:
            return _openapi_v3("")
        case ["openapi", "v3", "apis", group, "v1"] if group in _group_names():
            return _openapi_v3(group)
    return None


def _group_names() -> list[str]:
    return [group for group in groups() if group] + [SUBRESOURCES_GROUP]


def _group(name: str) -> Json:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str, version: str) -> Json:
    if group == SUBRESOURCES_GROUP:
        resources = [
            _subresource("virtualmachineinstances/evacuatecancel", "", "EvacuateCancelOptions", ("update",))
        ]
    else:
        resources = [entry for resource in groups().get(group, ()) for entry in _entries(resource)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _entries(resource: Resource) -> Iterable[Json]:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": sorted(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    if resource.status:
        verbs = ("get", "patch", "update")
        yield _subresource(f"{resource.plural}/status", "", resource.kind, verbs, resource.namespaced)
    for name, kind in resource.subresources.items():
        yield _subresource(f"{resource.plural}/{name}", "policy", kind, ("create",), resource.namespaced)


def _subresource(name: str, group: str, kind: str, verbs: tuple[str, ...], namespaced: bool = True) -> Json:
    entry: Json = {
        "name": name,
        "singularName": "",
        "namespaced": namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }
    return entry | ({"group": group, "version": "v1"} if group else {})


def _schema_name(resource: Resource) -> str:
    group = resource.group.removesuffix(".k8s.io") or "core"
    return f"io.k8s.api.{group}.{resource.version}.{resource.kind}"


def _kinds(resource: Resource) -> list[Json]:
    return [{"group": resource.group, "kind": resource.kind, "version": resource.version}]


def _schema(resource: Resource) -> Json:
    """Only the parts that every object has: what is inside them is not described, and not refused."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    texts = {
        "apiVersion": "APIVersion defines the versioned schema of this representation of an object.",
        "kind": "Kind is a string value representing the REST resource this object represents.",
    }
    properties: Json = {name: {"type": "string", "description": text} for name, text in texts.items()}
    properties["metadata"] = anything | {"description": "Standard object's metadata."}
    properties["spec"] = anything | {"description": f"What a {resource.kind} is to be."}
    properties["status"] = anything | {"description": f"What the {resource.kind} was seen to be."}
    return {
        "type": "object",
        "description": f"{resource.kind} of the simulated cluster.",
        "properties": properties,
        "x-kubernetes-group-version-kind": _kinds(resource),
        "x-kubernetes-preserve-unknown-fields": True,
    }


def _paths(resource: Resource, parameters: list[Json], body: Json) -> dict[str, Any]:
    base = f"/apis/{resource.group}/v1" if resource.group else "/api/v1"
    if resource.namespaced:
        base += "/namespaces/{namespace}"
    operation = {"parameters": parameters, "responses": {"200": {"description": "OK"}}}
    kind = {"x-kubernetes-group-version-kind": _kinds(resource)[0]}
    return {
        f"{base}/{resource.plural}": {"post": operation | kind | {"x-kubernetes-action": "post"}},
        f"{base}/{resource.plural}/{{name}}": {
            "patch": operation | body | kind | {"x-kubernetes-action": "patch"}
        },
    }


def _openapi_v3(group: str) -> Json:
    parameters: list[Json] = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in _QUERY]
    body = {"requestBody": {"content": {kind: {"schema": {"type": "object"}} for kind in _PATCH_TYPES[:2]}}}
    resources = groups().get(group, ())
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": {path: item for r in resources for path, item in _paths(r, parameters, body).items()},
        "components": {"schemas": {_schema_name(r): _schema(r) for r in resources}},
    }


def _openapi_v2() -> Json:
    parameters: list[Json] = [{"name": name, "in": "query", "type": "string"} for name in _QUERY]
    body = {"consumes": list(_PATCH_TYPES)}
    resources = BY_PATH.values()
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": {path: item for r in resources for path, item in _paths(r, parameters, body).items()},
        "definitions": {_schema_name(r): _schema(r) for r in resources},
    }
