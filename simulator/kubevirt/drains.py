"""``kubectl drain``: cordon a node and ask for the eviction of its launchers, again and again, until they are gone."""

from simulator.kubevirt.evictions import Evictions, Request
from simulator.kubevirt.manifests import APP, LAUNCHER
from simulator.kubevirt.nodes import Nodes
from simulator.kubevirt.objectstore import POD, Json
from simulator.kubevirt.plane import Plane, is_finished

_RETRY_S = 5.0


class Drains:
    """Drains of people and upgrades. They send no ``requested-by``, so their migrations go before a descheduler's."""

    def __init__(self, plane: Plane, nodes: Nodes, evictions: Evictions) -> None:
        self._plane = plane
        self._nodes = nodes
        self._evictions = evictions
        self._draining: dict[str, object] = {}
        """Node -> what tells this drain from a later one of the same node."""

    def start(self, node: str) -> None:
        self._nodes.cordon(node, is_on=True)
        self._draining[node] = turn = object()

        def ask() -> None:
            if self._draining.get(node) is not turn:
                return
            launchers = self._launchers(node)
            for pod in launchers:
                if "deletionTimestamp" not in pod["metadata"]:
                    self._evictions.evict(pod["metadata"]["namespace"], pod["metadata"]["name"], Request())
            if launchers:
                self._plane.agenda.after(_RETRY_S, ask)
            else:
                del self._draining[node]

        ask()

    def stop(self, node: str) -> None:
        """Give up a drain, if there is one, and let the node take pods again. VMIs that are marked stay so."""
        self._draining.pop(node, None)
        self._nodes.cordon(node, is_on=False)

    def is_drained(self, node: str) -> bool:
        """No launcher that has not finished is left on the node."""
        return not self._launchers(node)

    def _launchers(self, node: str) -> list[Json]:
        return [
            pod
            for pod in self._plane.store.list(POD)
            if pod["spec"].get("nodeName") == node
            and (pod["metadata"].get("labels") or {}).get(APP) == LAUNCHER
            and not is_finished(pod)
        ]
