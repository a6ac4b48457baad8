"""The policy in force: from a ConfigMap or a file, read again on demand, swapped whole.

A text with a fault never takes the place of the last good policy, nor does a text that has gone; before the first good
one there is no policy.
"""

import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace

from controller.cluster.resources import ConfigMap
from controller.policy.document import MAX_CHARACTERS
from controller.policy.model import Policy
from controller.policy.parse import CONFIG_MAP_KEY, parse_policy
from controller.policy.problems import PolicyErrors, Problem, describe, nearest_name
from informers.store import Lister

log = logging.getLogger(__name__)

_MAX_BYTES = 4 * MAX_CHARACTERS
_TEXT = f"a policy as text under the key {CONFIG_MAP_KEY}"


@dataclass(frozen=True, slots=True)
class PolicyState:
    """``policy``: the last good one, ``None`` before there was any. ``problems``: why what is there now is not it."""

    policy: Policy | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def valid(self) -> bool:
        return self.policy is not None and not self.problems


class UnavailableError(Exception):
    """There is no text to parse; ``problem`` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class PolicyWatch:
    """Reads when told to: ``reload`` by one thread at a time (a queue key's handler); the rest from any thread.

    ``source`` names the place in messages. ``read`` returns the text or raises UnavailableError.
    """

    def __init__(self, source: str, read: Callable[[], str]) -> None:
        self.source = source
        self._read = read
        self._text: str | None = None
        self._state = PolicyState()
        self._subscribers: list[Callable[[PolicyState], None]] = []

    @classmethod
    def of_config_map(cls, config_maps: Lister[ConfigMap], namespace: str, name: str) -> "PolicyWatch":
        """Of what the cache shows; reload it when the informer has synced and whenever the ConfigMap changes."""
        source = f"ConfigMap {namespace}/{name}"
        return cls(source, lambda: _text_of(config_maps.get(namespace, name)))

    @classmethod
    def of_file(cls, path: str) -> "PolicyWatch":
        """Of a file, opened afresh each time, since a mounted ConfigMap changes by swapping symbolic links."""
        return cls(path, lambda: _read_file(path))

    def current(self) -> Policy | None:
        """The policy in force; the same object until another one is."""
        return self._state.policy

    @property
    def state(self) -> PolicyState:
        return self._state

    def subscribe(self, callback: Callable[[PolicyState], None]) -> None:
        """Call back with each state that differs from the one before, on the reloading thread. Must not raise."""
        self._subscribers.append(callback)

    def reload(self) -> bool:
        """Look at the source again. True if another policy is in force now."""
        before = self._state
        try:
            text = self._read()
        except UnavailableError as error:
            self._text = None
            self._swap(replace(before, problems=(error.problem,)))
            return False
        if text != self._text:
            self._text = text
            self._swap(self._parsed(text, before.policy))
        return self._state.policy is not before.policy

    def _parsed(self, text: str, before: Policy | None) -> PolicyState:
        try:
            policy = parse_policy(text, source=self.source)
        except PolicyErrors as errors:
            return PolicyState(before, errors.problems)
        # One that means the same is no other: handlers compare by identity.
        return PolicyState(before if before is not None and before.digest == policy.digest else policy)

    def _swap(self, state: PolicyState) -> None:
        before, self._state = self._state, state
        if state == before:
            return
        for problem in state.problems:
            log.error("%s%s: %s", self.source, f":{problem.line}" if problem.line else "", problem)
        if state.policy is not None and state.policy is not before.policy:
            log.info("%s: policy %s in force, %s", self.source, state.policy.digest, state.policy.mode)
        for callback in self._subscribers:
            callback(state)


def _text_of(config_map: ConfigMap | None) -> str:
    if config_map is None:
        raise UnavailableError(Problem("", "nothing of that name", f"a ConfigMap with {_TEXT}"))
    text = config_map.data.get(CONFIG_MAP_KEY)
    if text is None:
        nearest = nearest_name(CONFIG_MAP_KEY, config_map.data)
        raise UnavailableError(Problem(f'data."{CONFIG_MAP_KEY}"', describe(None), _TEXT, nearest))
    return text


def _read_file(path: str) -> str:
    allowed = "a regular file with a policy"
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnavailableError(Problem("", "no regular file", allowed))
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        found = f"no readable file ({error.strerror or error})"
        raise UnavailableError(Problem("", found, allowed)) from None
    if len(content) > _MAX_BYTES:
        raise UnavailableError(Problem("", f"more than {MAX_CHARACTERS} characters", "a shorter text"))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = f"bytes that are no UTF-8, at {error.start}"
        raise UnavailableError(Problem("", found, "UTF-8 text")) from None


def _open_without_waiting(path: str, flags: int) -> int:
    """A pipe would keep its opener waiting for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)
