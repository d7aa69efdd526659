"""Postings: topics by pattern, in arrays that do not have the texts of the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from matcher.batch.segments import MAX_POSITIONS, Salt, at_positions, cut, hashes, matchable, pack
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
_SHIFT: Final = np.uint64(64 - _BUCKET_BITS)
_MAX_COUNT: Final = 255
_CHARACTERS_AT_ONCE: Final = 1 << 20  # that are cut, as all may be separators
_ROWS_AT_ONCE: Final = 512  # that are read


class _Postings(NamedTuple):
    """Buckets and rows of some topics, in order of the rows, and the number of segments of each topic."""

    buckets: Any
    rows: Any
    counts: Any


class Postings:
    """Fewer than 2**28 topics by their segments. They take 4 bytes per segment, 1 per topic, and 64 kB in all.

        rows    rows of topics by bucket, ascending: one for each of the first `MAX_POSITIONS` segments of a topic
        bounds  start of each bucket, and the end of the last one
        counts  number of segments of each topic, at most 255; 0 if no pattern matches it

    A bucket has the segments with the same 14 bits of a keyed hash of text and position, so topics are compared with
    the pattern when they are read.

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

        A pattern costs one filter over the topics with its rarest literal, and reads hardly any others than it matches.

        Args:
            patterns: those for which `shape_of` returns a shape.
            texts_of: returns the topics of rows; it may leave some out.
        """
        separator, reserved = self._dialect.separator, self._dialect.reserved
        for pattern, rows in zip(patterns, self._candidates(patterns), strict=True):
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                found = accepted(texts_of(rows[start : start + _ROWS_AT_ONCE]), pattern, separator)
                if reserved and pattern.starts_with_wildcard:
                    found = [topic for topic in found if not topic.startswith(reserved)]
                yield found

    def _candidates(self, patterns: Sequence[Pattern]) -> list[Ints]:
        """Return rows for each pattern, ascending: those of all matching topics, and a few others."""
        literals = [
            [(place, str(segment)) for place, segment in enumerate(pattern.segments) if segment is not ONE]
            for pattern in patterns
        ]
        texts = pack([text for own in literals for _, text in own])
        places = np.array([place for own in literals for place, _ in own], np.int64)
        buckets = iter(self._buckets(hashes(texts, self._salt), places).tolist())
        return [
            self._select(pattern, [next(buckets) for _ in own]) for pattern, own in zip(patterns, literals, strict=True)
        ]

    def _select(self, pattern: Pattern, buckets: list[int]) -> Ints:
        least = len(pattern.segments) + (pattern.tail is Tail.SOME)
        postings = sorted((self._rows[self._bounds[each] : self._bounds[each + 1]] for each in buckets), key=len)
        if not postings:
            return np.flatnonzero(self._fits(self._counts, pattern.tail, least))
        rows = postings[0]
        for others in postings[1:]:
            rows = rows[others.take(others.searchsorted(rows), mode="clip") == rows]
        return np.unique(rows[self._fits(self._counts.take(rows), pattern.tail, least)]).astype(np.int64)

    @staticmethod
    def _fits(counts: Any, tail: Tail, least: int) -> Any:
        return counts == least if tail is Tail.END else counts >= max(1, least)

    def replaced(self, gone: Collection[int], added: Sequence[str]) -> Arrays:
        """Return the arrays without some rows, with other topics behind the rest."""
        parts = [self._without(gone)]
        for topics in _in_pieces(added):
            parts.append(self._postings_of(topics, sum(len(part.counts) for part in parts)))
        found = _Postings(*map(np.concatenate, zip(*parts, strict=True)))
        bounds = np.cumsum(np.bincount(found.buckets, minlength=_BUCKETS))
        return {
            "rows": found.rows[np.argsort(found.buckets, kind="stable")],
            "bounds": np.concatenate(([0], bounds)).astype("<u4"),
            "counts": found.counts,
        }

    def _without(self, gone: Collection[int]) -> _Postings:
        rows = self._rows
        sizes = self._bounds[1:] - self._bounds[:-1]
        buckets = np.repeat(np.arange(_BUCKETS, dtype=np.uint16), sizes)
        if not gone:
            return _Postings(buckets, rows, self._counts)
        kept = np.ones(len(self), bool)
        kept[list(gone)] = False
        places = (np.cumsum(kept) - 1).astype("<u4")
        stay = kept[rows]
        return _Postings(buckets[stay], places[rows[stay]], self._counts[kept])

    def _postings_of(self, topics: Sequence[str], first: int) -> _Postings:
        """Return the postings of new topics, whose rows are those from `first` on."""
        segments = cut(topics, self._dialect)
        counts = np.where(matchable(segments, self._dialect), segments.counts, 0)
        owners = np.repeat(np.arange(len(topics)), segments.counts)
        places = np.arange(len(owners)) - segments.first[owners]
        taken = places < MAX_POSITIONS
        buckets = self._buckets(hashes(segments, self._salt), places)[taken]
        return _Postings(buckets, (owners[taken] + first).astype("<u4"), np.minimum(counts, _MAX_COUNT).astype("|u1"))

    def _buckets(self, hashed: Any, places: Ints) -> Any:
        return (at_positions(hashed, places, self._salt) >> _SHIFT).astype(np.uint16)


def _in_pieces(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield topics in pieces of about `_CHARACTERS_AT_ONCE`."""
    start = size = 0
    for end, topic in enumerate(topics, 1):
        size += len(topic)
        if size >= _CHARACTERS_AT_ONCE or end == len(topics):
            yield topics[start:end]
            start, size = end, 0
