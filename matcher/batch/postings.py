"""Postings: topics by pattern, in arrays that do not have the texts of the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from matcher.batch.segments import MAX_POSITIONS, Salt, Segments, at_positions, cut, hashes, matchable, pack
from matcher.index.topics import accepted
from matcher.pattern import ONE, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from matcher.batch.codec import Arrays
    from matcher.batch.segments import Ints
    from matcher.dialects import Dialect
    from matcher.pattern import Pattern

_BUCKET_BITS: Final = 14
_BUCKETS: Final = 1 << _BUCKET_BITS
_MARK_BITS: Final = 4
_MARK: Final = (1 << _MARK_BITS) - 1
_SHIFT: Final = np.uint64(64 - _BUCKET_BITS - _MARK_BITS)
_ROW_BITS: Final = np.uint64(32)  # with the mark
_MAX_COUNT: Final = 255
_CHARACTERS_AT_ONCE: Final = 1 << 20  # that are cut, as all may be separators
_ROWS_AT_ONCE: Final = 512  # that are read


class _Postings(NamedTuple):
    """Postings of some topics: bucket, row and mark of each segment in 64 bits, and the counts as in `Postings`."""

    keyed: Any
    counts: Any


class Postings:
    """Fewer than 2**28 topics by their segments. They take 4 bytes per segment, 1 per topic, and 64 kB in all.

        rows    by bucket: for each of the first `MAX_POSITIONS` segments of a topic its row, then the mark; sorted
        bounds  start of each bucket, and the end of the last one
        counts  number of segments of each topic, at most 255; 0 if no pattern matches it

    Bucket and mark are 14 and 4 bits of a keyed hash of the segment and its position. Different segments can have the
    same bits, so topics are compared with the pattern when they are read.

    Args:
        arrays: those of `replaced`.
        dialect: dialect of all topics and patterns.
        secret: key of the hashes, so that a producer cannot choose segments with equal hashes.
    """

    def __init__(self, arrays: Arrays, dialect: Dialect, secret: bytes) -> None:
        self._rows, self._bounds, self._counts = (arrays[name] for name in ("rows", "bounds", "counts"))
        self._dialect = dialect
        self._salt = Salt(secret)

    @classmethod
    def empty(cls, dialect: Dialect, secret: bytes) -> Postings:
        """Return the postings of no topics."""
        arrays = {"rows": np.zeros(0, "<u4"), "bounds": np.zeros(_BUCKETS + 1, "<u4"), "counts": np.zeros(0, "|u1")}
        return cls(arrays, dialect, secret)

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._counts)

    def expand(self, patterns: Sequence[Pattern], texts_of: Callable[[Ints], list[str]]) -> Iterator[list[str]]:
        """Yield topics that match one of the patterns, some at a time.

        A pattern costs one filter over the topics with its rarest literal, and reads few others than it matches.

        Args:
            patterns: those for which `shape_of` returns a shape.
            texts_of: returns the topics of rows; it may leave some out.
        """
        literals = [
            [(place, str(segment)) for place, segment in enumerate(pattern.segments) if segment is not ONE]
            for pattern in patterns
        ]
        texts = pack([text for own in literals for _, text in own])
        places = np.array([place for own in literals for place, _ in own], np.int64)
        keys = iter(self._keys(hashes(texts, self._salt), places).tolist())
        for pattern, own in zip(patterns, literals, strict=True):
            rows = self._candidates(pattern, [next(keys) for _ in own])
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                found = accepted(texts_of(rows[start : start + _ROWS_AT_ONCE]), pattern, self._dialect.separator)
                if self._dialect.reserved and pattern.starts_with_wildcard:
                    found = [topic for topic in found if not self._dialect.hides(topic)]
                yield found

    def _candidates(self, pattern: Pattern, keys: list[int]) -> Ints:
        """Return the rows of all matching topics, and of a few others, ascending."""
        least = len(pattern.segments) + (pattern.tail is Tail.SOME)
        buckets = [(self._bucket(key >> _MARK_BITS), np.uint32(key & _MARK)) for key in keys]
        if not buckets:
            return np.flatnonzero(self._fits(self._counts, pattern.tail, least))
        (rarest, mark), *others = sorted(buckets, key=lambda bucket: len(bucket[0]))
        rows = rarest[rarest & _MARK == mark] >> _MARK_BITS
        for bucket, mark in others:
            wanted = rows << _MARK_BITS | mark
            rows = rows[bucket.take(bucket.searchsorted(wanted), mode="clip") == wanted]
        return np.unique(rows[self._fits(self._counts.take(rows), pattern.tail, least)]).astype(np.int64)

    def _bucket(self, number: int) -> Any:
        return self._rows[self._bounds[number] : self._bounds[number + 1]]

    @staticmethod
    def _fits(counts: Any, tail: Tail, least: int) -> Any:
        return counts == least if tail is Tail.END else counts >= max(1, least)

    def replaced(self, gone: Collection[int], added: Sequence[str]) -> Arrays:
        """Return the arrays without some rows, with other topics behind the rest."""
        parts = [self._without(gone)]
        for topics in _in_pieces(added):
            parts.append(self._postings_of(topics, sum(len(part.counts) for part in parts)))
        found = _Postings(*map(np.concatenate, zip(*parts, strict=True)))
        found.keyed.sort(kind="stable")  # merges the sorted parts
        starts = np.arange(_BUCKETS + 1, dtype=np.uint64) << _ROW_BITS
        return {
            "rows": found.keyed.astype("<u4"),
            "bounds": found.keyed.searchsorted(starts).astype("<u4"),
            "counts": found.counts,
        }

    def _without(self, gone: Collection[int]) -> _Postings:
        buckets = np.repeat(np.arange(_BUCKETS, dtype=np.uint64), self._bounds[1:] - self._bounds[:-1])
        if not gone:
            return _Postings(buckets << _ROW_BITS | self._rows, self._counts)
        kept = np.ones(len(self), bool)
        kept[list(gone)] = False
        places = (np.cumsum(kept) - 1).astype("<u4")
        former = self._rows >> _MARK_BITS
        rows = places[former] << _MARK_BITS | self._rows & _MARK
        return _Postings((buckets << _ROW_BITS | rows)[kept[former]], self._counts[kept])

    def _postings_of(self, topics: Sequence[str], first: int) -> _Postings:
        """Return the postings of new topics, whose rows are those from `first` on."""
        segments = cut(topics, self._dialect)
        counts = np.where(matchable(segments, self._dialect), segments.counts, 0)
        owners = np.repeat(np.arange(len(topics)), segments.counts)
        places = np.arange(len(owners)) - segments.first[owners]
        taken = (places < MAX_POSITIONS).nonzero()[0]
        parts = segments.starts[taken], segments.lengths[taken], segments.words[taken]
        hashed = hashes(Segments(segments.data, segments.first, *parts), self._salt)
        keys = self._keys(hashed, places[taken]).astype(np.uint64)
        rows = (owners[taken] + first).astype(np.uint64)
        buckets, marks = keys >> np.uint64(_MARK_BITS), keys & np.uint64(_MARK)
        keyed = buckets << _ROW_BITS | rows << np.uint64(_MARK_BITS) | marks
        return _Postings(np.sort(keyed), np.minimum(counts, _MAX_COUNT).astype("|u1"))

    def _keys(self, hashed: Any, places: Ints) -> Any:
        return at_positions(hashed, places, self._salt) >> _SHIFT


def _in_pieces(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield topics in pieces of about `_CHARACTERS_AT_ONCE`."""
    start = size = 0
    for end, topic in enumerate(topics, 1):
        size += len(topic)
        if size >= _CHARACTERS_AT_ONCE or end == len(topics):
            yield topics[start:end]
            start, size = end, 0
