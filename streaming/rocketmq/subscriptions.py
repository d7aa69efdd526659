"""Lite topics of a client, and the changes to send to RocketMQ."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.records.model import Action
from streaming.records.op import Op
from streaming.records.updates import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.client import Change

MAX_REQUEST_NAMES = 300
"""Maximum number of names in a request for changes. The proxy of 5.5.0 rejects more than the quota plus 300."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_DEATHS = frozenset({Cause.TOPIC_DELETED.value, Cause.TOPIC_EXPIRED.value})
_REFUSING_SECONDS = 600.0
"""Time in seconds within which messages of a lost topic may still arrive."""


class LiteRequest(NamedTuple):
    """A request to RocketMQ that changes the lite topics of the client.

    Attributes:
        option: offset option of a PARTIAL_ADD: type and value.
    """

    action: Action
    names: tuple[str, ...]
    option: tuple[str, int] | None = None


class OwnLiteTopics:
    """Thread-safe set of a client's lite topics, with its pending changes.

    Only the last change of a topic is sent. An addition is sent even if RocketMQ has the topic, because RocketMQ drops
    the subscriptions of topics that end.

    Args:
        clock: monotonic time in seconds.

    Attributes:
        pending: set while there are changes to take.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pending = threading.Event()
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, None] = {}
        self._waiting: dict[str, None] = {}
        self._invalid: dict[str, str] = {}
        self._changes: dict[str, tuple[Op, tuple[str, int] | None]] = {}
        self._lost: dict[str, float] = {}
        self._quota: int | None = None
        self._max_name_bytes = 64

    def limit(self, quota: int | None, max_name_bytes: int) -> None:
        """Set RocketMQ's limits: topics per client (None for no limit), and the length of a name."""
        with self._lock:
            self._quota, self._max_name_bytes = quota, max_name_bytes
            self._promote()

    def apply(self, change: Change) -> None:
        """Apply a change of the client's rows."""
        name = change.row.lite_topic
        with self._lock:
            if change.op is Op.ADD:
                self._add(name, _option(change.row.further.get("offsetOption")))
            else:
                self._remove(name, is_dead=change.row.cause in _DEATHS)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that the client subscribes to, in order."""
        with self._lock:
            return tuple(self._held)

    @property
    def not_received(self) -> dict[str, str]:
        """Lite topics that match but are not subscribed to, each with the reason."""
        with self._lock:
            over = f"beyond the quota of {self._quota} lite topics"
            return {**self._invalid, **dict.fromkeys(self._waiting, over)}

    def is_lost(self, name: str) -> bool:
        """Return True if the client has lost a topic to another client, or has unsubscribed from it."""
        with self._lock:
            return name in self._lost

    def take(self) -> list[LiteRequest]:
        """Take the pending changes as requests: additions by offset option, then removals."""
        with self._lock:
            self.pending.clear()
            changes, self._changes = self._changes, {}
            self._forget_lost()
        added: dict[tuple[str, int] | None, list[str]] = {}
        for name, (op, option) in changes.items():
            if op is Op.ADD:
                added.setdefault(option, []).append(name)
        removed = [name for name, (op, _) in changes.items() if op is Op.REMOVE]
        return [
            *(
                LiteRequest(Action.PARTIAL_ADD, part, option)
                for option, names in added.items()
                for part in _parts(names)
            ),
            *(LiteRequest(Action.PARTIAL_REMOVE, part) for part in _parts(removed)),
        ]

    def put_back(self, requests: Iterable[LiteRequest]) -> None:
        """Restore changes that could not be sent, except for topics that have changed since."""
        with self._lock:
            for action, names, option in requests:
                op = Op.REMOVE if action is Action.PARTIAL_REMOVE else Op.ADD
                for name in names:
                    self._changes.setdefault(name, (op, option))
            if self._changes:
                self.pending.set()

    def _add(self, name: str, option: tuple[str, int] | None) -> None:
        self._lost.pop(name, None)
        flaw = self._flaw(name)
        if flaw is not None:
            self._invalid[name] = flaw
        elif name in self._held or self._has_room():
            self._held[name] = None
            self._note(name, Op.ADD, option)
        else:
            self._waiting[name] = None

    def _remove(self, name: str, *, is_dead: bool) -> None:
        self._invalid.pop(name, None)
        if name in self._waiting:
            del self._waiting[name]
        elif name in self._held:
            del self._held[name]
            self._note(name, Op.REMOVE, None)
            self._promote()
            if not is_dead:
                self._lost[name] = self._clock()

    def _promote(self) -> None:
        """Subscribe to waiting topics while the quota allows it."""
        while self._waiting and self._has_room():
            name = next(iter(self._waiting))
            del self._waiting[name]
            self._held[name] = None
            self._note(name, Op.ADD, None)

    def _has_room(self) -> bool:
        return self._quota is None or len(self._held) < self._quota

    def _note(self, name: str, op: Op, option: tuple[str, int] | None) -> None:
        self._changes[name] = op, option
        self.pending.set()

    def _flaw(self, name: str) -> str | None:
        if _NAME.fullmatch(name) is None:
            return "RocketMQ's proxy accepts only letters, digits, _ and - in a name"
        if len(name) > self._max_name_bytes:
            return f"RocketMQ's proxy accepts names of at most {self._max_name_bytes} bytes, got {len(name)}"
        return None

    def _forget_lost(self) -> None:
        until = self._clock() - _REFUSING_SECONDS
        for name in [name for name, since in self._lost.items() if since < until]:
            del self._lost[name]


def _parts(names: list[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(names[start : start + MAX_REQUEST_NAMES]) for start in range(0, len(names), MAX_REQUEST_NAMES))


def _option(given: dict[str, Any] | None) -> tuple[str, int] | None:
    """Return the offset option of an update, if it is one that RocketMQ supports."""
    if not given or type(given.get("value")) is not int:
        return None
    return given["type"], given["value"]
