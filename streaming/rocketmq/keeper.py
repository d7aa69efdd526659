"""Thread that keeps RocketMQ's subscriptions of a client equal to its lite topics."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from streaming.errors import LiteSubscriptionRefused
from streaming.records.model import Action
from streaming.rocketmq.subscriptions import LiteRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.rocketmq.official import OfficialConsumer
    from streaming.rocketmq.subscriptions import OwnLiteTopics

log = logging.getLogger("reexpand.consumer")

_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 5.0
_IDLE_SECONDS = 0.5
"""Maximum time in seconds between two calls of `attend`."""


class Keeper:
    """Sender of subscription changes. It batches pending changes, and repeats all names periodically.

    A single thread sends all requests, so an older set of names never replaces a newer set.

    Args:
        official: the official client.
        topics: lite topics of the client.
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
        try:
            while left:
                self._official.send(left[0], names)
                del left[0]
            if is_full:
                self._official.send(LiteRequest(Action.COMPLETE_ADD, names), names)
        except Exception as error:  # noqa: BLE001 - any error of gRPC is retried
            self._topics.put_back(left)
            self._report_failure(error)
            return False
        if self._is_failing:
            log.info("RocketMQ accepts the lite subscriptions of %s again", self._official.client_id)
            self._is_failing = False
        self._report_not_received()
        return True

    def _report_failure(self, error: Exception) -> None:
        """Log the first of several failures in a row."""
        if not self._is_failing:
            is_refused = isinstance(error, LiteSubscriptionRefused)
            reason = str(error) if is_refused else f"RocketMQ's proxy does not answer: {_in_words(error)}."
            log.warning("%s Retrying.", reason)
        self._is_failing = True

    def _report_not_received(self) -> None:
        """Log new topics that match but cannot be received."""
        found = self._topics.not_received
        new = [name for name in found if name not in self._reported]
        if new:
            more = f", and {len(new) - 1} more" if len(new) > 1 else ""
            log.warning(
                "%s does not receive %r%s: %s", self._official.client_id, new[0][:100], more, found[new[0]]
            )  # fmt: skip
        self._reported = set(found)


def _in_words(error: Exception) -> str:
    """Return the details of a gRPC error, or any other error, in one line."""
    details = getattr(error, "details", None)
    return str(details()) if callable(details) else repr(error)
