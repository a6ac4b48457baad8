"""Patches as the API server applies them."""

from typing import Any

import pytest

from simulator.apiserver.patches import (
    MismatchError,
    PatchError,
    json_patch,
    merge_patch,
    strategic_merge_patch,
)

OBJECT = {
    "metadata": {"name": "n", "labels": {"a": "1"}, "finalizers": ["x"]},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]},
}


def op(kind: str, path: str, *value: Any, **more: str) -> dict[str, Any]:
    return {"op": kind, "path": path, **({"value": value[0]} if value else {}), **more}


@pytest.mark.parametrize(
    ("operations", "path", "expected"),
    [
        ([op("add", "/metadata/labels/b~1c", "2")], ("metadata", "labels"), {"a": "1", "b/c": "2"}),
        (
            [op("add", "/spec/taints/-", {"key": "b"})],
            ("spec", "taints"),
            [{"key": "a", "effect": "NoSchedule"}, {"key": "b"}],
        ),
        (
            [op("add", "/spec/taints/0", {"key": "b"})],
            ("spec", "taints"),
            [{"key": "b"}, {"key": "a", "effect": "NoSchedule"}],
        ),
        (
            [op("replace", "/spec/taints/0/key", "z")],
            ("spec", "taints"),
            [{"key": "z", "effect": "NoSchedule"}],
        ),
        ([op("replace", "/spec/unschedulable", True)], ("spec", "unschedulable"), True),
        ([op("remove", "/spec/taints/0")], ("spec", "taints"), []),
        (
            [op("move", "/metadata/labels/b", **{"from": "/metadata/labels/a"})],
            ("metadata", "labels"),
            {"b": "1"},
        ),
        (
            [op("copy", "/metadata/labels/b", **{"from": "/metadata/labels/a"})],
            ("metadata", "labels"),
            {"a": "1", "b": "1"},
        ),
        ([op("test", "/spec/podCIDR", None), op("add", "/spec/podCIDR", "x")], ("spec", "podCIDR"), "x"),
    ],
)
def test_json_patches(operations: list[Any], path: tuple[str, str], expected: Any) -> None:
    assert json_patch(OBJECT, operations)[path[0]][path[1]] == expected


@pytest.mark.parametrize(
    "operation",
    [
        op("test", "/metadata/name", "other"),
        op("test", "/metadata/labels/zzz", ""),
        op("remove", "/spec/nothing"),
        op("add", "/nothing/below", 1),
        op("add", "/spec/taints/7", {}),
        op("move", "/a", **{"from": "/nothing"}),
    ],
)
def test_a_json_patch_that_does_not_fit_the_object(operation: Any) -> None:
    with pytest.raises(MismatchError):
        json_patch(OBJECT, [operation])


@pytest.mark.parametrize("operations", [{}, ["add"], [op("paint", "/a")], [{"op": "add"}]])
def test_what_is_no_json_patch(operations: Any) -> None:
    with pytest.raises(PatchError, match=r"operations|Unexpected kind"):
        json_patch(OBJECT, operations)


def test_merge_patches_take_out_what_is_null_and_replace_lists() -> None:
    patched = merge_patch(OBJECT, {"metadata": {"labels": {"a": None, "b": "2"}}, "spec": {"taints": []}})
    assert patched["metadata"] == {"name": "n", "labels": {"b": "2"}, "finalizers": ["x"]}
    assert patched["spec"] == {"taints": []}


def test_strategic_patches_merge_conditions_by_type_and_add_finalizers() -> None:
    patch = {
        "metadata": {"finalizers": ["y"]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "New", "status": "True"}]},
    }
    patched = strategic_merge_patch(OBJECT, patch)
    assert patched["metadata"]["finalizers"] == ["x", "y"]
    assert patched["status"]["conditions"] == [
        {"type": "Ready", "status": "False"},
        {"type": "Disk", "status": "False"},
        {"type": "New", "status": "True"},
    ]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}, ["Disk"]),
        ({"status": {"conditions": [{"type": "Only"}, {"$patch": "replace"}]}}, ["Only"]),
        (
            {
                "status": {
                    "$setElementOrder/conditions": [{"type": "Disk"}, {"type": "Ready"}],
                    "conditions": [],
                }
            },
            ["Disk", "Ready"],
        ),
        ({"status": {"$patch": "replace", "conditions": [{"type": "Mine"}]}}, ["Mine"]),
        ({"status": {"$retainKeys": ["phase"], "phase": "x"}}, None),
    ],
)
def test_strategic_directives(patch: Any, expected: list[str] | None) -> None:
    conditions = strategic_merge_patch(OBJECT, patch)["status"].get("conditions")
    assert (conditions and [condition["type"] for condition in conditions]) == expected


def test_a_strategic_patch_takes_values_out_of_a_plain_list() -> None:
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}
    assert strategic_merge_patch(OBJECT, patch)["metadata"]["finalizers"] == []


def test_no_patch_changes_the_object_itself() -> None:
    """Whoever got an object from the store may keep it."""
    before = repr(OBJECT)
    json_patch(OBJECT, [op("add", "/spec/taints/-", {"key": "b"}), op("remove", "/metadata/labels/a")])
    merge_patch(OBJECT, {"metadata": {"labels": {"a": None}}})
    strategic_merge_patch(OBJECT, {"status": {"conditions": [{"type": "Ready", "status": "?"}]}})
    assert repr(OBJECT) == before
