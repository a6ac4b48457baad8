"""Four kinds of 429 exist, and only one of them starts a migration; a 2xx takes the VM down."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from controller.evictions.answers import NOT_THE_VMS_FAULT, PASSING, Verdict, interpret

DATA = Path(__file__).parent / "data"
WEBHOOK = 'admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: '
RECORDED = {
    "again-at-once": Verdict.IN_PROGRESS,
    "dryrun-granted": Verdict.GRANTED,
    "dryrun-not-migratable": Verdict.NOT_MIGRATABLE,
    "dryrun-triggered": Verdict.TRIGGERED,
    "forbidden": Verdict.FORBIDDEN,
    "notfound": Verdict.POD_GONE,
    "of-target": Verdict.IN_PROGRESS,
    "triggered": Verdict.TRIGGERED,
}


def test_knows_every_recorded_answer() -> None:
    assert {path.stem for path in DATA.glob("*.json")} == set(RECORDED)


@pytest.mark.parametrize(("name", "verdict"), RECORDED.items())
def test_reads_the_answers_of_a_real_api_server(name: str, verdict: Verdict) -> None:
    recorded = json.loads((DATA / f"{name}.json").read_text())
    message = recorded["body"].get("message", "")
    answer = interpret(recorded["status"], message)
    assert (answer.verdict, answer.message) == (verdict, message)


@pytest.mark.parametrize(
    ("status", "message", "verdict"),
    [
        (200, "", Verdict.GRANTED),
        (429, WEBHOOK + "Eviction request for target Pod", Verdict.MIGRATION_TARGET),
        (429, WEBHOOK + "some words of a later KubeVirt", Verdict.REFUSED),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.", Verdict.DISRUPTION_BUDGET),
        (429, "Too many requests, please try again later.", Verdict.THROTTLED),
        (429, "The disruption budget x is still being processed by the server.", Verdict.THROTTLED),
        (500, 'Internal error occurred: failed calling webhook "virt-…": EOF', Verdict.WEBHOOK_DOWN),
        (500, "etcdserver: leader changed", Verdict.NO_ANSWER),
        (500, "This pod has more than one PodDisruptionBudget, which …", Verdict.REFUSED),
        (503, "apiserver is shutting down", Verdict.NO_ANSWER),
        (401, "Unauthorized", Verdict.FORBIDDEN),
        (409, "Precondition failed: UID in precondition: a, UID in object meta: b", Verdict.POD_REPLACED),
        (422, "Invalid", Verdict.REFUSED),
        (400, "", Verdict.REFUSED),
    ],
)
def test_tells_refusals_apart(status: int, message: str, verdict: Verdict) -> None:
    assert interpret(status, message).verdict is verdict


@pytest.mark.parametrize("status", [0, 408, 502, 504])
def test_a_lost_answer_leaves_open_what_became_of_the_request(status: int) -> None:
    """Nothing came, or a proxy spoke in the API server's place: the eviction may have been carried out."""
    assert interpret(status, "upstream timed out").verdict is Verdict.NO_ANSWER


def test_keeps_how_long_the_server_asks_to_wait() -> None:
    assert interpret(429, "busy", timedelta(seconds=3)).retry_after == timedelta(seconds=3)


@pytest.mark.parametrize("status", [*range(100, 200), *range(300, 600), 0])
def test_only_a_2xx_counts_as_granted(status: int) -> None:
    assert interpret(status, "").verdict is not Verdict.GRANTED


@pytest.mark.parametrize("status", [0, 200, 201, 401, 403, 404, 409, 500, 503])
def test_only_a_429_counts_as_triggered(status: int) -> None:
    """Whatever else carries these words did not start a migration."""
    message = WEBHOOK + 'Eviction triggered evacuation of VMI "vms/vm-1"'
    assert interpret(status, message).verdict is not Verdict.TRIGGERED


def test_trouble_and_passing_states_share_nothing() -> None:
    assert not NOT_THE_VMS_FAULT & PASSING
    assert not {Verdict.TRIGGERED, Verdict.GRANTED, Verdict.NOT_MIGRATABLE, Verdict.REFUSED} & (
        NOT_THE_VMS_FAULT | PASSING
    )
