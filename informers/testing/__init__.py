"""For tests of whatever is built on this package: a source that misbehaves on demand, and time by hand."""

from informers.testing.clock import ManualClock, step
from informers.testing.follower import Follower
from informers.testing.source import FakeSource, FakeStream, OldVersion

__all__ = ["FakeSource", "FakeStream", "Follower", "ManualClock", "OldVersion", "step"]
