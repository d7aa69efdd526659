"""States that a worker process keeps decoded between micro-batches."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from streaming.coordinator import CoordinatorState
from streaming.state.state import ShardState
from streaming.storage.journal import Journal, Position

CACHE_BYTES = 256 * 1024 * 1024
"""How many bytes of journals a worker process keeps decoded."""

S = TypeVar("S", ShardState, CoordinatorState)


class StateCache(Generic[S]):
    """Decoded states by key, the least recently used dropped first.

    A state is used only for a journal that continues what it stands for. A task that fails after it changed a state
    leaves an entry for a journal that was never stored, which therefore is never used.

    Args:
        max_bytes: of journals to keep decoded.
        catch_up: makes changes in a state.
    """

    def __init__(self, max_bytes: int, catch_up: Callable[[S, Iterable[Any]], None]) -> None:
        self._max_bytes = max_bytes
        self._catch_up: Callable[[S, Iterable[Any]], None] = catch_up
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, int], tuple[Position, S]] = OrderedDict()

    def take(self, key: tuple[str, int], journal: Journal, fresh: S) -> S:
        """Removes the state of a key and returns what its journal says.

        A kept state only reads on from where it was; else all is read into `fresh`, a state of nothing.
        """
        entry = self._entries.pop(key, None)
        if entry is not None:
            position, decoded = entry
            self._bytes -= position.end
            if journal.continues(position):
                self._catch_up(decoded, journal.changes(position))
                return decoded
        self._catch_up(fresh, journal.changes())
        return fresh

    def put(self, key: tuple[str, int], journal: Journal, decoded: S) -> None:
        """Keeps the state that a journal amounts to; an empty one is not worth it."""
        position = journal.position
        former = self._entries.pop(key, None)
        self._bytes -= former[0].end if former else 0
        if position.end:
            self._entries[key] = (position, decoded)
            self._bytes += position.end
        while self._bytes > self._max_bytes:
            _, (dropped, _) = self._entries.popitem(last=False)
            self._bytes -= dropped.end

    def clear(self) -> None:
        """Forgets all states, as a new worker process has."""
        self._entries.clear()
        self._bytes = 0
