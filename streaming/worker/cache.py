"""States that a worker keeps decoded between micro-batches."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from streaming.storage.journal import Journal, Position

STATE_CACHE_BYTES: Final = 1024 * 1024 * 1024
"""Memory of the states of a worker process, where no setting says otherwise."""


class Decoded(Protocol):
    """A decoded state."""

    def memory_bytes(self, text_bytes: int) -> int:
        """Return the estimated memory of the state whose journal has so many bytes."""


S = TypeVar("S", bound=Decoded)


class _Kept(NamedTuple):
    """A state as of a position in its journal, and its estimated memory in bytes."""

    position: Position
    decoded: Decoded
    memory_bytes: int


class StateCache:
    """Decoded states by key; the least recently used one is dropped first.

    A state serves only a journal that continues the one it was read from. A task that fails after it changed a state
    leaves a state of a journal that was never stored, so nobody uses that state.

    Args:
        max_bytes: memory of the states to keep.

    Attributes:
        memory_bytes: estimated memory of those that are kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.memory_bytes = 0
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()

    def take(
        self,
        key: tuple[str, int],
        journal: Journal,
        new: Callable[[], S],
        replay: Callable[[S, Iterable[Any]], None],
    ) -> S:
        """Take the state of a key out of the cache, and return it as of the journal.

        A kept state reads the rest of the journal only; otherwise a `new` one reads all of it.

        Args:
            key: parent and number; always of the same kind of state.
            journal: its journal.
            new: makes an empty state.
            replay: applies the changes of a journal to a state.
        """
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.memory_bytes -= kept.memory_bytes
            if journal.continues(kept.position):
                decoded = cast("S", kept.decoded)
                replay(decoded, journal.changes(kept.position))
                return decoded
        decoded = new()
        replay(decoded, journal.changes())
        return decoded

    def put(self, key: tuple[str, int], journal: Journal, decoded: Decoded) -> None:
        """Keep the state of a journal, unless it is empty."""
        position = journal.position
        former = self._kept.pop(key, None)
        self.memory_bytes -= former.memory_bytes if former else 0
        if position.end:
            self._kept[key] = _Kept(position, decoded, decoded.memory_bytes(position.end))
            self.memory_bytes += self._kept[key].memory_bytes
        while self.memory_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.memory_bytes -= dropped.memory_bytes
