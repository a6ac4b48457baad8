"""Subresources that are requests: evictions, and KubeVirt's evacuatecancel."""

from collections.abc import Mapping, Sequence

from simulator.apiserver.refusals import Refusal, Subject, bad_request, not_found, success
from simulator.apiserver.resources import SUBRESOURCES_GROUP
from simulator.apiserver.shapes import (
    DeleteOptions,
    EvacuateCancelOptions,
    Eviction,
    Metadata,
    Preconditions,
)
from simulator.kubevirt.control_plane import ControlPlane
from simulator.kubevirt.evictions import DISRUPTION_BUDGET, EvictionAnswer
from simulator.kubevirt.objectstore import VMI, Json, NotFound, ObjectStore, at
from simulator.record import AskedBy

DESCHEDULER = "sigs.k8s.io/descheduler"
_TEXT = "text/plain; charset=utf-8"


class Throttled(Exception):  # noqa: N818  it is an answer
    """429 by the API server's own flow control, which answers in plain text."""

    content_type = _TEXT

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class Subresources:
    def __init__(self, control_plane: ControlPlane, store: ObjectStore) -> None:
        self._control_plane = control_plane
        self._store = store

    def evict(self, namespace: str, pod: str, eviction: Eviction, query: Mapping[str, str]) -> Json:
        """``POST …/pods/{pod}/eviction``. Raises `Refusal`, `Throttled`."""
        if (eviction.api_version, eviction.kind) != ("policy/v1", "Eviction"):
            raise bad_request(
                f"the API version in the data ({eviction.api_version}) does not match the expected API version "
                "(policy/v1)"
            )
        metadata, options = eviction.metadata or Metadata(), eviction.delete_options or DeleteOptions()
        if metadata.name not in (None, "", pod):
            raise bad_request(f"name in URL does not match name in Eviction object: {pod} vs {metadata.name}")
        requested_by = (metadata.annotations or {}).get("requested-by", "")
        asked_by: AskedBy = "rebalancer" if requested_by == DESCHEDULER else "other"
        answer = self._control_plane.evict(
            namespace,
            pod,
            dry_run=is_dry_run(query, options.dry_run),
            uid=(options.preconditions or Preconditions()).uid or "",
            requested_by=requested_by,
            asked_by=asked_by,
        )
        if answer.status >= 400:
            raise _refused(answer, Subject("pods", "", pod, "Pod"))
        return success(answer.status)

    def evacuate_cancel(self, namespace: str, name: str, options: EvacuateCancelOptions) -> None:
        """``PUT …/virtualmachineinstances/{name}/evacuatecancel``: empty the VMI's mark.

        ``options.evacuationNodeName``: only if this is the node that it says. Raises `Refusal`.
        """
        vmi = self._store.get(VMI, namespace, name)
        if vmi is None:
            raise not_found(Subject("virtualmachineinstances", "kubevirt.io", name, VMI))
        marked, expected = at(vmi, "status", "evacuationNodeName"), options.evacuation_node_name
        if not marked:
            return
        if expected and expected != marked:
            message = (
                "Internal error occurred: the server rejected our request due to an error in our request"
            )
            raise Refusal(500, message, details={"causes": [{"message": message}]})
        if is_dry_run({}, options.dry_run):
            return
        try:
            self._control_plane.evacuate_cancel(namespace, name)
        except NotFound:
            raise not_found(Subject("virtualmachineinstances", SUBRESOURCES_GROUP, name, VMI)) from None


def is_dry_run(query: Mapping[str, str], options: Sequence[str] | None) -> bool:
    """``dryRun=All`` in the query or in the options. Raises `Refusal` (422) for other values."""
    asked = [value for value in (query.get("dryRun", ""), *(options or ())) if value]
    if any(value != "All" for value in asked):
        message = f'dryRun: Unsupported value: "{asked[0]}": supported values: "All"'
        raise Refusal(422, f' "" is invalid: {message}'.strip(), details={})
    return bool(asked)


def _refused(answer: EvictionAnswer, subject: Subject) -> Exception:
    """A webhook's No has neither reason nor details; other refusals do."""
    if answer.status == 429 and answer.retry_after_s is not None:
        return Throttled(answer.message, answer.retry_after_s)
    if answer.status == 429:
        if answer.message == DISRUPTION_BUDGET:
            cause = {
                "reason": "DisruptionBudget",
                "message": "The disruption budget needs 1 healthy pods and has 1",
            }
            return Refusal(429, answer.message, details={"causes": [cause]})
        return Refusal(429, answer.message, reason="")
    if answer.status == 500:
        cause = {"message": answer.message.removeprefix("Internal error occurred: ")}
        return Refusal(500, answer.message, details={"causes": [cause]})
    return Refusal(answer.status, answer.message, details=subject.details())
