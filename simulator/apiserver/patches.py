"""The three kinds of patches, applied to JSON objects. Pure: the object is not changed, parts of it are shared.

JSON patches as evanphx/json-patch applies them for the API server, which is milder than RFC 6902: ``replace`` of what
is absent adds it, and ``test`` takes absent for null. Strategic merge patches as in
``k8s.io/apimachinery/pkg/util/strategicpatch``, for the lists that the served kinds have.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from simulator.kubevirt.objectstore import Json

_ABSENT: Final = object()

_MERGE_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "imagePullSecrets": "name",
    "ownerReferences": "uid",
    "volumes": "name",
}
"""Lists that a strategic merge patch merges item by item, and the key of an item; all others it replaces."""
_MERGED_VALUES: Final = frozenset({"finalizers"})
"""Lists of plain values that it adds to."""


class PatchError(Exception):
    """The patch cannot be read, or does not fit the object."""


class MismatchError(PatchError):
    """A test of a JSON patch does not hold, or one of its paths does not exist."""


def json_patch(obj: Json, operations: object) -> Json:
    """Raises `MismatchError`, `PatchError`."""
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        raise PatchError("a JSON patch is a list of operations")
    result = copy.deepcopy(obj)
    for operation in operations:
        result = _apply(result, operation)
    return result


def merge_patch(obj: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def strategic_merge_patch(obj: Json, patch: object) -> Json:
    """Raises `PatchError`."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch is an object")
    return _strategic(obj, patch)


def _strategic(obj: Json, patch: Json) -> Json:
    directive = patch.get("$patch", "merge")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive != "merge":
        raise PatchError(f"Unknown patch type: {directive}")
    result = dict(obj)
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$"):
            _apply_list_directive(result, key, value)
        elif value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            before = result.get(key)
            result[key] = _strategic(before if isinstance(before, dict) else {}, value)
        elif isinstance(value, list):
            result[key] = _merged_list(key, result.get(key) or [], value)
        else:
            result[key] = value
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            _reorder(result, key.partition("/")[2], order)
    return result


def _apply(document: Any, operation: Mapping[str, Any]) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    if kind not in ("add", "remove", "replace", "move", "copy", "test") or not isinstance(path, str):
        raise PatchError(f"Unexpected kind: {kind}")
    if kind == "test":
        found = _find(document, path)
        if (None if found is _ABSENT else found) != operation.get("value"):
            raise MismatchError(f"testing value {path} failed")
        return document
    if kind in ("move", "copy"):
        value = _find(document, str(operation.get("from", "")))
        if value is _ABSENT:
            raise MismatchError(f"{kind}: the path {operation.get('from')} does not exist")
        if kind == "move":
            document = _put(document, str(operation["from"]), _ABSENT, insert=False)
        return _put(document, path, copy.deepcopy(value), insert=True)
    if kind == "remove":
        if _find(document, path) is _ABSENT:
            raise MismatchError(f"remove: the path {path} does not exist")
        return _put(document, path, _ABSENT, insert=False)
    return _put(document, path, copy.deepcopy(operation.get("value")), insert=kind == "add")


def _parts(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _find(document: Any, path: str) -> Any:
    for part in _parts(path):
        if isinstance(document, dict):
            document = document.get(part, _ABSENT)
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        else:
            return _ABSENT
    return document


def _put(document: Any, path: str, value: Any, *, insert: bool) -> Any:
    """Set or, with ``_ABSENT``, take out what stands at a path; the document is our own copy."""
    parts = _parts(path)
    if not parts:
        return value
    parent = _find(document, "".join(f"/{p.replace('~', '~0').replace('/', '~1')}" for p in parts[:-1]))
    last = parts[-1]
    if isinstance(parent, dict):
        if value is _ABSENT:
            del parent[last]
        else:
            parent[last] = value
    elif isinstance(parent, list):
        _put_item(parent, len(parent) if last == "-" else last, value, insert=insert)
    else:
        raise MismatchError(f"the parent of {path} does not exist")
    return document


def _put_item(items: list[Any], index: int | str, value: Any, *, insert: bool) -> None:
    position = int(index) if isinstance(index, int) or index.isdigit() else -1
    if not 0 <= position <= len(items) - (0 if insert else 1):
        raise MismatchError(f"index {index} is out of bounds")
    if value is _ABSENT:
        del items[position]
    elif insert:
        items.insert(position, value)
    else:
        items[position] = value


def _merged_list(name: str, before: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    if name in _MERGED_VALUES:
        return [*before, *(value for value in patch if value not in before)]
    merge_key = _MERGE_KEYS.get(name)
    if merge_key is None:
        return list(patch)
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    merged: dict[Any, Json] = {item.get(merge_key): item for item in before}
    for item in patch:
        if merge_key not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {merge_key}")
        if item.get("$patch") == "delete":
            merged.pop(item[merge_key], None)
        else:
            merged[item[merge_key]] = _strategic(merged.get(item[merge_key], {}), item)
    return list(merged.values())


def _apply_list_directive(result: Json, directive: str, values: Any) -> None:
    kind, _, name = directive.partition("/")
    if kind == "$deleteFromPrimitiveList" and name in result:
        result[name] = [value for value in result[name] if value not in values]
    elif kind not in ("$deleteFromPrimitiveList", "$setElementOrder", "$retainKeys", "$patch"):
        raise PatchError(f"Unknown directive: {directive}")


def _reorder(result: Json, name: str, order: Sequence[Any]) -> None:
    """Bring a merged list into the patch's order; what it does not name keeps its place at the end."""
    merge_key = _MERGE_KEYS.get(name)
    wanted = [item.get(merge_key) if isinstance(item, dict) else item for item in order]

    def rank(item: Any) -> int:
        key = item.get(merge_key) if isinstance(item, dict) else item
        return wanted.index(key) if key in wanted else len(wanted)

    if name in result:
        result[name] = sorted(result[name], key=rank)
