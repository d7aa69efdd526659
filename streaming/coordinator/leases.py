"""Leases of clients, packed for clients in no session because they are kept for a week, and indexes over them."""

import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import msgpack

from streaming.records.model import Place
from streaming.records.subscribers import ClientKey
from streaming.state.notes import Versions


class ClientLease(NamedTuple):
    """Parents and versions of a client.

    Attributes:
        parents: on which it may be in session.
        place: of its last request.
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


_LEASES_PER_BUCKET: Final = 16


class Leases(MutableMapping[ClientKey, ClientLease]):
    """Leases by client: objects for clients in session, small packed buckets for the others."""

    def __init__(self) -> None:
        self._present: dict[ClientKey, ClientLease] = {}
        self._packed: list[bytes] = [b""]
        self._absent = 0

    def __len__(self) -> int:
        return len(self._present) + self._absent

    def __iter__(self) -> Iterator[ClientKey]:
        yield from self._present
        yield from sorted(key for number in range(len(self._packed)) for key in self._bucket(number))

    def __getitem__(self, key: ClientKey) -> ClientLease:
        found = self._present.get(key)
        return lease_of(*self._bucket(self._number(key))[key]) if found is None else found

    def __setitem__(self, key: ClientKey, lease: ClientLease) -> None:
        if lease.parents:
            if key not in self._present:
                self._change(key, None)
            self._present[key] = lease
        else:
            self._present.pop(key, None)
            self._change(key, lease)

    def __delitem__(self, key: ClientKey) -> None:
        if key in self._present:
            del self._present[key]
        elif key in self:
            self._change(key, None)
        else:
            raise KeyError(key)

    @property
    def present(self) -> int:
        """Number of the clients that may be in session."""
        return len(self._present)

    def _number(self, key: ClientKey) -> int:
        return zlib.crc32(msgpack.packb(key)) % len(self._packed)

    def _bucket(self, number: int) -> dict[ClientKey, Any]:
        data = self._packed[number]
        return {ClientKey(*key): lease for key, lease in msgpack.unpackb(data, use_list=False)} if data else {}

    def _change(self, key: ClientKey, lease: ClientLease | None) -> None:
        """Pack a lease, or remove it from where it is packed."""
        number = self._number(key)
        bucket = self._bucket(number)
        before = len(bucket)
        bucket.pop(key, None)
        if lease is not None:
            bucket[key] = lease
        if before or bucket:
            self._packed[number] = _packed(bucket)
            self._absent += len(bucket) - before
        if self._absent > _LEASES_PER_BUCKET * len(self._packed):
            self._grow()

    def _grow(self) -> None:
        buckets = [self._bucket(number) for number in range(len(self._packed))]
        self._packed = [b""] * (2 * len(buckets))
        divided: list[dict[ClientKey, Any]] = [{} for _ in self._packed]
        for bucket in buckets:
            for key, lease in bucket.items():
                divided[self._number(key)][key] = lease
        self._packed = list(map(_packed, divided))


def _packed(bucket: Mapping[ClientKey, Any]) -> bytes:
    data: bytes = msgpack.packb(list(bucket.items())) if bucket else b""
    return data


_PRESENT_STEP_MS = 10_000
_ABSENT_STEP_MS = 600_000
"""Time in milliseconds for which clients are filed together: those in session, and the others."""


class GroupParents:
    """Number of the clients of each group that may be in session on each parent."""

    def __init__(self, leases: Iterable[tuple[ClientKey, ClientLease]]) -> None:
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        for key, lease in leases:
            self.change(key, None, lease)

    def change(self, key: ClientKey, former: ClientLease | None, later: ClientLease | None) -> None:
        """Update the indexes for a client."""
        counts = self._counts[key.group]
        counts.subtract(() if former is None else former.parents)
        counts.update(() if later is None else later.parents)
        self._counts[key.group] = +counts
        if not self._counts[key.group]:
            del self._counts[key.group]

    def of(self, group: str) -> Counter[str]:
        """Return the parents of a group, with numbers of clients."""
        return self._counts[group].copy() if group in self._counts else Counter()


class LastRequests:
    """Clients by the time of their last request, or an earlier one.

    A client that has asked since is filed again when its time has come, not with each request.

    Args:
        clients: with the times of their last requests.
        step_ms: time for which clients are filed together.
    """

    def __init__(self, clients: Iterable[tuple[ClientKey, int]], step_ms: int) -> None:
        self._step_ms = step_ms
        self._filed: dict[int, bytearray] = {}  # packed keys
        self._steps: list[int] = []
        for key, time in clients:
            self.add(key, time)

    def add(self, key: ClientKey, time: int) -> None:
        """File a client.

        Args:
            key: the client.
            time: of its last request, in milliseconds since the epoch.
        """
        step = time // self._step_ms
        if step not in self._filed:
            self._filed[step] = bytearray()
            heappush(self._steps, step)
        self._filed[step] += msgpack.packb(key)

    def before(self, time: int, last: Callable[[ClientKey], int | None]) -> Iterator[ClientKey]:
        """Yield the clients whose last request was before a time; they stay filed.

        Args:
            time: in milliseconds since the epoch.
            last: returns the time of a client's last request; None drops the client from the index.
        """
        found: list[tuple[ClientKey, int]] = []
        while self._steps and self._steps[0] * self._step_ms < time:
            for key in {ClientKey(*names) for names in _unpacked(self._filed.pop(heappop(self._steps)))}:
                asked = last(key)
                if asked is not None:
                    found.append((key, asked))
        for key, asked in found:
            self.add(key, asked)
            if asked < time:
                yield key


def _unpacked(data: bytearray) -> Iterator[Any]:
    unpacker = msgpack.Unpacker(use_list=False)
    unpacker.feed(data)
    return iter(unpacker)


class LeaseIndexes:
    """Indexes over the leases of a bucket.

    Args:
        leases: of the bucket, which the owner changes.
    """

    def __init__(self, leases: Mapping[ClientKey, ClientLease]) -> None:
        self._leases = leases
        self._parents: GroupParents | None = None
        self._present: LastRequests | None = None
        self._absent: LastRequests | None = None

    def change(self, key: ClientKey, later: ClientLease | None) -> None:
        """Update the indexes for a client whose lease is about to change."""
        former = self._leases.get(key)
        if self._parents is not None:
            self._parents.change(key, former, later)
        if later is not None:
            filed = self._present if later.parents else self._absent
            if filed is not None and (former is None or bool(former.parents) != bool(later.parents)):
                filed.add(key, later.place.timestamp)

    def parents_of(self, group: str) -> Counter[str]:
        """Return the parents on which clients of a group may be in session, with numbers of clients."""
        if self._parents is None:
            self._parents = GroupParents(self._leases.items())
        return self._parents.of(group)

    def silent_since(self, time: int, *, present: bool) -> Iterator[ClientKey]:
        """Yield the clients without a request since a time, in milliseconds since the epoch.

        Args:
            time: the time.
            present: those that may be in session; otherwise the others.
        """

        def last(key: ClientKey) -> int | None:
            lease = self._leases.get(key)
            return lease.place.timestamp if lease is not None and bool(lease.parents) is present else None

        filed = self._present if present else self._absent
        if filed is None:
            times = ((key, asked) for key in self._leases if (asked := last(key)) is not None)
            filed = LastRequests(times, _PRESENT_STEP_MS if present else _ABSENT_STEP_MS)
            if present:
                self._present = filed
            else:
                self._absent = filed
        return filed.before(time, last)
