"""A controlled cluster whose descheduler keeps a log of its decisions."""

from typing import Any

from controller.cluster.view import ClusterView
from controller.descheduler import Descheduler
from controller.report import Decisions, NodePlan, NodeRow
from controller.telemetry.decisions import DecisionLog
from controller.telemetry.fanout import DescheduleFanout
from tests.controller.controlled_cluster import ControlledCluster

IDENTITY = "replica-1"


class DecidedCluster(ControlledCluster):
    """``leading`` and ``holder`` may be changed at any time."""

    def __init__(self, *vms: str, **fields: Any) -> None:
        super().__init__(**fields)
        self.leading = True
        self.holder = ""
        for name in vms:
            self.add_vm(name)
        self.log = DecisionLog(
            ClusterView.over(self.caches),
            lambda: self.descheduler.ledger,
            lambda: self.policy,
            self.clock,
            IDENTITY,
            lambda: self.leading,
            lambda: self.holder,
        )
        self.descheduler = Descheduler(
            self.caches,
            self.metrics,
            self.api,
            DescheduleFanout(self.clock, self.observer, self.log),
            lambda: self.policy,
            self.clock,
        )

    @property
    def decisions(self) -> Decisions:
        return self.log.decisions()

    def plan(self, node: str = "node-1") -> NodePlan:
        (found,) = (plan for plan in self.decisions.plans if plan.node == node)
        return found

    def row(self, node: str = "node-1") -> NodeRow:
        (found,) = (row for row in self.decisions.nodes if row.name == node)
        return found
