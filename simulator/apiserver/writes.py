"""Create, update, patch and delete."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from simulator.agenda import Agenda, rfc3339
from simulator.apiserver import patches, shapes, validation
from simulator.apiserver.effects import Effects
from simulator.apiserver.forms import from_wire, to_wire
from simulator.apiserver.refusals import (
    Cause,
    Refusal,
    bad_request,
    conflict,
    exists,
    from_store,
    invalid,
    not_found,
    wrong_uid,
)
from simulator.apiserver.resources import Resource
from simulator.kubevirt.objectstore import NAMESPACE, VMI, ApiError, Json, ObjectStore, at

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_SERVERS_OWN = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
"""Metadata that clients cannot set."""


class Target(NamedTuple):
    """The object that a write is about; without a name: a new one."""

    resource: Resource
    namespace: str
    name: str = ""
    status: bool = False
    """Its status subresource."""


class Writes:
    """Answers are stored objects. Dry runs go through all checks and store nothing."""

    def __init__(self, store: ObjectStore, effects: Effects, agenda: Agenda) -> None:
        self._store = store
        self._effects = effects
        self._agenda = agenda

    def create(self, target: Target, sent: Json, *, dry_run: bool) -> Json:
        resource = target.resource
        wanted = self._accepted(target, sent)
        metadata = wanted["metadata"]
        for name in (*_SERVERS_OWN, "managedFields"):
            metadata.pop(name, None)
        if metadata.pop("resourceVersion", ""):
            message = "resourceVersion should not be set on objects to be created"
            raise Refusal(500, message, reason="")
        subject = resource.subject(metadata.get("name", ""))
        if not metadata.get("name") and not metadata.get("generateName"):
            message = "Required value: name or generateName is required"
            raise invalid(subject, [Cause("FieldValueRequired", message, "metadata.name")])
        if target.namespace and self._store.get(NAMESPACE, "", target.namespace) is None:
            raise not_found(subject._replace(plural="namespaces", group="", name=target.namespace))
        if resource.status and resource.custom:
            wanted.pop("status", None)
        if resource.kind == NAMESPACE:
            wanted["status"] = {"phase": "Active"}
        validation.check(resource, wanted, None)
        if metadata.get("name") and self._store.get(resource.kind, target.namespace, metadata["name"]):
            raise exists(subject)
        if dry_run:
            return self._as_if_created(resource, wanted)
        if self._effects.creates(resource):
            return self._effects.create_migration(wanted, subject)
        return self._store.create(resource.kind, wanted)

    def update(self, target: Target, sent: Json, *, dry_run: bool) -> Json:
        """Replace an object, or its status."""
        old = self.existing(target)
        new = self._accepted(target, sent)
        if new["metadata"].get("name", target.name) != target.name:
            raise bad_request(
                f"the name of the object ({new['metadata']['name']}) does not match the name on the URL "
                f"({target.name})"
            )
        return self._replace(target, old, new, dry_run=dry_run)

    def patch(self, target: Target, content_type: str, body: bytes, *, dry_run: bool) -> Json:
        apply = _patcher(target.resource, content_type)
        old = self.existing(target)
        patched = _patched(apply, to_wire(target.resource, old), body)
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise bad_request("the patch leaves no object")
        return self._replace(target, old, self._accepted(target, patched), dry_run=dry_run)

    def delete(
        self, target: Target, preconditions: shapes.Preconditions, *, dry_run: bool
    ) -> tuple[Json, bool]:
        """(last state known, whether it is gone); others go in their own time. Raises `Refusal`."""
        resource, subject = target.resource, target.resource.subject(target.name)
        old = self.existing(target)
        metadata = old["metadata"]
        uid, version = preconditions.uid, preconditions.resource_version
        if uid not in (None, "", metadata["uid"]):
            raise wrong_uid(subject, str(uid), metadata["uid"])
        if version not in (None, "", metadata["resourceVersion"]):
            raise conflict(
                subject,
                f"Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in "
                f"object meta: {metadata['resourceVersion']}",
            )
        if dry_run:
            return old, not self._effects.deletes(resource)
        try:
            if self._effects.deletes(resource):
                self._effects.delete(resource, target.namespace, target.name)
                left = self._store.get(resource.kind, target.namespace, target.name)
                return left or old, left is None
            if metadata.get("finalizers"):
                return self._mark_deleted(target, old), False
            return self._store.delete(resource.kind, target.namespace, target.name), True
        except ApiError as error:
            if resource.kind == VMI and error.status == 404:  # its VM has gone, it is going
                return old, False
            raise from_store(error, subject) from None

    def existing(self, target: Target) -> Json:
        """Raises `Refusal` (404)."""
        found = self._store.get(target.resource.kind, target.namespace, target.name)
        if found is None:
            raise not_found(target.resource.subject(target.name))
        return found

    def _as_if_created(self, resource: Resource, wanted: Json) -> Json:
        metadata = wanted["metadata"]
        namespace, prefix = metadata.get("namespace", ""), metadata.get("generateName", "")
        metadata.setdefault("name", self._store.new_name(resource.kind, namespace, prefix))
        return {
            **wanted,
            "metadata": {
                **metadata,
                "uid": self._store.new_uid(),
                "creationTimestamp": rfc3339(self._agenda.now_s),
            },
        }

    def _mark_deleted(self, target: Target, old: Json) -> Json:
        if "deletionTimestamp" in old["metadata"]:
            return old
        now = rfc3339(self._agenda.now_s)
        changes: dict[tuple[str, ...], object] = {
            ("metadata", "deletionTimestamp"): now,
            ("metadata", "deletionGracePeriodSeconds"): 0,
        }
        return self._store.update(target.resource.kind, target.namespace, target.name, changes)

    def _accepted(self, target: Target, sent: Json) -> Json:
        """An object as sent, checked for belonging to the URL, in its stored version; our own copy of it."""
        resource = target.resource
        for name, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            if sent.get(name) not in (None, "", expected):
                what = "API version" if name == "apiVersion" else name
                raise bad_request(
                    f"the {what} in the data ({sent[name]}) does not match the expected {what} ({expected})"
                )
        wanted = from_wire(resource, {**sent, "apiVersion": resource.api_version, "kind": resource.kind})
        wanted = shapes.decoded(resource, wanted)
        metadata = dict(wanted.get("metadata") or {})
        if resource.namespaced:
            if metadata.get("namespace") not in (None, "", target.namespace):
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            metadata["namespace"] = target.namespace
        return _without_empty(resource, {**wanted, "metadata": metadata})

    def _replace(self, target: Target, old: Json, new: Json, *, dry_run: bool) -> Json:
        resource, subject = target.resource, target.resource.subject(target.name)
        validation.check_metadata(resource, new, old)
        new = _merged_with_stored(target, old, new)
        if new["metadata"].get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise wrong_uid(subject, new["metadata"]["uid"], old["metadata"]["uid"])
        version = new["metadata"].get("resourceVersion") or old["metadata"]["resourceVersion"]
        if version != old["metadata"]["resourceVersion"]:
            raise conflict(subject)
        new["metadata"]["resourceVersion"] = version
        validation.check(resource, new, old)
        if dry_run:
            return new
        stored = self._store.replace(resource.kind, new)
        self._effects.changed(resource, old, stored)
        if "deletionTimestamp" in stored["metadata"] and at(old, "metadata", "finalizers"):
            return self._finalize(target, stored)
        return stored

    def _finalize(self, target: Target, stored: Json) -> Json:
        if stored["metadata"].get("finalizers"):
            return stored
        return self._store.delete(target.resource.kind, target.namespace, target.name)


def _merged_with_stored(target: Target, old: Json, new: Json) -> Json:
    """The new state with what this kind of update cannot change as it was."""
    metadata = {key: value for key, value in new["metadata"].items() if key != "managedFields"}
    for name in _SERVERS_OWN:
        if name == "uid":
            continue
        metadata.pop(name, None)
        if name in old["metadata"]:
            metadata[name] = old["metadata"][name]
    new = {**new, "metadata": metadata}
    if not target.resource.status:
        return new
    if not target.status:
        return _with(new, old, "status")
    if target.resource.custom:
        kept = {**old["metadata"], "resourceVersion": metadata.get("resourceVersion", "")}
        return {**old, "metadata": kept, "status": new.get("status", {})}
    return _with(new, old, "spec")


def _without_empty(resource: Resource, obj: Json) -> Json:
    """As Go encodes the kinds that it knows: what is empty is absent."""
    metadata = {key: value for key, value in obj["metadata"].items() if value not in (None, {}, [])}
    shown = {**obj, "metadata": metadata}
    if not resource.custom and isinstance(obj.get("spec"), dict):
        shown["spec"] = {
            key: value
            for key, value in obj["spec"].items()
            if value is not None and value is not False and value != []
        }
    return shown


def _with(new: Json, old: Json, part: str) -> Json:
    return {**{key: value for key, value in new.items() if key != part}, **_only(old, (part,))}


def _only(obj: Json, parts: Sequence[str]) -> Json:
    return {part: obj[part] for part in parts if part in obj}


def decode_body(body: bytes, content_type: str) -> Json:
    """A JSON or YAML object. Raises `Refusal` (400, 415)."""
    media_type = content_type.partition(";")[0].strip()
    try:
        if media_type in ("application/yaml", "text/yaml", "application/x-yaml"):
            decoded: Any = yaml.safe_load(body)
        elif media_type in ("", "application/json", "application/octet-stream"):
            decoded = msgspec.json.decode(body)
        else:
            raise Refusal(
                415,
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json, application/yaml",
                details={},
            )
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(decoded, dict):
        raise bad_request("couldn't get version/kind; json parse error: not an object")
    return decoded


def _patcher(resource: Resource, content_type: str) -> Callable[[Json, Any], Any]:
    """Raises `Refusal` (415), also for server-side apply, which is not served."""
    kinds: dict[str, Callable[[Json, Any], Any]] = {
        JSON_PATCH: patches.json_patch,
        MERGE_PATCH: patches.merge_patch,
    }
    if not resource.custom:
        kinds[STRATEGIC_PATCH] = patches.strategic_merge_patch
    media_type = content_type.partition(";")[0].strip()
    if media_type not in kinds:
        message = "the body of the request was in an unknown format - accepted media types include: "
        raise Refusal(415, message + ", ".join(kinds), details={})
    return kinds[media_type]


def _patched(apply: Callable[[Json, Any], Any], obj: Json, body: bytes) -> Any:
    try:
        return apply(obj, msgspec.json.decode(body))
    except patches.MismatchError:
        message = "the server rejected our request due to an error in our request"
        raise Refusal(422, message, details={}) from None
    except (patches.PatchError, msgspec.DecodeError, TypeError, AttributeError) as error:  # of any shape
        raise bad_request(f"error decoding patch: {error}") from None
