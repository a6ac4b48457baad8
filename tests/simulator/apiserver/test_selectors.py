"""Label and field selectors."""

import pytest

from simulator.apiserver.refusals import Refusal
from simulator.apiserver.resources import BY_PATH
from simulator.apiserver.selectors import parse_fields, parse_labels

PODS = BY_PATH["", "v1", "pods"]
LABELS = {"app": "web", "tier": "front", "empty": "", "size": "12", "kubevirt.io": "virt-launcher"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier!=back", True),
        ("app = web , tier = front", True),
        ("app!=web", False),
        ("other!=web", True),
        ("app in (web,db)", True),
        ("app in (db)", False),
        ("app notin (db)", True),
        ("other notin (db)", True),
        ("app", True),
        ("other", False),
        ("!other", True),
        ("!app", False),
        ("empty=", True),
        ("empty=,app", True),
        ("empty in (,x)", True),
        ("size>11", True),
        ("size<12", False),
        ("app>1", False),
        ("kubevirt.io=virt-launcher", True),
        ("kubevirt.io!=virt-launcher", False),
    ],
)
def test_label_selectors(text: str, matches: bool) -> None:
    assert all(requirement.holds(LABELS) for requirement in parse_labels(text)) is matches


@pytest.mark.parametrize(
    "text", ["app=web,", "=web", "app in web", "app in (web", "a b", "a>x", "!", "a=b c", "(a)"]
)
def test_refuses_what_is_no_label_selector(text: str) -> None:
    with pytest.raises(Refusal, match="unable to parse requirement") as caught:
        parse_labels(text)
    assert caught.value.status == 400


POD = {
    "metadata": {"name": "a", "namespace": "vms"},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("spec.nodeName=n1", True),
        ("spec.nodeName=n1,status.phase!=Failed,status.phase!=Succeeded", True),
        ("spec.nodeName==n2", False),
        ("metadata.name=a,metadata.namespace=vms", True),
        ("spec.schedulerName=", True),
        (r"spec.nodeName!=n\,1", True),
    ],
)
def test_field_selectors(text: str, matches: bool) -> None:
    assert all(requirement.holds(POD) for requirement in parse_fields(text, PODS)) is matches


def test_a_flag_that_is_absent_is_false() -> None:
    (requirement,) = parse_fields("spec.unschedulable=false", BY_PATH["", "v1", "nodes"])
    assert requirement.holds({"spec": {}})
    assert not requirement.holds({"spec": {"unschedulable": True}})


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        ("pods", "field label not supported: x"),
        ("configmaps", '"x" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ],
)
def test_refuses_unknown_fields(resource: str, message: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_fields("x=y", BY_PATH["", "v1", resource])
    assert caught.value.message == message


def test_refuses_what_is_no_field_selector() -> None:
    with pytest.raises(Refusal, match="can't understand"):
        parse_fields("nonsense", PODS)
