"""State of one coordinator bucket, the changes of a micro-batch, and both as journal entries.

Leases are packed for clients in no session, because they are kept for a week. Indexes find the expired ones.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

import msgpack
from sortedcontainers import SortedDict, SortedList

from streaming.records.model import End, Place
from streaming.records.subscribers import ClientKey
from streaming.state.notes import Versions
from streaming.storage.journal import Journal
from streaming.storage.packed import Packed, overlay

_PRESENT_STEP_MS: Final = 10_000
_ABSENT_STEP_MS: Final = 600_000
"""Time in milliseconds for which clients are filed together: those in session, and the others."""

_LEASE_BYTES: Final = 650
"""Memory of a lease without its texts, as `tracemalloc` measures it, in bytes."""


class ClientLease(NamedTuple):
    """Parents and versions of a client.

    Attributes:
        parents: on which it may be in session.
        versions: by parent, also if its session there has ended: older requests stay stale.
    """

    parents: tuple[str, ...]
    place: Place
    versions: Mapping[str, Versions] = {}


def lease_of(
    parents: tuple[str, ...], place: tuple[int, ...], versions: Mapping[str, Any] | None = None
) -> ClientLease:
    """Return the lease whose plain values these are."""
    found = {parent: Versions(*both) for parent, both in (versions or {}).items()}
    return ClientLease(parents, Place(*place), found)


def new_leases() -> Packed[ClientKey, ClientLease]:
    """Return leases without any client."""
    return Packed(ClientKey, lambda _, lease: not lease.parents, lambda fields: lease_of(*fields))


class LastRequests:
    """Clients by the time of their last request, or an earlier one, filed together in steps of milliseconds.

    A client that has asked since is filed again when its time has come, not with each request.
    """

    def __init__(self, clients: Iterable[tuple[ClientKey, int]], step_ms: int) -> None:
        self._step_ms = step_ms
        self._filed: SortedDict[int, bytearray] = SortedDict()  # packed keys
        for key, time in clients:
            self.add(key, time)

    def add(self, key: ClientKey, time: int) -> None:
        """File a client by the time of its last request, in ms since the epoch."""
        self._filed.setdefault(time // self._step_ms, bytearray()).extend(msgpack.packb(key))

    def before(self, time: int, last: Callable[[ClientKey], int | None]) -> Iterator[ClientKey]:
        """Yield the clients whose last request was before a time; they stay filed.

        `last` returns the time of a client's last request; None drops the client from the index.
        """
        found: list[tuple[ClientKey, int]] = []
        while self._filed and self._filed.peekitem(0)[0] * self._step_ms < time:
            unpacker = msgpack.Unpacker(use_list=False)
            unpacker.feed(self._filed.popitem(0)[1])
            for key in {ClientKey(*names) for names in unpacker}:
                asked = last(key)
                if asked is not None:
                    found.append((key, asked))
        for key, asked in found:
            self.add(key, asked)
            if asked < time:
                yield key


class LeaseIndexes:
    """Indexes over the leases of a bucket, which the owner changes; each is built at its first use."""

    def __init__(self, leases: Mapping[ClientKey, ClientLease]) -> None:
        self._leases = leases
        self._parents: dict[str, Counter[str]] | None = None
        self._filed: dict[bool, LastRequests] = {}

    def change(self, key: ClientKey, later: ClientLease | None) -> None:
        """Update the indexes for a client whose lease is about to change."""
        former = self._leases.get(key)
        if self._parents is not None:
            counts = self._parents.pop(key.group, Counter())
            _recount(counts, former, later)
            if present := +counts:
                self._parents[key.group] = present
        if later is not None and (former is None or bool(former.parents) != bool(later.parents)):
            filed = self._filed.get(bool(later.parents))
            if filed is not None:
                filed.add(key, later.place.timestamp)

    def parents_of(self, group: str, changes: Mapping[ClientKey, ClientLease | None]) -> set[str]:
        """Return the parents on which clients of a group may be in session, after changes that are not applied yet."""
        if self._parents is None:
            self._parents = {}
            for key, lease in self._leases.items():
                self._parents.setdefault(key.group, Counter()).update(lease.parents)
        counts = self._parents.get(group, Counter()).copy()
        for key, later in changes.items():
            if key.group == group:
                _recount(counts, self._leases.get(key), later)
        return set(+counts)

    def silent_since(self, time: int, *, present: bool) -> Iterator[ClientKey]:
        """Yield the clients, `present` or not, without a request since a time in ms."""

        def last(key: ClientKey) -> int | None:
            lease = self._leases.get(key)
            return lease.place.timestamp if lease is not None and bool(lease.parents) is present else None

        if present not in self._filed:
            times = ((key, asked) for key in self._leases if (asked := last(key)) is not None)
            self._filed[present] = LastRequests(times, _PRESENT_STEP_MS if present else _ABSENT_STEP_MS)
        return self._filed[present].before(time, last)


def _recount(counts: Counter[str], former: ClientLease | None, later: ClientLease | None) -> None:
    counts.subtract(() if former is None else former.parents)
    counts.update(() if later is None else later.parents)


class GroupBinding(NamedTuple):
    """Binding of a group to its parent topic, and other parents, to which the end of the group was written."""

    parent: str
    place: Place
    notified: frozenset[str] = frozenset()


PendingKey = tuple[ClientKey, str]
"""A client and a parent."""


class PendingEnd(NamedTuple):
    """End of a client on a parent whose records the job has not yet read back.

    Attributes:
        as_of: place of the request that ended the client, or of its last request before its lease expired.
        through: place of the last request that was written.
        later_count: number of the client's requests and ends on this parent since the end, all of which were written.
    """

    as_of: Place
    expired: bool
    forgets: bool
    through: Place
    later_count: int = 0


@dataclass(slots=True)
class CoordinatorState:
    """Groups, clients and alarms of one bucket.

    Attributes:
        alarms: shards to wake, by time in milliseconds since the epoch.
        clock: time of the last tick, in milliseconds since the epoch.
    """

    bindings: dict[str, GroupBinding] = field(default_factory=dict)
    leases: MutableMapping[ClientKey, ClientLease] = field(default_factory=new_leases)
    alarms: dict[int, frozenset[tuple[str, int]]] = field(default_factory=dict)
    clock: int = 0
    pending: dict[PendingKey, PendingEnd] = field(default_factory=dict)
    indexes: LeaseIndexes = field(init=False, repr=False, compare=False)
    _alarm_times: "SortedList[int] | None" = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.indexes = LeaseIndexes(self.leases)

    def __bool__(self) -> bool:
        return bool(self.bindings or self.leases or self.alarms or self.clock or self.pending)

    @property
    def clients(self) -> int:
        """Number of clients in session; others are remembered for their versions."""
        if isinstance(self.leases, Packed):
            return len(self.leases.present)
        return sum(bool(lease.parents) for lease in self.leases.values())

    def memory_bytes(self, text_bytes: int) -> int:
        """Return the estimated memory in bytes; a journal of `text_bytes` has all names."""
        return 2 * text_bytes + (self.clients + len(self.pending)) * _LEASE_BYTES

    def alarms_until(self, time: int) -> list[int]:
        """Return the times of the alarms up to a time, in milliseconds since the epoch."""
        if self._alarm_times is None:
            self._alarm_times = SortedList(self.alarms)
        return list(self._alarm_times.irange(maximum=time))

    def apply(self, delta: "CoordinatorDelta") -> None:
        """Apply the changes of a micro-batch."""
        for key, lease in delta.leases.items():
            self.indexes.change(key, lease)
        if self._alarm_times is not None:
            for time, shards in delta.alarms.items():
                if shards is None:
                    self._alarm_times.discard(time)
                elif time not in self.alarms:
                    self._alarm_times.add(time)
        maps = (self.bindings, self.leases, self.alarms, self.pending)
        overlay(zip(maps, (delta.bindings, delta.leases, delta.alarms, delta.pending), strict=True))
        self.clock = delta.clock


@dataclass(slots=True)
class CoordinatorDelta:
    """Changes of a micro-batch to a bucket (see `CoordinatorState`); None removes a key."""

    clock: int
    bindings: dict[str, GroupBinding | None] = field(default_factory=dict)
    leases: dict[ClientKey, ClientLease | None] = field(default_factory=dict)
    alarms: dict[int, frozenset[tuple[str, int]] | None] = field(default_factory=dict)
    pending: dict[PendingKey, PendingEnd | None] = field(default_factory=dict)


_FORGETS = End._fields.index("forgets")


def append(journal: Journal, state: CoordinatorState, delta: CoordinatorDelta) -> Journal:
    """Return the journal with one more change, which was applied to the state."""
    return journal.append(_encode(delta), lambda: _encode(state)) if state else journal.cleared()


def replay(state: CoordinatorState, changes: Iterable[Any]) -> None:
    """Apply changes of a journal to an empty state, or to the state that the journal amounts to before them."""
    for change in changes:
        state.apply(_decode(change))


def _encode(delta: CoordinatorDelta | CoordinatorState) -> list[Any]:
    return [
        delta.clock,
        [
            (group, binding and (binding.parent, binding.place, sorted(binding.notified)))
            for group, binding in delta.bindings.items()
        ],
        list(delta.leases.items()),
        [(time, shards if shards is None else sorted(shards)) for time, shards in delta.alarms.items()],
        list(delta.pending.items()),
    ]


def _decode(change: Any) -> CoordinatorDelta:
    clock, bindings, leases, alarms, *pending = change  # a former release wrote no pending ends
    return CoordinatorDelta(
        clock,
        {
            group: None if binding is None else GroupBinding(binding[0], Place(*binding[1]), frozenset(binding[2]))
            for group, binding in bindings
        },
        {ClientKey(*key): None if lease is None else lease_of(*lease) for key, lease in leases},
        {time: None if shards is None else frozenset(shards) for time, shards in alarms},
        {
            (ClientKey(*client), parent): None if fields is None else _pending(*fields)
            for (client, parent), fields in chain.from_iterable(pending)
        },
    )


def _pending(as_of: tuple[int, ...], expired: bool, forgets: Any, through: Any, *count: int) -> PendingEnd:  # noqa: FBT001 - a field
    if count:
        return PendingEnd(Place(*as_of), expired, forgets, Place(*through), *count)
    ends, later = forgets, through  # a former release kept the written requests
    last = later[-1][0] if later else as_of
    is_forgotten = any(len(end) > _FORGETS and end[_FORGETS] for _, end in ends)
    return PendingEnd(Place(*as_of), expired, is_forgotten, Place(*last), len(later))
