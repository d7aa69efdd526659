"""Blocks of entries, and the changes that requests make to them, in time linear in the requests."""

# ruff: noqa: SLF001 - versions hand one dictionary to each other

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby
from operator import itemgetter
from typing import NamedTuple, overload

from streaming.records.model import Notation


class Block(NamedTuple):
    """Entries of a subscription that were added by the same request.

    Attributes:
        order: number of the request on this shard; in an exclusive group the higher one wins. It is a whole number,
            unless the shard learned only later that the request began a session.
        partition, position: position of the request in the subscription stream (see `Place`).
        notation: notation of the entries; always `LITE` under the literal mode.
        entries: names or patterns; only those that can touch this shard.
    """

    order: float
    partition: int
    position: int
    notation: Notation
    entries: tuple[str, ...]


EntryKey = tuple[Notation, str]
"""Notation and text of an entry."""


class HeldEntry(NamedTuple):
    """An entry among others.

    Attributes:
        rank: entries of lower rank come first.
        order, partition, position: as in `Block`.
    """

    rank: int
    order: float
    partition: int
    position: int


Changes = Mapping[EntryKey, tuple[HeldEntry | None, HeldEntry | None]]
"""Changed entries before and after a request; None if an entry is absent."""

_Entries = dict[EntryKey, HeldEntry]
_Values = Mapping[EntryKey, HeldEntry | None]


class Blocks(Sequence[Block]):
    """Immutable blocks within a micro-batch, which share a dictionary of entries with the blocks they were made of.

    The latest version owns the dictionary. Other versions refer to a neighbor that is nearer to it, and are restored
    through the changes on the way. So a request costs its own entries, and a version costs all entries only if it is
    read.

    Args:
        blocks: the blocks.
    """

    __slots__ = (
        "_blocks",
        "_changes",
        "_depth",
        "_entries",
        "_last",
        "_mark",
        "_neighbor",
        "_parent",
        "_ranks",
        "_size",
    )

    def __init__(self, blocks: tuple[Block, ...] = ()) -> None:
        self._blocks: tuple[Block, ...] | None = blocks
        self._size = len(blocks)
        self._depth = 0
        self._entries: _Entries | None = None
        self._neighbor: Blocks | None = None
        self._parent: Blocks | None = None
        self._changes: Changes = {}
        self._mark: int | None = None  # a hash of the entries, to distinguish versions without reading them
        self._ranks = count()
        self._last: tuple[object, Blocks] | None = None

    def edited(self, removed: Iterable[EntryKey], added: Block | None) -> "Blocks":
        """Return the blocks without some entries, and with a new block at the end; the same object if equal.

        Args:
            removed: entries to leave out; absent ones are skipped.
            added: the new block.
        """
        edit = tuple(removed), added
        if self._last is not None and self._last[0] == edit:
            return self._last[1]  # the other mode, nearly always
        entries = self._own()
        changes: dict[EntryKey, tuple[HeldEntry | None, HeldEntry | None]] = {
            key: (entries[key], None) for key in edit[0] if key in entries
        }
        if added is not None:
            for entry in added.entries:
                key = added.notation, entry
                changes[key] = (
                    entries.get(key),
                    HeldEntry(next(self._ranks), added.order, added.partition, added.position),
                )
        return self._child(changes, edit) if changes else self

    def kept(self, notation: Notation, wanted: Iterable[str]) -> tuple[Block, ...]:
        """Return the blocks with the given entries that are present."""
        entries = self._own()
        return _blocks_of({key: entries[key] for entry in wanted if (key := (notation, entry)) in entries})

    def count_entries(self) -> int:
        """Return the number of entries."""
        return len(self._own())

    def changes_since(self, former: Sequence[Block]) -> Changes | None:
        """Return the changes if one request made these blocks of the former ones; None otherwise."""
        parent = self._parent
        if parent is None:
            return None
        is_former = parent is former or parent._blocks is former or not (parent or former)
        return self._changes if is_former else None

    def path_from(self, former: Sequence[Block]) -> list[Changes] | None:
        """Return the changes of the requests that led here from the former blocks, oldest first; None if none did."""
        path: list[Changes] = []
        version: Blocks | None = self
        least = former._depth if isinstance(former, Blocks) else 0
        while version is not None and version._depth >= least and not (version is former or version._blocks is former):
            path.append(version._changes)
            version = version._parent
        return None if version is None or version._depth < least else path[::-1]

    def fresh(self, former: Sequence[Block]) -> tuple[Block, ...] | None:
        """Return the blocks of entries that the former blocks lack, if one request made these of them."""
        changes = self.changes_since(former)
        if changes is None:
            return None
        return _blocks_of({key: new for key, (old, new) in changes.items() if old is None and new is not None})

    @property
    def tuple(self) -> tuple[Block, ...]:
        """The blocks as a tuple."""
        if self._blocks is None:
            self._blocks = _blocks_of(self._copied() if self._entries is None else self._entries)
        return self._blocks

    def _child(self, changes: Changes, edit: object) -> "Blocks":
        later = Blocks()
        later._blocks, later._parent, later._changes, later._ranks = None, self, changes, self._ranks
        later._mark, later._size, later._depth = self._mark or 0, self._size, self._depth + 1
        for key, (old, new) in changes.items():
            later._mark ^= _mark(key, old) ^ _mark(key, new)
            later._size += (new is not None) - (old is not None)
        later._take(self)
        self._last = edit, later
        return later

    def _own(self) -> _Entries:
        """Return the dictionary of entries, which this version owns from now on."""
        if self._entries is None and self._neighbor is None:
            blocks = self.tuple
            self._entries = {
                (block.notation, entry): HeldEntry(next(self._ranks), *block[:3])
                for block in blocks
                for entry in block.entries
            }
            self._size, self._mark = len(self._entries), 0
            for key, held in self._entries.items():
                self._mark ^= _mark(key, held)
        elif self._entries is None and self._neighbor is not None and self._neighbor._entries is not None:
            self._take(self._neighbor)  # from a request that was refused
        elif self._entries is None:
            self._entries, self._neighbor = self._copied(), None
        return self._entries or {}

    def _take(self, neighbor: "Blocks") -> None:
        """Take the dictionary over from a version that owns it."""
        entries = neighbor._entries or {}
        _assign(entries, self._values_after(neighbor))
        self._entries, self._neighbor = entries, None
        neighbor._entries, neighbor._neighbor = None, self

    def _copied(self) -> _Entries:
        """Return a copy of the entries, restored from the version that owns the dictionary."""
        path: list[_Values] = []
        version = self
        while version._entries is None and version._neighbor is not None:
            path.append(version._values_after(version._neighbor))
            version = version._neighbor
        entries = dict(version._own())
        for values in reversed(path):
            _assign(entries, values)
        return entries

    def _values_after(self, neighbor: "Blocks") -> _Values:
        """Return the values that turn a neighbor's entries into this version's."""
        if neighbor._parent is self:
            return {key: old for key, (old, _) in neighbor._changes.items()}
        return {key: new for key, (_, new) in self._changes.items()}

    def __bool__(self) -> bool:
        return self._size > 0

    def __len__(self) -> int:
        return len(self.tuple)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.tuple)

    @overload
    def __getitem__(self, index: int) -> Block: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Block]: ...

    def __getitem__(self, index: int | slice) -> Block | Sequence[Block]:
        return self.tuple[index]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Blocks):
            marks = self._mark, other._mark
            return (None in marks or marks[0] == marks[1]) and self.tuple == other.tuple
        return self.tuple is other or self.tuple == other

    def __hash__(self) -> int:
        return hash(self.tuple)

    def __repr__(self) -> str:
        return repr(self.tuple)


def without_and_with(
    held: Sequence[Block], notation: Notation, removed: Iterable[str], added: Block
) -> Sequence[Block]:
    """Return blocks without some entries of a notation, and with a new block if it has entries."""
    fresh = added if added.entries else None
    if isinstance(held, Blocks):
        return held.edited(((notation, entry) for entry in removed), fresh)
    gone = set(removed)
    kept = (
        block._replace(entries=tuple(entry for entry in block.entries if entry not in gone))
        if block.notation == notation
        else block
        for block in held
    )
    blocks = tuple(block for block in kept if block.entries) if gone else tuple(held)
    return Blocks((*blocks, fresh) if fresh is not None else blocks)


def replaced(held: Sequence[Block], new: Block) -> Sequence[Block]:
    """Return a set in place of another; entries in both keep their order, because clients repeat their set."""
    if isinstance(held, Blocks):
        kept = held.kept(new.notation, new.entries)
    else:
        if len(held) == 1 and held[0].notation == new.notation and held[0].entries == new.entries:
            return held  # nearly always
        wanted = set(new.entries)
        found = (
            block._replace(entries=tuple(entry for entry in block.entries if entry in wanted))
            for block in held
            if block.notation == new.notation
        )
        kept = tuple(block for block in found if block.entries)
    known = {entry for block in kept for entry in block.entries}
    fresh = new._replace(entries=tuple(entry for entry in new.entries if entry not in known))
    if isinstance(held, Blocks) and not fresh.entries and len(known) == held.count_entries():
        return held
    return Blocks((*kept, fresh) if fresh.entries else kept)


def settled(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return blocks as a state keeps them."""
    return blocks.tuple if isinstance(blocks, Blocks) else tuple(blocks)


def _blocks_of(entries: _Entries) -> tuple[Block, ...]:
    ranked = sorted(((held, *key) for key, held in entries.items()), key=itemgetter(0))
    blocks = groupby(ranked, lambda each: (each[0][1:], each[1]))
    return tuple(
        Block(order, partition, position, notation, tuple(text for _, _, text in run))
        for ((order, partition, position), notation), run in blocks
    )


def _assign(entries: _Entries, values: _Values) -> None:
    for key, held in values.items():
        if held is None:
            entries.pop(key, None)
        else:
            entries[key] = held


def _mark(key: EntryKey, held: HeldEntry | None) -> int:
    return 0 if held is None else hash((key, held[1:]))
