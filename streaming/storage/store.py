"""States by key: decoded ones that a worker keeps between micro-batches, and the bytes that Spark keeps.

`StateStore.open` and `StateStore.value` translate between the bytes of a key and its journal. `StateStore.load` and
`StateStore.save` translate between a journal and the decoded state. A journal is immutable, so a run that fails leaves
nothing to undo.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from streaming.errors import StateCorrupted
from streaming.storage.journal import START, Archive, Journal, Key, Position
from streaming.storage.snapshots import Content, Snapshots
from streaming.tuning import DEFAULT_TUNING, Tuning

log = logging.getLogger("reexpand")

SHORTCUT_ERRORS: tuple[type[Exception], ...] = (Exception,)
"""Errors for which a key loses its snapshots, and no entry is blamed. Tests raise them."""

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


_LATER_SHARE: Final = 1 / 8
"""Least share of a journal that is appended between two snapshots. A lower share costs more writes, a higher one slower
starts."""

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

    def snapshots(self, parent: str, number: int) -> Snapshots | None:
        """Return the snapshots of one key; None if there is no place for them."""


class SnapshotCodec(NamedTuple, Generic[S]):
    """How large states become snapshots.

    Attributes:
        min_bytes: smallest journal whose state has snapshots, and what is appended between two of them, in bytes.
        saves_memory: returns True if a snapshot of a state saves so much memory that it does not wait for `min_bytes`.
        content: returns the content of a snapshot; None if the state is too large.
        settle: makes a state use the arrays of a snapshot of itself.
        restore: gives an empty state the content of a snapshot.
    """

    min_bytes: int
    saves_memory: Callable[[S], bool]
    content: Callable[[S], Content | None]
    settle: Callable[[S, Content], None]
    restore: Callable[[S, Content], None]


def _is_due(codec: SnapshotCodec[S], state: S, size: int, appended: int) -> bool:
    """Return True if a state with a journal of `size` bytes needs a snapshot after `appended` bytes."""
    return appended >= _LATER_SHARE * size and (appended >= codec.min_bytes or codec.saves_memory(state))


class _Place(NamedTuple, Generic[S]):
    """Where and how a key has snapshots."""

    codec: SnapshotCodec[S]
    folder: Snapshots


class Kind(NamedTuple, Generic[S, D]):
    """One kind of states.

    Attributes:
        new: makes an empty state.
        replay: applies the changes of a journal to a state.
        append: returns a journal with one more change, given the state after the change.
        snapshots: how large states become snapshots; None for never.
    """

    new: Callable[[], S]
    replay: Callable[[S, Iterable[Any]], None]
    append: Callable[[Journal, S, D], Journal]
    snapshots: SnapshotCodec[S] | None = None


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
        self._failed: dict[Key, int] = {}  # size of a journal whose snapshot could not be written
        self._distrusted: set[Key] = set()  # keys whose snapshots raised an exception in this process
        self._mapped: dict[Key, Position] = {}  # position of the snapshot that a state uses
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

        A decoded state reads only the rest of the journal. Otherwise a new state reads all of it, or a snapshot and
        the rest. A decoded state that reads past a snapshot of another worker shares its arrays.
        """
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.memory_bytes -= kept.memory_bytes
            if journal.position == kept.position:
                return cast("S", kept.decoded)  # nearly always
        if kept is not None and journal.continues(kept.position):
            decoded, start = cast("S", kept.decoded), kept.position
        else:
            decoded, start = kind.new(), START
            self._mapped.pop(key, None)
        decoded, start = self._share(kind, key, journal, decoded, start)
        kind.replay(decoded, journal.changes(start))
        return decoded

    def _share(self, kind: Kind[S, Any], key: Key, journal: Journal, decoded: S, start: Position) -> tuple[S, Position]:
        """Bring a state to the latest snapshot behind its position, if there is one; return it and its position."""
        place, former = self._snapshots(kind, key, journal.position.end), self._mapped.get(key)
        latest = place and place.folder.latest(journal, former)
        if place is None or latest is None or latest == former or latest.end < start.end:
            return decoded, start
        is_new = start == START
        if not is_new:
            kind.replay(decoded, journal.changes(start, latest))
            start = latest
        try:
            content = place.folder.read(latest)
            if content is None:
                return decoded, start
            (place.codec.restore if is_new else place.codec.settle)(decoded, content)
        except SHORTCUT_ERRORS as error:
            self._distrust(key, error)
            return kind.new(), START
        self._mapped[key] = latest
        return decoded, latest

    def save(self, kind: Kind[S, D], key: Key, journal: Journal, decoded: S, delta: D | None) -> tuple[Journal, int]:
        """Apply a change to a state; return the journal with it, and the bytes of the journal.

        A change of None changes nothing.
        """
        had_snapshot = key in self._mapped
        if delta is not None:
            decoded.apply(delta)
            former, journal = journal, kind.append(journal, decoded, delta)
            can_be_compacted = journal.parts[:1] != former.parts[:1] if former.parts else key in self._mapped
            if can_be_compacted and not journal.continues(former.position):
                self._forget_snapshots(key)
        size = self.keep(key, journal, decoded)
        if delta is not None and key in self._kept:
            try:
                self._take(kind, key, journal, size, decoded)
            except SHORTCUT_ERRORS as error:
                self._distrust(key, error)
        if had_snapshot and key not in self._mapped and key in self._kept:
            self._drop(key)  # its arrays are in a removed file
        return journal.swept() if journal.retired and journal.has_left_parts else journal, size

    def _snapshots(self, kind: Kind[S, Any], key: Key, size: int) -> _Place[S] | None:
        """Return the snapshots of a key; None if its journal has few bytes, or there is no place for them."""
        codec = kind.snapshots
        if codec is None or size < codec.min_bytes or self.archives is None or key in self._distrusted:
            return None
        folder = self.archives.snapshots(*key)
        return folder and _Place(codec, folder)

    def _take(self, kind: Kind[S, Any], key: Key, journal: Journal, size: int, decoded: S) -> None:
        """Take a snapshot of a large state if one is due, and let the state use it."""
        place, former = self._snapshots(kind, key, size), self._mapped.get(key)
        attempted = max(former.end if former else 0, self._failed.get(key, 0))
        if place is None or not _is_due(place.codec, decoded, size, size - attempted):
            return
        content = place.codec.content(decoded)
        if content is None or not place.folder.write(journal.position, content, former):
            self._failed[key] = size
            return
        self._failed.pop(key, None)
        mapped = place.folder.read(journal.position)
        if mapped is not None:
            place.codec.settle(decoded, mapped)
            self._mapped[key] = journal.position
            self.keep(key, journal, decoded)  # which takes less memory now

    def _distrust(self, key: Key, error: Exception) -> None:
        """Use no snapshots of a key any more, and drop its state, which one may have half changed."""
        self._distrusted.add(key)
        self._mapped.pop(key, None)
        if key in self._kept:
            self._drop(key)
        log.warning(
            "parent %r, shard %d, has no snapshots until the next start, which takes memory and time. "
            "Unless memory has run out, report this defect: %s",
            *key,
            type(error).__name__,
            exc_info=error,
        )

    def _forget_snapshots(self, key: Key) -> None:
        """Remove the snapshots of a key, which its journal no longer continues."""
        self._mapped.pop(key, None)
        self._failed.pop(key, None)
        snapshots = self.archives and self.archives.snapshots(*key)
        if snapshots:
            snapshots.clear()

    def keep(self, key: Key, journal: Journal, decoded: Decoded) -> int:
        """Return the state of a journal to the store, unless it is empty; return the bytes of the journal."""
        position = journal.position
        former = self._kept.pop(key, None)
        self.memory_bytes -= former.memory_bytes if former else 0
        if position.end:
            self._kept[key] = _Kept(position, decoded, decoded.memory_bytes(position.end))
            self.memory_bytes += self._kept[key].memory_bytes
        while self.memory_bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))
        return position.end

    def _drop(self, key: Key) -> None:
        self.memory_bytes -= self._kept.pop(key).memory_bytes
        self._mapped.pop(key, None)

    def value(self, opened: Opened, journal: Journal) -> bytes | None:
        """Return the bytes to store for a key; None for none."""
        if journal is opened.journal:
            return opened.value
        # A key that has become empty must not begin with its adopted state again.
        is_adopted = self._adopts and opened.value is not None
        return journal.kept if is_adopted else journal.stored
