"""States by key: decoded ones that a worker keeps between micro-batches, and the bytes that Spark keeps.

`StateStore.open` and `StateStore.value` translate between the bytes of a key and its journal. `StateStore.load` and
`StateStore.save` translate between a journal and the decoded state. A journal is immutable, so a run that fails leaves
nothing to undo. The values of clients in no session are packed, because their versions are kept for a week.
"""

import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast, overload

import msgpack

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
K = TypeVar("K", bound=tuple[str, ...])
V = TypeVar("V")
T = TypeVar("T")

_CLIENTS_PER_BUCKET: Final = 16
_HASH_BITS: Final = 32

_SECRET: Final = os.urandom(16)
"""Key of the hashes, so that a producer cannot choose names that share a bucket."""


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


class Packed(MutableMapping[K, V], Generic[K, V]):
    """Values by client: objects for clients in session, small packed buckets for the others.

    The order is that of `present`, followed by the other clients in order of their names.

    Attributes:
        present: values of the clients in session.

    Args:
        name: returns a client, given its names.
        is_absent: returns True if a client is in no session, given its value.
        unpack: returns a value, given a tuple of the value's fields.
    """

    def __init__(self, name: Callable[..., K], is_absent: Callable[[K, V], bool], unpack: Callable[[Any], V]) -> None:
        self.present: dict[K, V] = {}
        self._name = name
        self._is_absent = is_absent
        self._unpack = unpack
        self._absent = 0
        self._bits = 0
        self._buckets = [b""]
        self._last: tuple[int, dict[K, Any]] = 0, {}  # number and content of a bucket

    def __len__(self) -> int:
        return len(self.present) + self._absent

    def __iter__(self) -> Iterator[K]:
        yield from self.present
        yield from sorted(key for key, _ in self._packed())

    def __getitem__(self, key: K) -> V:
        found = self.get(key)
        if found is None:
            raise KeyError(key)
        return found

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: V | T | None = None, /) -> V | T | None:
        """Return the value of a client."""
        found = self.present.get(key)
        if found is not None or not self._absent:
            return default if found is None else found
        fields = self._bucket(self._number(key)).get(key)
        return default if fields is None else self._unpack(fields)

    def items(self) -> ItemsView[K, V]:
        """Return all clients with their values."""
        return _Items(self)

    def __setitem__(self, key: K, value: V) -> None:
        self.apply({key: value})

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self.apply({key: None})

    def apply(self, changes: Mapping[K, V | None]) -> None:
        """Apply changes; None removes a client."""
        packed: dict[K, V | None] = {}
        for key, value in changes.items():
            if value is not None and not self._is_absent(key, value):
                if self._absent and key not in self.present:
                    packed[key] = None
                self.present[key] = value
            elif self.present.pop(key, None) is None or value is not None:
                packed[key] = value
        if packed:
            self._pack(packed)

    def _packed(self) -> Iterator[tuple[K, Any]]:
        """Yield the clients in no session with the fields of their values, in any order."""
        return chain.from_iterable(self._bucket(number).items() for number in range(len(self._buckets)))

    def _number(self, key: K) -> int:
        return _hash(key) >> (_HASH_BITS - self._bits)

    def _bucket(self, number: int) -> dict[K, Any]:
        if self._last[0] != number:
            data = self._buckets[number]
            rows = msgpack.unpackb(zlib.decompress(data), use_list=False) if data else ()
            self._last = number, {self._name(*key): fields for key, fields in rows}
        return self._last[1]

    def _pack(self, changes: Mapping[K, V | None]) -> None:
        """Change the clients in no session, each bucket once."""
        added = sum(value is not None for value in changes.values())
        while self._absent + added > _CLIENTS_PER_BUCKET * len(self._buckets):
            self._grow()
        numbers: dict[int, list[K]] = {}
        for key in changes:
            numbers.setdefault(self._number(key), []).append(key)
        for number, keys in numbers.items():
            bucket = self._bucket(number)
            before = len(bucket)
            for key in keys:
                bucket.pop(key, None)
                value = changes[key]
                if value is not None:
                    bucket[key] = value
            if before or bucket:
                self._buckets[number] = _compressed(bucket)
                self._absent += len(bucket) - before

    def _grow(self) -> None:
        rows = list(self._packed())
        self._bits += 1
        divided: list[dict[K, Any]] = [{} for _ in range(1 << self._bits)]
        for key, fields in rows:
            divided[self._number(key)][key] = fields
        self._buckets = list(map(_compressed, divided))
        self._last = 0, divided[0]


class _Items(ItemsView[K, V]):
    _mapping: Packed[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        yield from self._mapping.present.items()
        packed = sorted(self._mapping._packed(), key=itemgetter(0))  # noqa: SLF001
        yield from ((key, self._mapping._unpack(fields)) for key, fields in packed)  # noqa: SLF001


def _hash(key: tuple[str, ...]) -> int:
    return int.from_bytes(blake2b(msgpack.packb(key), digest_size=_HASH_BITS // 8, key=_SECRET).digest())


def _compressed(bucket: dict[K, Any]) -> bytes:
    return zlib.compress(msgpack.packb(list(bucket.items())), 1) if bucket else b""


def overlay(changed: Iterable[tuple[MutableMapping[Any, Any], Mapping[Any, Any]]]) -> None:
    """Apply changes to mappings, by key; None removes the key."""
    for target, changes in changed:
        if isinstance(target, Packed):
            target.apply(changes)
            continue
        for key, value in changes.items():
            if value is None:
                target.pop(key, None)
            else:
                target[key] = value
