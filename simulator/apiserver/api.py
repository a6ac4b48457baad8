"""One request to the API: from what is asked to its answer, on the cluster as it is now. No HTTP, no waiting."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from simulator.apiserver import discovery
from simulator.apiserver.effects import Effects
from simulator.apiserver.forms import Form, asked_form
from simulator.apiserver.history import History
from simulator.apiserver.listing import list_body, parse_options
from simulator.apiserver.live import LiveCluster
from simulator.apiserver.refusals import Refusal, from_store, method_not_allowed, success
from simulator.apiserver.resources import SUBRESOURCES_GROUP, Resource
from simulator.apiserver.routing import Call
from simulator.apiserver.shapes import DeleteOptions, EvacuateCancelOptions, Eviction, Preconditions, read
from simulator.apiserver.subresources import Subresources, is_dry_run
from simulator.apiserver.watches import Watch, Watches
from simulator.apiserver.writes import Target, Writes, decode_body
from simulator.kubevirt.objectstore import ApiError, Json
from simulator.seeds import plain_random

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
_HEALTH = ("healthz", "livez", "readyz")


class Request(NamedTuple):
    """An HTTP request, as far as the API looks at it."""

    query: Mapping[str, str]
    accept: str = ""
    content_type: str = ""
    body: bytes = b""

    def decoded(self) -> Json:
        return decode_body(self.body, self.content_type)

    def options(self) -> Json:
        """The body if there is one: DeleteOptions and the like."""
        return self.decoded() if self.body.strip() else {}


class Reply(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON
    retry_after_s: float | None = None


class Api:
    """Raises nothing but `Refusal` and `Throttled`, whatever is asked."""

    def __init__(self, live: LiveCluster, seed: int) -> None:
        simulation = live.simulation
        store, control_plane = simulation.store, simulation.control_plane
        self._live = live
        self.history = History(store)
        self.watches = Watches(self.history, plain_random(seed, "watches"), live.now)
        self._writes = Writes(store, Effects(control_plane, store, simulation.agenda), simulation.agenda)
        self._subresources = Subresources(control_plane, store)
        self._verbs: Mapping[str, Callable[[Call, Resource, Request], tuple[int, Json]]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_all,
        }

    def handle(self, call: Call, request: Request, user: str) -> Reply | Watch:
        """Carry out what is asked; a watch is opened, and whoever sends it closes it."""
        return self._live.do(lambda: self._handle(call, request, user))

    def _handle(self, call: Call, request: Request, user: str) -> Reply | Watch:
        if not call.plural:
            return _general(call)
        if call.group == SUBRESOURCES_GROUP:
            return self._act(call, request)
        resource = call.resource
        if resource is None or not _has_subresource(resource, call.subresource):
            return _NO_SUCH_PATH
        if call.verb == "watch":
            form = asked_form(resource, request.accept, request.query.get("includeObject", ""))
            options = parse_options(request.query, resource, watch=True)
            return self.watches.open(form, call.namespace, options, user)
        try:
            status, body = self._answer(call, resource, request)
        except ApiError as error:
            raise from_store(error, call.subject) from error
        return Reply(status, msgspec.json.encode(body))

    def _answer(self, call: Call, resource: Resource, request: Request) -> tuple[int, Json]:
        if call.subresource == "eviction":
            if call.verb != "create":
                raise method_not_allowed(resource.subject())
            eviction = read(request.decoded(), Eviction)
            answer = self._subresources.evict(call.namespace, call.name, eviction, request.query)
            return int(answer["code"]), answer
        if not _allowed(call, resource):
            raise method_not_allowed(resource.subject())
        return self._verbs[call.verb](call, resource, request)

    def _get(self, call: Call, resource: Resource, request: Request) -> tuple[int, Json]:
        return 200, _form(resource, request).one(
            self._writes.existing(_target(call, resource)), self._live.now()
        )

    def _list(self, call: Call, resource: Resource, request: Request) -> tuple[int, Json]:
        options = parse_options(request.query, resource, watch=False)
        form = _form(resource, request)
        return 200, list_body(self.history, form, call.namespace, options, self._live.now())

    def _create(self, call: Call, resource: Resource, request: Request) -> tuple[int, Json]:
        target = _target(call, resource)._replace(name="")
        created = self._writes.create(target, request.decoded(), dry_run=is_dry_run(request.query, None))
        return 201, self._shown(resource, request, created)

    def _update(self, call: Call, resource: Resource, request: Request) -> tuple[int, Json]:
        dry_run = is_dry_run(request.query, None)
        stored = self._writes.update(_target(call, resource), request.decoded(), dry_run=dry_run)
        return 200, self._shown(resource, request, stored)

    def _patch(self, call: Call, resource: Resource, request: Request) -> tuple[int, Json]:
        dry_run = is_dry_run(request.query, None)
        target = _target(call, resource)
        stored = self._writes.patch(target, request.content_type, request.body, dry_run=dry_run)
        return 200, self._shown(resource, request, stored)

    def _delete(self, call: Call, resource: Resource, request: Request) -> tuple[int, Json]:
        options, dry_run = _delete_options(request)
        target = _target(call, resource)
        last, is_gone = self._writes.delete(target, options.preconditions or Preconditions(), dry_run=dry_run)
        if not is_gone:
            return 200, self._shown(resource, request, last)
        details = resource.subject(call.name).details(uid=last["metadata"]["uid"])
        return 200, success(0, details)

    def _delete_all(self, call: Call, resource: Resource, request: Request) -> tuple[int, Json]:
        options = parse_options(request.query, resource, watch=False)
        _, dry_run = _delete_options(request)
        chosen = [
            obj
            for obj in self.history.snapshot(resource.kind).objects
            if obj["metadata"].get("namespace", "") == call.namespace and options.selector.matches(obj)
        ]
        for obj in chosen:
            target = Target(resource, call.namespace, obj["metadata"]["name"])
            self._writes.delete(target, Preconditions(), dry_run=dry_run)
        metadata = {"resourceVersion": str(self.history.version)}
        return 200, _form(resource, request).many(chosen, metadata, self._live.now())

    def _act(self, call: Call, request: Request) -> Reply:
        if call.plural != "virtualmachineinstances" or call.subresource != "evacuatecancel":
            return _NO_SUCH_PATH
        if call.verb != "update":
            raise method_not_allowed(call.subject)
        options = read(request.options(), EvacuateCancelOptions)
        self._subresources.evacuate_cancel(call.namespace, call.name, options)
        return Reply(200, b"")

    def _shown(self, resource: Resource, request: Request, obj: Json) -> Json:
        return _form(resource, request).one(obj, self._live.now())


def asks_dry_run(call: Call, request: Request) -> bool:
    """Whether a request says so, in the query or in its options; what cannot be read does not."""
    try:
        values: list[str] | None = None
        if call.subresource == "eviction":
            eviction: Eviction = read(request.options(), Eviction)
            values = eviction.delete_options.dry_run if eviction.delete_options else None
        elif call.subresource == "evacuatecancel" or call.verb in ("delete", "deletecollection"):
            values = read(request.options(), DeleteOptions).dry_run
        return is_dry_run(request.query, values)
    except Refusal:
        return False


_NO_SUCH_PATH = Reply(404, b"404 page not found\n", TEXT)


def _general(call: Call) -> Reply:
    """Paths that are no resource's."""
    document = discovery.document(call.path)
    if document is not None and call.verb == "get":
        return Reply(200, msgspec.json.encode(document))
    if call.path.strip("/").split("/")[0] in _HEALTH:
        return Reply(200, b"ok", TEXT)
    return _NO_SUCH_PATH


def _target(call: Call, resource: Resource) -> Target:
    return Target(resource, call.namespace, call.name, call.subresource == "status")


def _form(resource: Resource, request: Request) -> Form:
    return asked_form(resource, request.accept, request.query.get("includeObject", ""))


def _has_subresource(resource: Resource, name: str) -> bool:
    return not name or name in resource.subresources or (name == "status" and resource.status)


def _allowed(call: Call, resource: Resource) -> bool:
    """Whether the method exists for what the path names."""
    if call.subresource == "status":
        return call.verb in ("get", "update", "patch")
    if resource.namespaced and not call.namespace and call.verb != "list":
        return False
    return resource.serves(call.verb)


def _delete_options(request: Request) -> tuple[DeleteOptions, bool]:
    """(options, whether it is a dry run)"""
    options: DeleteOptions = read(request.options(), DeleteOptions)
    return options, is_dry_run(request.query, options.dry_run)
