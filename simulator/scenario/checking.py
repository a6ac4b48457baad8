"""Checks a YAML document against structs and finds every fault at once, where msgspec alone stops at the
first."""

import difflib
import math
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec


class Problem(NamedTuple):
    """One fault: where it stands, what was found there, what is allowed, and the nearest allowed name if
    any."""

    path: str
    found: str
    allowed: str
    nearest: str = ""

    def __str__(self) -> str:
        hint = f" (did you mean {self.nearest}?)" if self.nearest else ""
        return f"{self.path or 'document'}: {self.found}; allowed: {self.allowed}{hint}"


class ScenarioErrors(ValueError):  # noqa: N818  several at once
    """A scenario that cannot be run. ``str()`` has one line for each problem."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(f"{source}: {problem}" for problem in problems))
        self.source = source
        self.problems = tuple(problems)


def unknown_name(path: str, name: str, allowed: Iterable[str], what: str) -> Problem:
    names = list(dict.fromkeys(allowed))
    nearest = difflib.get_close_matches(name, names, n=1)
    shown = ", ".join(names[:20]) + (f" … ({len(names)} in all)" if len(names) > 20 else "")
    return Problem(
        path, f"no {what} {name!r}", shown or f"none: there is no {what}", nearest[0] if nearest else ""
    )


def check(value: object, kind: Any, path: str = "") -> Iterator[Problem]:
    """Every fault of a value (plain data, as YAML gives it) against a type annotation."""
    faults = list(_parts(value, kind, path))
    if isinstance(value, float) and not math.isfinite(value):
        faults.append(Problem(path, str(value), describe(kind)))
    if not faults:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            faults.append(_mismatch(value, kind, path, str(error)))
    yield from faults


def describe(kind: Any) -> str:
    """A type annotation in words."""
    return " or ".join(dict.fromkeys(_describe(option, metas) for option, metas in _options(kind)))


def _parts(value: object, kind: Any, path: str) -> Iterator[Problem]:
    options = [option for option, _ in _options(kind)]
    if isinstance(value, Mapping):
        structs = [option for option in options if _is_struct(option)]
        dicts = [option for option in options if get_origin(option) is dict]
        if structs:
            yield from _struct(value, structs, path)
        elif dicts:
            yield from _mapping(value, dicts[0], path)
    elif isinstance(value, list):
        for option in options:
            arguments = get_args(option)
            if get_origin(option) is tuple and arguments[1:] == (...,):
                for position, item in enumerate(value):
                    yield from check(item, arguments[0], f"{path}[{position}]")


def _struct(value: Mapping[object, object], structs: Sequence[Any], path: str) -> Iterator[Problem]:
    tag_field = structs[0].__struct_config__.tag_field
    if tag_field is not None:
        tags = {struct.__struct_config__.tag: struct for struct in structs}
        found = value.get(tag_field)
        if not isinstance(found, str) or found not in tags:
            where = _join(path, tag_field)
            if found is None:
                yield Problem(where, "missing", ", ".join(tags))
            else:
                yield unknown_name(where, str(found), tags, tag_field)
            return
        structs = [tags[found]]
    known = {item.encode_name: item for item in msgspec.structs.fields(structs[0])}
    for key, item in value.items():
        if key in known:
            yield from check(item, known[str(key)].type, _join(path, str(key)))
        elif key != tag_field:
            yield unknown_name(_join(path, str(key)), str(key), known, "key")
    for name, field in known.items():
        if field.required and name not in value:
            yield Problem(_join(path, name), "missing", describe(field.type))


def _mapping(value: Mapping[object, object], kind: Any, path: str) -> Iterator[Problem]:
    key_kind, item_kind = get_args(kind)
    for key, item in value.items():
        try:
            msgspec.convert(key, key_kind)
        except msgspec.ValidationError:
            yield Problem(path, f"key {_shown(key)}", describe(key_kind))
        yield from check(item, item_kind, _join(path, str(key)))


def _mismatch(value: object, kind: Any, path: str, error: str) -> Problem:
    if not error.startswith(("Expected", "Invalid", "Object")):  # a struct's own check has spoken
        return Problem(path, error, describe(kind))
    names = [
        name for option, _ in _options(kind) if get_origin(option) is Literal for name in get_args(option)
    ]
    nearest = difflib.get_close_matches(value, [str(n) for n in names], n=1) if isinstance(value, str) else []
    return Problem(path, _shown(value), describe(kind), nearest[0] if nearest else "")


def _options(
    kind: Any, metas: tuple[msgspec.Meta, ...] = ()
) -> Iterator[tuple[Any, tuple[msgspec.Meta, ...]]]:
    """The alternatives of an annotation, each with the constraints that hold for it."""
    if get_origin(kind) is Annotated:
        inner, *extra = get_args(kind)
        yield from _options(inner, (*metas, *(meta for meta in extra if isinstance(meta, msgspec.Meta))))
    elif get_origin(kind) in (Union, types.UnionType):
        for option in get_args(kind):
            yield from _options(option, metas)
    else:
        yield kind, metas


def _describe(kind: Any, metas: Sequence[msgspec.Meta]) -> str:
    arguments = get_args(kind)
    if _is_struct(kind):
        return "a mapping with " + ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
    if get_origin(kind) is Literal:
        return ", ".join(map(str, arguments))
    if get_origin(kind) is tuple and arguments[1:] == (...,):
        text = f"a list of {describe(arguments[0])}"
    elif get_origin(kind) is tuple:
        text = f"[{', '.join(map(describe, arguments))}]"
    elif get_origin(kind) is dict:
        text = f"a mapping of {describe(arguments[0])} to {describe(arguments[1])}"
    else:
        names = {
            int: "a whole number",
            float: "a number",
            str: "text",
            bool: "true or false",
            type(None): "null",
        }
        text = names.get(kind, "anything")
    limits = [
        f"{sign} {limit:g}"
        for meta in metas
        for sign, limit in ((">=", meta.ge), (">", meta.gt), ("<=", meta.le), ("<", meta.lt))
        if limit is not None
    ]
    if get_origin(kind) in (tuple, dict):
        limits += [f"with at least {meta.min_length} of them" for meta in metas if meta.min_length]
        limits += [f"with at most {meta.max_length} of them" for meta in metas if meta.max_length]
    limits += [f"matching {meta.pattern}" for meta in metas if meta.pattern]
    return " ".join([text, " and ".join(limits)]).strip()


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
