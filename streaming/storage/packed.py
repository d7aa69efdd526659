"""Packed: values by client, which take little memory for clients in no session, and changes of mappings."""

import os
import zlib
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping
from hashlib import blake2b
from itertools import chain
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar, overload

import msgpack

K = TypeVar("K", bound=tuple[str, ...])
V = TypeVar("V")
T = TypeVar("T")

_CLIENTS_PER_BUCKET: Final = 16
_HASH_BITS: Final = 32

_SECRET: Final = os.urandom(16)
"""Key of the hashes, so that a producer cannot choose names that share a bucket."""


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
        self.present: MutableMapping[K, V] = {}
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

    def absent(self) -> Iterator[tuple[K, V]]:
        """Yield the clients in no session with their values, in order of their names."""
        yield from ((key, self._unpack(fields)) for key, fields in sorted(self._packed(), key=itemgetter(0)))

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
        yield from self._mapping.absent()


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
