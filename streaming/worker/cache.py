"""States that a worker keeps decoded between micro-batches."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from streaming.coordinator import CoordinatorState
from streaming.state import ShardState
from streaming.storage.journal import Journal, Position

S = TypeVar("S", ShardState, CoordinatorState)


class StateCache(Generic[S]):
    """Decoded states by key; the least recently used one is dropped first.

    A state serves only a journal that continues the one it was read from. A task that fails after it changed a state
    leaves a state of a journal that was never stored, so nobody uses that state.

    Args:
        max_bytes: journal bytes of the states to keep.
        replay: applies the changes of a journal to a state.
    """

    def __init__(self, max_bytes: int, replay: Callable[[S, Iterable[Any]], None]) -> None:
        self._max_bytes = max_bytes
        self._replay: Callable[[S, Iterable[Any]], None] = replay
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, int], tuple[Position, S]] = OrderedDict()

    def take(self, key: tuple[str, int], journal: Journal, new: Callable[[], S]) -> S:
        """Take the state of a key out of the cache, and return it as of the journal.

        A kept state reads the rest of the journal only; otherwise a `new` one reads all of it.
        """
        entry = self._entries.pop(key, None)
        if entry is not None:
            position, decoded = entry
            self._bytes -= position.end
            if journal.continues(position):
                self._replay(decoded, journal.changes(position))
                return decoded
        decoded = new()
        self._replay(decoded, journal.changes())
        return decoded

    def put(self, key: tuple[str, int], journal: Journal, decoded: S) -> None:
        """Keep the state of a journal, unless it is empty."""
        position = journal.position
        former = self._entries.pop(key, None)
        self._bytes -= former[0].end if former else 0
        if position.end:
            self._entries[key] = (position, decoded)
            self._bytes += position.end
        while self._bytes > self._max_bytes:
            _, (dropped, _) = self._entries.popitem(last=False)
            self._bytes -= dropped.end
