"""Messages on their way from the threads of the official client to loops."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Delivery:
    """A message on its way to a loop; the result says whether it is consumed."""

    message: Any
    done: Future[bool] = field(default_factory=Future)

    def end(self, *, is_consumed: bool) -> None:
        """Say whether the message is consumed; what was said first holds."""
        with suppress(InvalidStateError):
            self.done.set_result(is_consumed)


class Handover:
    """Passes messages from the threads of the official client to those that iterate."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[Delivery] = set()
        self._closed = False

    def consume(self, message: Any) -> bool:
        """Offer a message, and wait until it is consumed; False if it is not."""
        delivery = Delivery(message)
        with self._lock:
            if self._closed:
                return False
            self._open.add(delivery)
        self._queue.put(delivery)
        try:
            return delivery.done.result()
        finally:
            with self._lock:
                self._open.remove(delivery)

    def take(self, seconds: float) -> Delivery | None:
        """Return the next message, if one comes in time."""
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Give back all messages, in hand as well: the official client waits for them when it ends."""
        with self._lock:
            self._closed = True
            for delivery in self._open:
                delivery.end(is_consumed=False)
