"""What the API server's answer to an Eviction means for the VM: pure, from status and message.

Source of the rules: KubeVirt's pod-eviction admitter and evacuation controller, and the API server's eviction
subresource. Four different 429 exist, and only one of them means that a live migration was started; a 2xx for a
running launcher means that the VM goes down.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class Verdict(StrEnum):
    TRIGGERED = "Triggered"
    """Evacuation was (in a dry run: would be) triggered: the VM will live-migrate."""
    IN_PROGRESS = "InProgress"
    """The VMI is marked already, by whoever."""
    GRANTED = "Granted"
    """2xx: the pod goes. For a running launcher that means the VM goes down."""
    NOT_MIGRATABLE = "NotMigratable"
    MIGRATION_TARGET = "MigrationTarget"
    """The pod is the target of somebody's migration."""
    DISRUPTION_BUDGET = "DisruptionBudget"
    """Older KubeVirt: marked already, or its webhook is down and the VM's PDB held."""
    THROTTLED = "Throttled"
    """The API server asks for patience; says nothing about the pod."""
    WEBHOOK_DOWN = "WebhookDown"
    POD_GONE = "PodGone"
    POD_REPLACED = "PodReplaced"
    """The precondition on the UID failed: another pod has the name now."""
    FORBIDDEN = "Forbidden"
    UNREACHABLE = "Unreachable"
    """Nothing was sent."""
    NO_ANSWER = "NoAnswer"
    """The request may or may not have been carried out."""
    REFUSED = "Refused"
    """Any other refusal."""


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    verdict: Verdict
    message: str
    retry_after: timedelta | None = None


NOT_THE_VMS_FAULT = frozenset(
    {Verdict.THROTTLED, Verdict.WEBHOOK_DOWN, Verdict.UNREACHABLE, Verdict.FORBIDDEN, Verdict.NO_ANSWER}
)
"""Trouble with the API: no other VM would fare better, and this one may be asked again."""
PASSING = frozenset({Verdict.POD_GONE, Verdict.POD_REPLACED, Verdict.IN_PROGRESS, Verdict.MIGRATION_TARGET})
"""The stores were behind; they will show it."""

_TOO_MANY = (
    ("Evacuation in progress", Verdict.IN_PROGRESS),
    ("Eviction triggered evacuation of VMI", Verdict.TRIGGERED),
    ("is not live-migratable", Verdict.NOT_MIGRATABLE),
    ("Eviction request for target Pod", Verdict.MIGRATION_TARGET),
    ("violate the pod's disruption budget", Verdict.DISRUPTION_BUDGET),
    ("denied the request", Verdict.REFUSED),
)
"""Substrings of the 429 messages, in the order in which they must be looked for: the first contains the second, and
whatever else an admission webhook denies is a verdict on the pod, not throttling."""

_NO_ANSWER = frozenset({0, 408})


def interpret(status: int, message: str, retry_after: timedelta | None = None) -> EvictionAnswer:
    """Map an HTTP status (0: no answer came) and the ``Status`` object's message."""
    return EvictionAnswer(_verdict(status, message), message, retry_after)


def _verdict(status: int, message: str) -> Verdict:
    if status in _NO_ANSWER:
        return Verdict.NO_ANSWER
    if 200 <= status < 300:
        return Verdict.GRANTED
    if status == 429:
        return next((verdict for text, verdict in _TOO_MANY if text in message), Verdict.THROTTLED)
    if status >= 500:
        if "more than one PodDisruptionBudget" in message:
            return Verdict.REFUSED  # the answer for this pod, however often it is asked
        # Of any other trouble nobody knows how far the request had come.
        return Verdict.WEBHOOK_DOWN if "failed calling webhook" in message else Verdict.NO_ANSWER
    return {
        401: Verdict.FORBIDDEN,
        403: Verdict.FORBIDDEN,
        404: Verdict.POD_GONE,
        409: Verdict.POD_REPLACED,
    }.get(status, Verdict.REFUSED)
