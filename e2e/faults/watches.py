"""Watches and lists: rows of the fault matrix."""

from e2e.faults.deeds import all_of, control, end_faults, fault, watches, without_streams
from e2e.faults.row import Row
from e2e.faults.signs import grows, shows_value

ROWS = (
    Row(
        name="dropped",
        kind="watch",
        begins=watches("break"),
        shows=(grows("informer_errors_total"),),
        one_of_its_kind=True,
    ),
    Row(
        name="half-open, silent for ever",
        kind="watch",
        begins=watches("stall"),
        ends=watches("break"),
        shows=(shows_value("informer_last_contact_seconds", lambda s: s > 12, resource="vmis"),),
        lasts_s=20,
    ),
    Row(
        name="garbled",
        kind="watch",
        begins=watches("garble"),
        shows=(grows("informer_errors_total"), grows("informer_errors_total", "soft-tainter")),
    ),
    Row(
        name="compacted, 410 as an event",
        kind="watch",
        begins=control("compact", expire_watches=True),
        shows=(grows("informer_errors_total"),),
    ),
    Row(
        name="compacted, 410 as a status",
        kind="watch",
        begins=all_of(fault("watch", do="expire-status"), watches("break")),
        ends=end_faults,
        shows=(grows("informer_errors_total"),),
    ),
    Row(
        name="empty streams that end at once",
        kind="watch",
        begins=all_of(fault("watch", do="empty"), watches("end")),
        ends=end_faults,
        shows=(grows("informer_errors_total"),),
        lasts_s=8,
    ),
    Row(
        name="list in pages, one of which is lost",
        kind="watch",
        begins=all_of(without_streams, fault("cut", verbs=["list"], continued=True, half=True)),
        ends=end_faults,
        shows=(grows("informer_errors_total", resource="launchers"),),
        scenario="pages",
    ),
    Row(
        name="list in pages, whose continue token has expired",
        kind="watch",
        begins=all_of(without_streams, fault("error", status=410, verbs=["list"], continued=True)),
        ends=end_faults,
        shows=(grows("informer_errors_total", resource="launchers"),),
        scenario="pages",
    ),
    Row(
        name="list is garbage",
        kind="watch",
        begins=all_of(without_streams, fault("garbage", verbs=["list"])),
        ends=end_faults,
        shows=(grows("informer_errors_total", resource="launchers"),),
    ),
)
