"""Lite topics of a client, and the thread that keeps RocketMQ's subscriptions equal to them."""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Any

from streaming.errors import LiteSubscriptionRefused
from streaming.records.model import Action
from streaming.records.op import Op
from streaming.records.updates import Cause
from streaming.rocketmq.requests import LiteRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.client import Change
    from streaming.rocketmq.official import OfficialConsumer

log = logging.getLogger("reexpand.consumer")

_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 5.0
_IDLE_SECONDS = 0.5
"""Maximum time in seconds between two calls of `attend`."""

MAX_REQUEST_NAMES = 300
"""Maximum number of names in a request for changes. The proxy of 5.5.0 rejects more than the quota plus 300."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_DEATHS = frozenset({Cause.TOPIC_DELETED.value, Cause.TOPIC_EXPIRED.value})
_REFUSING_SECONDS = 600.0
"""Time in seconds within which messages of a lost topic may still arrive."""


class OwnLiteTopics:
    """Thread-safe set of a client's lite topics, with its pending changes.

    Only the last change of a topic is sent. An addition is sent even if RocketMQ has the topic, because RocketMQ drops
    the subscriptions of topics that end.

    Attributes:
        pending: set while there are changes to take.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pending = threading.Event()
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, None] = {}
        self._waiting: dict[str, tuple[str, int] | None] = {}
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
            until = self._clock() - _REFUSING_SECONDS
            self._lost = {name: since for name, since in self._lost.items() if since >= until}
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
            self._waiting[name] = option

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
            option = self._waiting.pop(name)
            self._held[name] = None
            self._note(name, Op.ADD, option)

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


def _parts(names: list[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(names[start : start + MAX_REQUEST_NAMES]) for start in range(0, len(names), MAX_REQUEST_NAMES))


def _option(given: dict[str, Any] | None) -> tuple[str, int] | None:
    """Return the offset option of an update, if it is one that RocketMQ supports."""
    if not given or type(given.get("value")) is not int:
        return None
    return given["type"], given["value"]


class Keeper:
    """Sender of subscription changes. It batches pending changes, and repeats all names periodically.

    A single thread sends all requests, so an older set of names never replaces a newer set.

    Args:
        attend: called at least twice per second.
        sync_seconds: interval of repeating all names.
    """

    def __init__(
        self, official: OfficialConsumer, topics: OwnLiteTopics, attend: Callable[[], None], sync_seconds: float
    ) -> None:
        self._official, self._topics, self._attend = official, topics, attend
        self._sync_seconds = sync_seconds
        self._is_failing = False
        self._reported: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lite topics of {official.client_id}", daemon=True)

    def start(self) -> None:
        """Send an empty set to check proxy and group, then start the thread.

        Raises:
            LiteSubscriptionRefused: RocketMQ does not answer, or rejects lite subscriptions.
        """
        try:
            self._clear()
        except LiteSubscriptionRefused:
            raise
        except Exception as error:
            raise LiteSubscriptionRefused(f"RocketMQ's proxy does not answer ({error!r}).") from error
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and remove all names from RocketMQ."""
        self._stop.set()
        self._topics.pending.set()
        if self._thread.ident is None:
            return
        self._thread.join()
        try:
            self._clear()
        except Exception as error:  # noqa: BLE001 - the client closes after any error of gRPC
            log.warning("RocketMQ removes %s only after its timeout: %r", self._official.client_id, error)

    def _clear(self) -> None:
        self._official.send(LiteRequest(Action.COMPLETE_ADD, ()), ())

    def _run(self) -> None:
        sync_at, wait = time.monotonic() + self._sync_seconds, _RETRY_SECONDS
        while not self._stop.is_set():
            self._topics.pending.wait(max(0.0, min(_IDLE_SECONDS, sync_at - time.monotonic())))
            if self._stop.is_set():
                return
            self._official.renew()
            is_full = time.monotonic() >= sync_at
            if self._send(is_full=is_full):
                wait = _RETRY_SECONDS
                sync_at = time.monotonic() + self._sync_seconds if is_full else sync_at
            else:
                self._stop.wait(wait)
                # RocketMQ may have lost the names meanwhile, so the next request contains all of them.
                wait, sync_at = min(2 * wait, _LONGEST_RETRY_SECONDS), 0.0
            self._attend()

    def _send(self, *, is_full: bool) -> bool:
        """Send pending changes, and all names if `is_full`. Return False to retry."""
        self._topics.limit(self._official.quota, self._official.max_name_bytes)
        left = self._topics.take()
        names = self._topics.names
        refused: list[LiteRequest] = []
        failure: Exception | None = None
        try:
            while left:
                try:
                    self._official.send(left[0], names)
                except LiteSubscriptionRefused as error:  # removals behind it may make room
                    failure = error
                    refused.append(left[0])
                del left[0]
            if is_full and not refused:
                self._official.send(LiteRequest(Action.COMPLETE_ADD, names), names)
        except Exception as error:  # noqa: BLE001 - any error of gRPC is retried
            failure = error
        if failure is not None:
            self._topics.put_back([*refused, *left])
            self._report_failure(failure)
            return False
        if self._is_failing:
            log.info("RocketMQ accepts the lite subscriptions of %s again", self._official.client_id)
            self._is_failing = False
        self._report_not_received()
        return True

    def _report_failure(self, error: Exception) -> None:
        """Log the first of several failures in a row."""
        if not self._is_failing:
            details = getattr(error, "details", None)  # of an error of gRPC
            reason = f"RocketMQ's proxy does not answer: {details() if callable(details) else repr(error)}."
            log.warning("%s Retrying.", error if isinstance(error, LiteSubscriptionRefused) else reason)
        self._is_failing = True

    def _report_not_received(self) -> None:
        found = self._topics.not_received
        new = [name for name in found if name not in self._reported]
        if new:
            more = f", and {len(new) - 1} more" if len(new) > 1 else ""
            log.warning(
                "%s does not receive %r%s: %s", self._official.client_id, new[0][:100], more, found[new[0]]
            )  # fmt: skip
        self._reported = set(found)
