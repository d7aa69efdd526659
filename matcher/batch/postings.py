"""Postings: topics by pattern, in arrays that do not have the texts of the topics."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from matcher.batch.segments import MAX_POSITIONS, Salt, Segments, at_positions, cut, hashes, matchable, pack
from matcher.index import TopicIndex
from matcher.index.topics import accepted
from matcher.pattern import MANY, ONE, Pattern, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from matcher.batch.codec import Arrays
    from matcher.batch.segments import Ints
    from matcher.dialects import Dialect

_BUCKET_BITS: Final = 14
_BUCKETS: Final = 1 << _BUCKET_BITS
_MARK_BITS: Final = 4
_MARK: Final = (1 << _MARK_BITS) - 1
_SHIFT: Final = np.uint64(64 - _BUCKET_BITS - _MARK_BITS)
_ROW_BITS: Final = np.uint64(32)  # with the mark
_MAX_COUNT: Final = 255
_CHARACTERS_AT_ONCE: Final = 1 << 20  # that are cut, as all may be separators
_ROWS_AT_ONCE: Final = 512  # that are read
_READINGS: Final = 3  # of all topics, which take as long as to index them and to find those of all patterns
_INDEXED_AT_ONCE: Final = 1 << 14  # topics
_FILTERED: Final = 16  # entries of postings whose filter costs at most as much as one topic to read

_Term = list[tuple[Any, np.uint32]]
"""For each place where a topic may have a literal: its bucket, and its mark."""


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
        """Yield topics that match one of the patterns, some at a time; a topic may occur several times.

        A pattern costs one filter over the topics with its rarest literal. One with a shape reads few topics that it
        does not match. Together, patterns read at most `_ROWS_AT_ONCE` topics each, and all topics four times.

        Args:
            patterns: patterns with wildcards.
            texts_of: returns the topics of rows; it may leave some out.
        """
        together, left = list[Pattern](), _READINGS * len(self)
        deep = int(np.count_nonzero(self._counts > MAX_POSITIONS))
        for pattern, terms in zip(patterns, self._terms(patterns), strict=True):
            weight = _READINGS if pattern.has_many else 1  # an automaton takes longer
            limit = max(left // weight, _ROWS_AT_ONCE)
            cost = min([_size(term) + deep * (len(term) > 1) for term in terms], default=len(self)) // _FILTERED
            rows = self._candidates(pattern, terms) if cost <= limit else None
            if rows is not None:
                left -= weight * (cost + len(rows))
            if rows is None or len(rows) > limit:
                together.append(pattern)
                continue
            for topics in _read(rows, texts_of, _ROWS_AT_ONCE):
                yield self._matching(pattern, topics)
        for topics in _read(self._counts.nonzero()[0], texts_of, _INDEXED_AT_ONCE) if together else ():
            index = TopicIndex(self._dialect)
            for topic in topics:
                index.add(topic)
            yield index.expand_any(together)

    def _matching(self, pattern: Pattern, topics: list[str]) -> list[str]:
        """Return those of some topics that a pattern matches."""
        topics = accepted(topics, pattern, self._dialect.separator)
        if self._dialect.reserved and pattern.starts_with_wildcard:
            return [topic for topic in topics if not self._dialect.hides(topic)]
        return topics

    def _terms(self, patterns: Sequence[Pattern]) -> Iterator[list[_Term]]:
        """Yield for each pattern the terms of its literals."""
        places_of = [_places_of_literals(pattern) for pattern in patterns]
        texts = pack([text for literals in places_of for text, _ in literals])
        sizes = [len(places) for literals in places_of for _, places in literals]
        places = np.array([place for literals in places_of for _, each in literals for place in each], np.int64)
        keys = iter(self._keys(np.repeat(hashes(texts, self._salt), sizes), places).tolist())
        for literals in places_of:
            yield [[self._bucket(key) for key in islice(keys, len(each))] for _, each in literals]

    def _candidates(self, pattern: Pattern, terms: list[_Term]) -> Ints:
        """Return the rows of all matching topics, and of others with the rarest literal, ascending."""
        if not terms:
            return np.flatnonzero(self._fits(self._counts, pattern))
        rarest, *others = sorted(terms, key=_size)
        found = [rows[rows & _MARK == mark] >> _MARK_BITS for rows, mark in rarest]
        if len(rarest) > 1:  # topics may also have it behind the places that postings know
            found.append((self._counts > MAX_POSITIONS).nonzero()[0])
        rows = np.concatenate(found).astype("<u4", copy=False)
        for term in others:
            if len(term) == 1:
                bucket, mark = term[0]
                wanted = rows << _MARK_BITS | mark
                rows = rows[bucket.take(bucket.searchsorted(wanted), mode="clip") == wanted]
        return np.unique(rows[self._fits(self._counts.take(rows), pattern)]).astype(np.int64)

    def _bucket(self, key: int) -> tuple[Any, np.uint32]:
        """Return the bucket of a key, and its mark."""
        number = key >> _MARK_BITS
        return self._rows[self._bounds[number] : self._bounds[number + 1]], np.uint32(key & _MARK)

    @staticmethod
    def _fits(counts: Any, pattern: Pattern) -> Any:
        """Return a mask of the counts that topics of a pattern may have."""
        least = min(max(1, len(pattern.segments) + (pattern.tail is Tail.SOME)), _MAX_COUNT)
        return counts == least if pattern.tail is Tail.END and not pattern.has_many else counts >= least

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


def _places_of_literals(pattern: Pattern) -> list[tuple[str, range]]:
    """Return literals of a pattern, each with its place, or with several where a topic of few segments may have it."""
    literals, is_fixed = list[tuple[str, range]](), True
    for place, segment in enumerate(pattern.whole[:MAX_POSITIONS]):
        if segment is MANY:
            is_fixed = False
        elif segment is not ONE and (is_fixed or place < MAX_POSITIONS - 1):
            literals.append((segment, range(place, place + 1 if is_fixed else MAX_POSITIONS)))
    return literals


def _size(term: _Term) -> int:
    """Return an upper bound of the topics that a term names."""
    return sum([len(rows) for rows, _ in term])


def _read(rows: Ints, texts_of: Callable[[Ints], list[str]], size: int) -> Iterator[list[str]]:
    """Yield the topics of rows, at most `size` at a time."""
    return (texts_of(rows[start : start + size]) for start in range(0, len(rows), size))


def _in_pieces(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield topics in pieces of about `_CHARACTERS_AT_ONCE`."""
    start = size = 0
    for end, topic in enumerate(topics, 1):
        size += len(topic)
        if size >= _CHARACTERS_AT_ONCE or end == len(topics):
            yield topics[start:end]
            start, size = end, 0
