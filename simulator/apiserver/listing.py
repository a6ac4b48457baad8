"""Lists: options and what they forbid, pages of a consistent snapshot, continue tokens."""

import base64
import binascii
from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from simulator.apiserver.forms import Form
from simulator.apiserver.history import Gone, History, Snapshot
from simulator.apiserver.refusals import Cause, Refusal, Subject, bad_request, expired, invalid, too_large
from simulator.apiserver.resources import Resource
from simulator.apiserver.selectors import Selector, parse_selector
from simulator.kubevirt.objectstore import Json

_TOO_OLD_TO_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_TOO_OLD_TO_LIST = "The resourceVersion for the provided list is too old."
_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105  of the token's format
_AT_LATEST = -1
"""Version in a token that goes on with whatever there is now."""


class ListOptions(NamedTuple):
    """``metav1.ListOptions`` of a list or watch."""

    selector: Selector
    version: int | None
    """``resourceVersion``; ``None``: not given."""
    match: str
    """``resourceVersionMatch``: "", Exact, NotOlderThan."""
    limit: int
    token: str
    bookmarks: bool
    initial_events: bool | None
    """``sendInitialEvents``; ``None``: not given."""
    timeout_s: int | None


def parse_options(query: Mapping[str, str], resource: Resource, *, watch: bool) -> ListOptions:
    """Raises `Refusal`: 400 for what cannot be read, 422 for what does not go together."""
    initial = query.get("sendInitialEvents")
    options = ListOptions(
        selector=parse_selector(query.get("labelSelector", ""), query.get("fieldSelector", ""), resource),
        version=_number(query, "resourceVersion"),
        match=query.get("resourceVersionMatch", ""),
        limit=_number(query, "limit") or 0,
        token=query.get("continue", ""),
        bookmarks=is_true(query.get("allowWatchBookmarks")),
        initial_events=None if initial is None else is_true(initial),
        timeout_s=_number(query, "timeoutSeconds"),
    )
    causes = _watch_faults(options) if watch else _list_faults(options)
    if causes:
        raise invalid(Subject("", "meta.k8s.io", "", "ListOptions"), causes)
    return options


def is_true(text: str | None) -> bool:
    """A flag of a query: what is there and not false is true (``k8s.io/apimachinery/pkg/runtime``)."""
    return text is not None and text.lower() not in ("false", "0")


def list_body(history: History, form: Form, namespace: str, options: ListOptions, now: datetime) -> Json:
    """One page, or all. Raises `Refusal`."""
    kind, prefix = form.resource.kind, f"{namespace}/" if namespace else ""
    if options.token:
        token = _decode_token(options.token)
        start = prefix + token.start.removeprefix("/")
        snapshot = _to_continue(history, kind, token)
    else:
        start, snapshot = prefix, _to_begin(history, kind, options)
    first = bisect_left(snapshot.keys, start)
    end = bisect_left(snapshot.keys, f"{namespace}0") if namespace else len(snapshot.keys)  # "0" follows "/"
    objects: list[Json] = []
    position = first
    limit = (
        options.limit if options.version != 0 else 0
    )  # version 0: from the watch cache, which knows no pages
    while position < end and (not limit or len(objects) < limit):
        if options.selector.matches(obj := snapshot.objects[position]):
            objects.append(obj)
        position += 1
    metadata: Json = {"resourceVersion": str(snapshot.version)}
    if any(options.selector.matches(obj) for obj in snapshot.objects[position:end]):
        last = snapshot.keys[position - 1].removeprefix(prefix)
        metadata["continue"] = _encode_token(snapshot.version, f"/{last}\0")
        if not options.selector:
            metadata["remainingItemCount"] = end - position
    return form.many(objects, metadata, now)


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str = ""


def _encode_token(version: int, start: str) -> str:
    text = msgspec.json.encode(_Token(_TOKEN_VERSION, version, start))
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _decode_token(text: str) -> _Token:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
    except (binascii.Error, ValueError) as error:  # msgspec's errors are ValueErrors
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    if token.v != _TOKEN_VERSION:
        raise bad_request(
            f"invalid continue token: continue key is not valid: server does not recognize this encoded version "
            f"{token.v!r}"
        )
    if token.rv == 0:
        raise bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start resourceVersion "
            f"(version {_TOKEN_VERSION})"
        )
    if not token.start:
        raise bad_request(
            "invalid continue token: continue key is not valid: encoded start key empty "
            f"(version {_TOKEN_VERSION})"
        )
    return token


def _to_continue(history: History, kind: str, token: _Token) -> Snapshot:
    if token.rv == _AT_LATEST:
        return history.snapshot(kind)
    try:
        return history.snapshot(kind, token.rv)
    except Gone:
        raise expired(_TOO_OLD_TO_CONTINUE, _encode_token(_AT_LATEST, token.start)) from None


def _to_begin(history: History, kind: str, options: ListOptions) -> Snapshot:
    if options.version is None or options.version == 0:
        return history.snapshot(kind)
    if options.version > history.version:
        raise too_large(options.version, history.version)
    # Without a match rule a paged list is exact too, as it always was.
    if options.match != "Exact" and not (options.limit and not options.match):
        return history.snapshot(kind)
    try:
        return history.snapshot(kind, options.version)
    except Gone:
        raise expired(_TOO_OLD_TO_LIST) from None


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        raise bad_request(
            f'{name}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def _forbidden(field: str, why: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {why}", field)


def _list_faults(options: ListOptions) -> list[Cause]:
    """``ValidateListOptions`` of ``k8s.io/apimachinery/pkg/apis/meta/internalversion/validation``."""
    causes = []
    match, field = options.match, "resourceVersionMatch"
    if match:
        if options.version is None:
            causes.append(
                _forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided")
            )
        if options.token:
            causes.append(_forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            values = '"Exact", "NotOlderThan", ""'
            causes.append(
                Cause(
                    "FieldValueNotSupported",
                    f'Unsupported value: "{match}": supported values: {values}',
                    field,
                )
            )
        if match == "Exact" and options.version == 0:
            causes.append(
                _forbidden(field, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
            )
    if options.initial_events is not None:
        causes.append(_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_faults(options: ListOptions) -> list[Cause]:
    causes = []
    match, field = options.match, "resourceVersionMatch"
    if options.initial_events is not None and match != "NotOlderThan":
        causes.append(
            _forbidden(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        )
    if match and options.initial_events is None:
        causes.append(
            _forbidden(
                field, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
        )
    if match and match != "NotOlderThan":
        message = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
        causes.append(Cause("FieldValueNotSupported", message, field))
    return causes


def too_large_for(history: History, options: ListOptions) -> Refusal | None:
    """The refusal of a streaming list that must be newer than the server is."""
    if options.initial_events and options.version and options.version > history.version:
        return too_large(options.version, history.version)
    return None
