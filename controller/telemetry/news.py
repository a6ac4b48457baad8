"""What has been said lately, so that it is said once an hour and not each time."""

from collections.abc import Hashable
from threading import Lock

from cachetools import TTLCache

from informers.clock import Clock

SAY_AGAIN_S = 3600.0
MOST_SUBJECTS = 20_000


class News:
    """Thread-safe. Of more than ``MOST_SUBJECTS`` the longest unsaid are forgotten, and are news again."""

    def __init__(self, clock: Clock) -> None:
        self._said: TTLCache[Hashable, object] = TTLCache(MOST_SUBJECTS, SAY_AGAIN_S, clock.monotonic)
        self._lock = Lock()  # guards it

    def is_news(self, subject: Hashable, said: object = True) -> bool:
        """Whether something else, or nothing, was last said of the subject within the hour. Notes that it is said."""
        with self._lock:
            if self._said.get(subject) == said:
                return False
            self._said[subject] = said
            return True

    def unsay(self, subject: Hashable) -> None:
        """It was not said after all."""
        with self._lock:
            self._said.pop(subject, None)
