"""Thread that keeps RocketMQ's subscriptions of one client in step with its lite topics."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from streaming.consumers.rocketmq_subscriptions import LiteRequest
from streaming.errors import LiteSubscriptionRefused
from streaming.events.model import Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.consumers.rocketmq_official import OfficialConsumer
    from streaming.consumers.rocketmq_subscriptions import OwnLiteTopics

log = logging.getLogger("reexpand.consumer")

_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 5.0
_IDLE_SECONDS = 0.5
"""Longest time in seconds between two calls of what is done besides."""


class Keeper:
    """Sends changes as they come, all that have gathered in one request each way, and all names from time to time.

    One thread sends everything, so that an older set never overtakes a newer name.

    Args:
        official: the official client.
        topics: lite topics of the client.
        besides: called at least twice a second.
        sync_seconds: time between two repetitions of all names.
    """

    def __init__(
        self, official: OfficialConsumer, topics: OwnLiteTopics, besides: Callable[[], None], sync_seconds: float
    ) -> None:
        self._official, self._topics, self._besides = official, topics, besides
        self._sync_seconds = sync_seconds
        self._trouble = ""
        self._told: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lite topics of {official.client_id}", daemon=True)

    def start(self) -> None:
        """Send an empty set, and then what comes: a proxy or group that does not fit is told at the start.

        Raises:
            LiteSubscriptionRefused: RocketMQ does not answer, or takes no lite subscription.
        """
        try:
            self._clear()
        except LiteSubscriptionRefused:
            raise
        except Exception as error:
            raise LiteSubscriptionRefused(f"RocketMQ's proxy does not answer ({error!r}).") from error
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and take all names from RocketMQ."""
        self._stop.set()
        self._topics.pending.set()
        if self._thread.ident is None:
            return
        self._thread.join()
        try:
            self._clear()
        except Exception as error:  # noqa: BLE001 - whatever gRPC raises, the client ends
            log.warning("RocketMQ learns of the end of %s by its time-out only: %r", self._official.client_id, error)

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
                # RocketMQ may have lost the names meanwhile, so the next request has all of them.
                wait, sync_at = min(2 * wait, _LONGEST_RETRY_SECONDS), 0.0
            self._besides()

    def _send(self, *, is_full: bool) -> bool:
        """Send what has changed, and all names if it is time; return True unless it has to be tried again."""
        self._topics.limit(self._official.quota, self._official.max_name_bytes)
        left = self._topics.take()
        names = self._topics.names
        try:
            while left:
                self._official.send(left[0], names)
                del left[0]
            if is_full:
                self._official.send(LiteRequest(Action.COMPLETE_ADD, names), names)
        except Exception as error:  # noqa: BLE001 - whatever gRPC raises, it is tried again
            self._topics.put_back(left)
            is_refused = isinstance(error, LiteSubscriptionRefused)
            self._tell(str(error) if is_refused else f"RocketMQ's proxy does not answer: {_in_words(error)}.")
            return False
        if self._trouble:
            log.info("RocketMQ takes the lite subscriptions of %s again", self._official.client_id)
            self._trouble = ""
        self._tell_not_received()
        return True

    def _tell(self, trouble: str) -> None:
        """Log the first failure of a row of them."""
        if not self._trouble:
            log.warning("%s It is tried again.", trouble)
        self._trouble = trouble

    def _tell_not_received(self) -> None:
        """Log the topics that match and cannot be received, when there are new ones."""
        found = self._topics.not_received
        new = [name for name in found if name not in self._told]
        if new:
            more = f", and {len(new) - 1} more" if len(new) > 1 else ""
            log.warning(
                "%s does not receive %r%s: %s", self._official.client_id, new[0][:100], more, found[new[0]]
            )  # fmt: skip
        self._told = set(found)


def _in_words(error: Exception) -> str:
    """Return the reason of an error of gRPC, whose own text has several lines, or any other error."""
    details = getattr(error, "details", None)
    return str(details()) if callable(details) else repr(error)
