"""Leases of clients; those of clients in no session are packed, since they are kept for a week."""

import zlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

import msgpack

from streaming.events.model import Place
from streaming.state.notes import Versions
from streaming.subscription.subscribers import ClientKey


class ClientLease(NamedTuple):
    """What a client has asked for.

    Attributes:
        parents: on which it may be in session.
        place: of its last request.
        versions: by parent, also where its session has ended: older requests stay stale there.
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
    """Leases by client: those of clients in session as objects, the others in packed buckets of a few."""

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
