"""Bases of the structs that decode Kubernetes API JSON.

Go's encoder writes ``null`` for a nil list, map or pointer, so empty, ``null`` and missing mean the same.
Structs declare such a field as ``Nullable[...]`` with a default; whoever reads it never meets ``None``.
"""

from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from typing import Annotated, TypeVar

    T = TypeVar("T")
    Nullable = Annotated[T, "accepts null"]
else:

    class Nullable:
        """``Nullable[T]`` accepts ``null`` too; :class:`NullableStruct` then puts the field's default."""

        def __class_getitem__(cls, item: Any) -> Any:
            return item | None


class ApiStruct(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part of an API object: immutable, unknown fields are skipped.

    Instances come from JSON, so they hold no reference cycles and the garbage collector need not track them.
    """


class NullableStruct(ApiStruct, frozen=True):
    """An :class:`ApiStruct` that has ``Nullable`` fields."""

    def __post_init__(self) -> None:
        for name, default in _nullable_fields(type(self)):
            if getattr(self, name) is None:
                msgspec.structs.force_setattr(self, name, default() if callable(default) else default)


@cache
def _nullable_fields(struct: type[NullableStruct]) -> tuple[tuple[str, Any], ...]:
    """Names and defaults (or default factories) of the fields that accept ``null`` but never hold it."""
    found: list[tuple[str, Any]] = []
    for field in msgspec.structs.fields(struct):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory
        if NoneType in getattr(field.type, "__args__", ()) and default not in (None, msgspec.NODEFAULT):
            found.append((field.name, default))
    return tuple(found)


def put(struct: ApiStruct, **values: object) -> None:
    """Set fields of a struct from its own ``__post_init__``, before anybody else has seen it."""
    for name, value in values.items():
        msgspec.structs.force_setattr(struct, name, value)
