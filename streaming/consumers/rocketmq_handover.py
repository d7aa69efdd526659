"""Messages on their way from the threads of the official client to loops."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any, NamedTuple


class Delivery(NamedTuple):
    """A message on its way to a loop; the result says that it is consumed."""

    message: Any
    done: Future[bool]


class Handover:
    """Passes messages from the threads of the official client to those that iterate."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
        self._closed = threading.Event()

    def consume(self, message: Any) -> bool:
        """Offer a message, and wait until it is consumed; False if it is not."""
        delivery = Delivery(message, Future())
        self._queue.put(delivery)
        if self._closed.is_set():
            self.close()
        return delivery.done.result()

    def take(self, seconds: float) -> Delivery | None:
        """Return the next message, if one comes in time."""
        try:
            return self._queue.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Give back all messages that nobody has taken."""
        self._closed.set()
        while True:
            try:
                self._queue.get_nowait().done.set_result(False)
            except queue.Empty:
                return
