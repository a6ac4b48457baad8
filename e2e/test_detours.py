"""What the programs ask the API server only where the usual way is barred."""

from e2e import chart
from e2e.lab import ACTS_WITHIN_S, STARTS_WITHIN_S, Lab

LISTED = {
    "descheduler": {
        "configmaps",
        "kubevirts",
        "nodes",
        "pods",
        "virtualmachineinstancemigrations",
        "virtualmachineinstances",
    },
    "soft-tainter": {"configmaps", "nodes"},
}


def test_an_api_server_without_streaming_lists_is_asked_for_plain_ones(lab: Lab) -> None:
    """As Kubernetes up to 1.33 is, unless told otherwise: it refuses a watch that is to begin with a list."""
    lab.start("crowd")
    lab.set_policy(lab.policy())
    lab.cluster.fault("error", verbs=["watch"], status=400, message="sendInitialEvents is forbidden")
    programs = {program: lab.launch_installed(program) for program in chart.PROGRAMS}
    for program, one in programs.items():
        lab.until(
            lambda one=one, resources=LISTED[program]: resources <= _listed(lab, one.account),  # type: ignore[misc]
            STARTS_WITHIN_S,
            f"{one.account} has listed everything",
        )
    lab.cluster.end_faults()

    for one in programs.values():
        lab.until(one.is_ready, STARTS_WITHIN_S, f"{one.account} is ready")
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "a VM moves")
    lab.until(lab.cluster.own_taints, ACTS_WITHIN_S, "a node is tainted")


def _listed(lab: Lab, account: str) -> set[str]:
    return {
        r.resource for r in lab.cluster.requests() if r.by(account) and (r.verb, r.status) == ("list", 200)
    }


def test_a_vm_whose_eviction_shows_no_sign_is_looked_up_once_past_the_watch(lab: Lab) -> None:
    """The watches of VMIs and VMIMs have died without a word. The eviction is not given up, nor sent again."""
    lab.start("heavy")
    lab.set_policy(lab.policy({"evictions": {"acknowledgeTimeout": "5s"}}))
    (program,) = lab.run("descheduler")
    lab.leader()
    deaf = ["virtualmachineinstances", "virtualmachineinstancemigrations"]
    lab.cluster.control("watches", do="stall", resources=deaf)
    lab.until_truth(lambda truth: truth.own_moves, ACTS_WITHIN_S, "a VM moves")

    (asked,) = lab.until(lambda: _looked_up(lab), ACTS_WITHIN_S, "its VMI is read")

    assert asked == lab.cluster.truth().own_moves[0].vm
    lab.cluster.control("watches", do="resume", resources=deaf)
    lab.until_balanced()
    assert program.process.exit_code is None


def _looked_up(lab: Lab) -> list[str]:
    return [
        f"{r.namespace}/{r.name}"
        for r in lab.cluster.requests()
        if r.by("descheduler-0") and (r.verb, r.resource, r.status) == ("get", "virtualmachineinstances", 200)
    ]


def test_what_is_said_again_counts_up_its_event(lab: Lab) -> None:
    """And makes no second one."""
    lab.start("crowd")
    lab.set_policy(lab.policy())
    lab.run("descheduler")
    lab.leader()
    for times in (1, 2):
        lab.set_policy(lab.policy({"mode": "Automatik"}))
        _until_said(lab, "PolicyInvalid", times)
        lab.set_policy(lab.policy())
        _until_said(lab, "PolicyValid", times)


def _until_said(lab: Lab, reason: str, times: int) -> None:
    lab.until(lambda: _said(lab, reason) == [times], ACTS_WITHIN_S, f"{reason} is said {times} times")


def _said(lab: Lab, reason: str) -> list[int]:
    """How often, of each Event of that reason."""
    events = lab.cluster.items(f"/api/v1/namespaces/{chart.NAMESPACE}/events")
    return [max(event.get("count", 1), 1) for event in events if event["reason"] == reason]
