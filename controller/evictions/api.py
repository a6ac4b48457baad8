"""The eviction subresource of the real API server: one of the few places that write to the cluster.

Every outcome becomes an ``EvictionAnswer``, by :mod:`controller.evictions.answers`. What matters beyond the status is
whether the request can have been carried out: one that never left cannot, one without a whole answer may have been.
"""

from collections.abc import Callable
from datetime import timedelta

import msgspec

from controller.cluster.objects import Pod, Vmi, decode
from controller.evictions.answers import EvictionAnswer, Verdict, interpret
from controller.evictions.entry import REQUEST_WITHIN, VmKey
from controller.lease import NotLeaderError
from informers.errors import ApiError, Garbled, NoAnswer, NotFound, Throttled, Unreachable
from informers.transport import Transport

REQUESTED_BY = {"requested-by": "sigs.k8s.io/descheduler"}
"""Makes KubeVirt queue the migration behind drains and upgrades, and note on the VMI where the eviction came from."""


class EvictionRequests:
    """Implements :class:`controller.ports.EvictionApi`. ``time_to_write``: how long a request may take by the lease."""

    def __init__(
        self,
        transport: Transport,
        time_to_write: Callable[[], timedelta],
        deadline: timedelta = REQUEST_WITHIN,
    ) -> None:
        self._transport = transport
        self._time_to_write = time_to_write
        self._deadline = deadline

    def evict(self, pod: Pod, *, dry_run: bool) -> EvictionAnswer:
        """Raises NotLeaderError, and sends nothing, without time to write; a dry run is a request, too."""
        meta = pod.metadata
        if not (left := self._time_to_write()):
            raise NotLeaderError(
                f"eviction of pod {meta.namespace}/{meta.name} not sent: the lease does not allow it"
            )
        try:
            self._transport.request(
                "POST",
                f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/eviction",
                body=msgspec.json.encode(_eviction(pod, dry_run=dry_run)),
                deadline=min(self._deadline, left),
            )
        except Unreachable as error:
            return EvictionAnswer(Verdict.UNREACHABLE, error.message)
        except ApiError as error:
            return interpret(_status_that_tells(error), error.message, error.retry_after)
        return interpret(201, "")

    def read_vmi(self, vm: VmKey) -> Vmi | None:
        """Raises ApiError, also for a 404 that is not the API server's own and so says nothing about the VMI."""
        path = f"/apis/kubevirt.io/v1/namespaces/{vm.namespace}/virtualmachineinstances/{vm.name}"
        try:
            body = self._transport.request("GET", path, deadline=self._deadline)
        except NotFound as error:
            if error.reason != "NotFound":
                raise
            return None
        try:
            return decode(body, Vmi)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Garbled(f"VMI {vm}: {error}") from None


def _status_that_tells(error: ApiError) -> int:
    """0 where the answer leaves open what became of the request."""
    if isinstance(error, NoAnswer | Garbled):
        # The head of an answer that grants says it all; of any other, the rest would have told.
        return error.status if 200 <= error.status < 300 else 0
    if isinstance(error, Throttled) and error.retry_after is None:
        # No Status, and no plea for patience: its text, which tells the kinds of 429 apart, is lost.
        return 0
    return error.status


def _eviction(pod: Pod, *, dry_run: bool) -> dict[str, object]:
    meta = pod.metadata
    options: dict[str, object] = {"preconditions": {"uid": meta.uid}}
    if dry_run:
        options["dryRun"] = ["All"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "annotations": REQUESTED_BY},
        "deleteOptions": options,
    }
