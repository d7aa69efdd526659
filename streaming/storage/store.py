"""States by key: decoded ones that a worker keeps between micro-batches, and the bytes that Spark keeps.

`StateStore.open` and `StateStore.value` translate between the bytes of a key and its journal. `StateStore.load` and
`StateStore.save` translate between a journal and the decoded state. A journal is immutable, so a run that fails leaves
nothing to undo.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from streaming.errors import StateCorrupted
from streaming.storage.journal import Archive, Journal, Position
from streaming.tuning import DEFAULT_TUNING, Tuning

Key = tuple[str, int]
"""Parent topic and number of a shard, or of a bucket of the coordinator."""

ADOPTED: Final = "adopted"
"""Name, in the archive of a key, of the state bytes with which the key begins."""

STATE_CACHE_BYTES: Final = 1024 * 1024 * 1024
"""Default memory of the decoded states of a worker process."""


class Decoded(Protocol):
    """A decoded state."""

    def memory_bytes(self, text_bytes: int) -> int:
        """Return the estimated memory of the state whose journal has so many bytes."""

    def apply(self, delta: Any) -> None:
        """Make the changes of a micro-batch."""


S = TypeVar("S", bound=Decoded)
D = TypeVar("D")


class _Kept(NamedTuple):
    """A state as of a position in its journal, and its estimated memory in bytes."""

    position: Position
    decoded: Decoded
    memory_bytes: int


class Archives(Protocol):
    """Archives of all keys; equal ones lead to the same parts."""

    def of(self, parent: str, number: int) -> Archive:
        """Return the archive of one key."""


class Kind(NamedTuple, Generic[S, D]):
    """One kind of states.

    Attributes:
        new: makes an empty state.
        replay: applies the changes of a journal to a state.
        append: returns a journal with one more change, given the state after the change.
    """

    new: Callable[[], S]
    replay: Callable[[S, Iterable[Any]], None]
    append: Callable[[Journal, S, D], Journal]


class Opened(NamedTuple):
    """State of a key before a micro-batch."""

    value: bytes | None
    journal: Journal


class StateStore:
    """States of the keys of a job in one process; of the decoded ones, the least recently used is dropped first.

    A decoded state is used only for a journal that continues the journal from which the state was read. A task that
    fails after it changed a state leaves a state of a journal that was never stored, and no later task uses it.

    Args:
        archives: places of the parts of states; None keeps each state in its value.
        adopts: keys begin with the states in their archives.
        cache_bytes: memory of the decoded states to keep.
        tuning: sizes and thresholds.

    Attributes:
        memory_bytes: estimated memory of the decoded states.
    """

    def __init__(
        self,
        archives: Archives | None = None,
        *,
        adopts: bool = False,
        cache_bytes: int = STATE_CACHE_BYTES,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        self.archives = archives
        self.memory_bytes = 0
        self._max_bytes = cache_bytes
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._adopts = adopts
        self._tuning = tuning

    def open(self, key: Key, value: bytes | None, batch: int = 0) -> Opened:
        """Read the bytes of a key.

        Raises:
            StateCorrupted: the bytes differ from the bytes that were written.
        """
        archive = None if self.archives is None else self.archives.of(*key)
        if value is None and self._adopts and archive is not None:
            with suppress(StateCorrupted):  # the key begins without a state
                value = archive.read(ADOPTED)
        return Opened(value, Journal.open(value, archive, batch, self._tuning))

    def load(self, kind: Kind[S, Any], key: Key, journal: Journal) -> S:
        """Take the state of a journal out of the store. `save` or `keep` returns it.

        A decoded state reads only the rest of the journal. Otherwise a new state reads all of it.
        """
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.memory_bytes -= kept.memory_bytes
            decoded = cast("S", kept.decoded)
            if journal.position == kept.position:
                return decoded  # nearly always
            if journal.continues(kept.position):
                kind.replay(decoded, journal.changes(kept.position))
                return decoded
        decoded = kind.new()
        kind.replay(decoded, journal.changes())
        return decoded

    def save(self, kind: Kind[S, D], key: Key, journal: Journal, decoded: S, delta: D | None) -> tuple[Journal, int]:
        """Apply a change to a state; return the journal with it, and the bytes of the journal.

        A change of None changes nothing.
        """
        if delta is not None:
            decoded.apply(delta)
            journal = kind.append(journal, decoded, delta)
        size = self.keep(key, journal, decoded)
        return journal.swept() if journal.retired and journal.has_left_parts else journal, size

    def keep(self, key: Key, journal: Journal, decoded: Decoded) -> int:
        """Return the state of a journal to the store, unless it is empty; return the bytes of the journal."""
        position = journal.position
        former = self._kept.pop(key, None)
        self.memory_bytes -= former.memory_bytes if former else 0
        if position.end:
            self._kept[key] = _Kept(position, decoded, decoded.memory_bytes(position.end))
            self.memory_bytes += self._kept[key].memory_bytes
        while self.memory_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self.memory_bytes -= dropped.memory_bytes
        return position.end

    def value(self, opened: Opened, journal: Journal) -> bytes | None:
        """Return the bytes to store for a key; None for none."""
        if journal is opened.journal:
            return opened.value
        # A key that has become empty must not begin with its adopted state again.
        is_adopted = self._adopts and opened.value is not None
        return journal.kept if is_adopted else journal.stored
