"""TopicTable: the topics of a large shard, in arrays that all workers of a machine share."""

import os
from bisect import bisect_left
from collections.abc import Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping
from hashlib import blake2b
from itertools import chain, compress, islice, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streaming.records.model import NO_METADATA, TopicMetadata

Arrays = Mapping[str, npt.NDArray[Any]]

_ROW_BITS: Final = 28
_ROW: Final = (1 << _ROW_BITS) - 1
_MAX_TEXT_BYTES: Final = (1 << 32) - 1
_SECRET_BYTES: Final = 16
_ROWS_AT_ONCE: Final = 4_096
_FOUND: Final = 1_024  # names of a micro-batch that is not in columns


class _TopicNames(KeysView[str]):
    _mapping: "TopicTable"

    def isdisjoint(self, other: Iterable[Any]) -> bool:
        return not self._mapping.has_any(list(other))


class _TopicItems(ItemsView[str, TopicMetadata]):
    _mapping: "TopicTable"

    def __iter__(self) -> Iterator[tuple[str, TopicMetadata]]:
        known = self._mapping.described  # no look-up of each name
        return ((name, known.get(name, NO_METADATA)) for name in self._mapping)


class TopicTable(MutableMapping[str, TopicMetadata]):
    """Topics in order of creation: settled ones in arrays, with recent changes beside them.

    The arrays take 12 bytes per topic besides its name. They are never decoded as a whole: a look-up of a name takes 2
    us, instead of 0.1 us in a dict.

        texts   names in UTF-8, one after the other
        bounds  start of each name, and the end of the last one
        hashed  36 bits of the keyed hash of a name, then 28 bits of its row; sorted
        secret  key of the hashes, so that a producer cannot choose names with equal hashes

    Args:
        arrays: those of `settled`.
        described: metadata of the settled topics that have any, in order of creation.
    """

    def __init__(self, arrays: Arrays, described: Mapping[str, TopicMetadata]) -> None:
        self._arrays = arrays
        self._texts, self._bounds, self._hashed = (arrays[name].data for name in ("texts", "bounds", "hashed"))
        self._secret = arrays["secret"].tobytes()
        self._described = dict(described)
        self._gone: set[int] = set()
        self._found: dict[str, int | None] = {}  # rows of names that were asked for lately
        self._recent: dict[str, TopicMetadata] = {}

    def items(self) -> ItemsView[str, TopicMetadata]:
        """Return the topics with their metadata."""
        return _TopicItems(self)

    @property
    def described(self) -> dict[str, TopicMetadata]:
        """All topics that have metadata, in order of creation, perhaps among others."""
        return {**self._described, **self._recent}

    @property
    def changes(self) -> int:
        """Number of settled topics that are gone, and of topics that are not settled yet."""
        return len(self._gone) + len(self._recent)

    @property
    def text_bytes(self) -> int:
        """Bytes of the names in the arrays."""
        return len(self._texts)

    def __len__(self) -> int:
        return len(self._bounds) - 1 - len(self._gone) + len(self._recent)

    def __contains__(self, name: object) -> bool:
        return name in self._recent or (isinstance(name, str) and self._row(name) is not None)

    def __getitem__(self, name: str) -> TopicMetadata:
        found = self._recent.get(name)
        if found is None:
            if self._row(name) is None:
                raise KeyError(name)
            found = self._described.get(name, NO_METADATA)
        return found

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return _TopicNames(self)

    def has_any(self, names: Collection[str]) -> bool:
        """Return True if one of some names is a topic; for many names this takes half the time of as many look-ups."""
        if not self._recent.keys().isdisjoint(names):
            return True
        hashes = [_hash(name.encode("utf-8", "surrogatepass"), self._secret) for name in names]
        wanted, hashed = np.array(hashes, np.uint64), self._arrays["hashed"]
        if not len(hashed):
            return False
        places = np.searchsorted(hashed, wanted).clip(max=len(hashed) - 1)
        candidates = compress(names, hashed[places] ^ wanted <= _ROW)
        return any(self._row(name) is not None for name in candidates)

    def __setitem__(self, name: str, metadata: TopicMetadata) -> None:
        if self._row(name) is not None:
            raise ValueError("a settled topic does not change")
        self._recent[name] = metadata

    def update(self, topics: Mapping[str, TopicMetadata]) -> None:  # type: ignore[override]
        """Add topics that are not stored, without a look for them."""
        self._recent.update(topics)

    def __delitem__(self, name: str) -> None:
        if name in self._recent:
            del self._recent[name]
            return
        row = self._row(name)
        if row is None:
            raise KeyError(name)
        self._gone.add(row)
        self._described.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return self.since(0)

    def since(self, place: int) -> Iterator[str]:
        """Return an iterator over the names from a place in the order of creation."""
        row = place
        for gone in sorted(self._gone):
            if gone > row:
                break
            row += 1
        rows = len(self._bounds) - 1
        blocks = map(self._names, range(row, rows, _ROWS_AT_ONCE))
        return chain(chain.from_iterable(blocks), islice(self._recent, max(0, row - rows), None))

    def __reversed__(self) -> Iterator[str]:
        yield from reversed(self._recent)
        for first in reversed(range(0, len(self._bounds) - 1, _ROWS_AT_ONCE)):
            yield from reversed(self._names(first))

    def _names(self, first: int) -> list[str]:
        """Return the names of a block of rows that are not gone."""
        bounds = self._bounds[first : first + _ROWS_AT_ONCE + 1].tolist()
        data, offset = bytes(self._texts[bounds[0] : bounds[-1]]), bounds[0]
        if data.isascii():
            text = data.decode("ascii")
            names = [text[start - offset : end - offset] for start, end in pairwise(bounds)]
        else:
            pieces = (data[start - offset : end - offset] for start, end in pairwise(bounds))
            names = [piece.decode("utf-8", "surrogatepass") for piece in pieces]
        if self._gone:
            names = [name for row, name in enumerate(names, first) if row not in self._gone]
        return names

    def _row(self, name: str) -> int | None:
        """Return the row of a settled topic; None if it is gone, or was never there.

        A micro-batch asks several times for each name.
        """
        if name not in self._found:
            if len(self._found) == _FOUND:
                self._found.clear()
            self._found[name] = self._find(name)
        row = self._found[name]
        return None if row in self._gone else row

    def _find(self, name: str) -> int | None:
        """Return the row of a settled topic, whether or not it is gone; None if there is none."""
        data = name.encode("utf-8", "surrogatepass")
        wanted = _hash(data, self._secret)
        place = bisect_left(self._hashed, wanted)
        while place < len(self._hashed) and self._hashed[place] ^ wanted <= _ROW:
            row = self._hashed[place] & _ROW
            if self._texts[self._bounds[row] : self._bounds[row + 1]] == data:
                return row
            place += 1
        return None

    def settled(self) -> Arrays | None:
        """Return arrays of all topics; None if they are too many."""
        kept = np.ones(len(self._bounds) - 1, bool)
        kept[list(self._gone)] = False
        lengths = np.diff(self._arrays["bounds"]).astype(np.int64)
        texts, hashed = self._arrays["texts"], self._arrays["hashed"]
        if self._gone:
            texts = texts[np.repeat(kept, lengths)]
            rows = (hashed & np.uint64(_ROW)).astype(np.int64)
            places = (np.cumsum(kept) - 1).astype(np.uint64)
            hashed = (hashed >> np.uint64(_ROW_BITS) << np.uint64(_ROW_BITS) | places[rows])[kept[rows]]
        return _arrays(texts, lengths[kept], hashed, self._secret, self._recent)


StoredTopics = dict[str, TopicMetadata] | TopicTable
"""Topics of a shard in order of creation."""


def settled(topics: Mapping[str, TopicMetadata]) -> Arrays | None:
    """Return the arrays of topics, in their order; None if they are too many."""
    if isinstance(topics, TopicTable):
        return topics.settled()
    nothing = np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.uint64)
    return _arrays(*nothing, os.urandom(_SECRET_BYTES), topics)


def since(topics: StoredTopics, place: int) -> Iterator[str]:
    """Return an iterator over the names of topics from a place in their order."""
    return topics.since(place) if isinstance(topics, TopicTable) else islice(topics, place, None)


def described(topics: Mapping[str, TopicMetadata]) -> Mapping[str, TopicMetadata]:
    """Return all topics that have metadata, in order of creation, perhaps among others."""
    return topics.described if isinstance(topics, TopicTable) else topics


def _arrays(
    texts: npt.NDArray[Any],
    lengths: npt.NDArray[Any],
    hashed: npt.NDArray[Any],
    secret: bytes,
    recent: Iterable[str],
) -> Arrays | None:
    """Return the arrays of settled topics, with recent ones behind them."""
    names = [name.encode("utf-8", "surrogatepass") for name in recent]
    bounds = np.cumsum(np.concatenate(([0], lengths, np.fromiter(map(len, names), np.int64, len(names)))))
    if len(bounds) > _ROW or bounds[-1] > _MAX_TEXT_BYTES:
        return None
    entries = [_hash(name, secret) | row for row, name in enumerate(names, len(lengths))]
    return {
        "texts": np.concatenate((texts, np.frombuffer(b"".join(names), np.uint8))),
        "bounds": bounds.astype("<u4"),
        "hashed": np.sort(np.concatenate((hashed, np.array(entries, np.uint64)))).astype("<u8", copy=False),
        "secret": np.frombuffer(secret, np.uint8),
    }


def _hash(name: bytes, secret: bytes) -> int:
    """Return the hash of a name, in the upper bits of 64."""
    return int.from_bytes(blake2b(name, digest_size=8, key=secret).digest()) & ~_ROW
