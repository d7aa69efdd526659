"""Watchdog of a worker: ends the process when the work on one key makes no progress."""

import signal
from collections.abc import Iterator
from typing import Final, Protocol

from streaming.worker.reading import Entry

_ENTRIES_BETWEEN_BEATS: Final = 256


class Observer(Protocol):
    """Observer of the work on a key."""

    def follow(self, entries: Iterator[Entry], count: int) -> Iterator[Entry]:
        """Yield the same entries.

        Args:
            entries: entries of a key, when they are read.
            count: number of rows from which they come.
        """


class Watchdog:
    """Timer of the operating system that ends the process with SIGALRM.

    No thread and no Python handler: both would wait for a loop in C that holds the interpreter's lock. Progress is an
    output, or some hundred entries that were read.

    Args:
        seconds: time without progress; 0 for no watchdog.

    Attributes:
        seconds: as above.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def arm(self) -> None:
        """Start the time anew."""
        if self.seconds:
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def disarm(self) -> None:
        """Stop the time: the process waits for others."""
        if self.seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def follow(self, entries: Iterator[Entry], count: int) -> Iterator[Entry]:
        """Yield the same entries, and note progress."""
        return self._beating(entries) if self.seconds and count > _ENTRIES_BETWEEN_BEATS else entries

    def _beating(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        for number, entry in enumerate(entries, 1):
            if not number % _ENTRIES_BETWEEN_BEATS:
                self.arm()
            yield entry


NO_WATCHDOG: Final = Watchdog(0)
"""Watchdog that does nothing."""
