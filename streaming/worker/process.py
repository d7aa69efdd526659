"""The worker of a Python process, which keeps states from task to task, and the garbage collector of the process."""

import gc
import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from streaming.worker.worker import Worker, WorkerConfig

_kept: list[Worker] = []
"""The worker of this process; each task brings an equal copy of the settings that it was made for."""


def kept(config: WorkerConfig) -> Worker:
    """Return the worker of this process."""
    if not _kept or _kept[0].config != config:
        _kept[:] = [Worker(config)]
    return _kept[0]


@contextmanager
def without_collection() -> Iterator[None]:
    """Hold the cyclic garbage collector off, and hide long-lived objects from it.

    A micro-batch makes many objects and no cycles; scanning them again and again took a quarter of the time. Besides,
    PySpark's worker collects all of its memory after each task: with Spark's own modules alone that took 0.15 s a
    task, two thirds of the worker's CPU at 20 events a second, and it would grow with the decoded states. Frozen
    objects are not scanned. Once in 10,000 calls all are, in case a library left cycles among them.
    """
    gc.disable()
    try:
        yield
    finally:
        if next(_CALLS) % _CALLS_BETWEEN_COLLECTIONS == 0:
            gc.unfreeze()
            gc.collect()
        gc.freeze()
        gc.enable()


_CALLS = itertools.count(1)
_CALLS_BETWEEN_COLLECTIONS = 10_000


T = TypeVar("T")

_ENTRIES_BETWEEN_BEATS: Final = 256


class Watchdog:
    """Timer of the operating system that ends the process with SIGALRM after seconds without progress; 0 for none.

    No thread and no Python handler: both would wait for a loop in C that holds the interpreter's lock. Progress is an
    output, or some hundred entries that were read or applied.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def arm(self) -> None:
        """Restart the timer."""
        if self.seconds:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def disarm(self) -> None:
        """Stop the timer while the process waits for others."""
        if self.seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def follow(self, entries: Iterator[T], count: int) -> Iterator[T]:
        """Yield the same entries, and note progress."""
        return self._beating(entries) if self.seconds and count > _ENTRIES_BETWEEN_BEATS else entries

    def _beating(self, entries: Iterator[T]) -> Iterator[T]:
        for number, entry in enumerate(entries, 1):
            if not number % _ENTRIES_BETWEEN_BEATS:
                self.arm()
            yield entry


NO_WATCHDOG: Final = Watchdog(0)
"""Watchdog that does nothing."""
