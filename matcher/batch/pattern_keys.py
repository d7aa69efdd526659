"""PatternKeys: patterns by topic, in arrays that do not have the texts of the patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from matcher.batch.segments import TOPICS_AT_ONCE, Salt, at_positions, cut, hashes, ranges, same_text
from matcher.batch.shapes import probes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matcher.batch.codec import Arrays
    from matcher.batch.segments import U64, Flags, Ints, Segments
    from matcher.batch.shapes import Shape
    from matcher.dialects import Dialect

_ROW: Final = np.uint64((1 << 28) - 1)
_HITS_AT_ONCE: Final = 1024  # limits the memory for the texts of their patterns


class PatternKeys:
    """Index of fewer than 2**28 patterns by their keys (see `FlatPatterns`), for batches of topics.

        keys    36 bits of the key of each pattern, then 28 bits of its row; sorted
        shapes  number of the shape of each pattern, in the same order

    Different patterns can have the same bits, so topics are compared with the texts of the patterns.

    Args:
        arrays: those of `filled`.
        shapes: all shapes, at most 256.
        dialect: dialect of all patterns, one with `whole_wildcards`.
        secret: key of the hashes, so that users cannot choose many patterns with equal keys.
    """

    def __init__(self, arrays: Arrays, shapes: Sequence[Shape], dialect: Dialect, secret: bytes) -> None:
        self._keys, self._numbers = arrays["keys"], arrays["shapes"]
        self._shapes = shapes
        self._dialect = dialect
        self._salt = Salt(secret)

    @classmethod
    def empty(cls, shapes: Sequence[Shape], dialect: Dialect, secret: bytes) -> PatternKeys:
        """Return the keys of no patterns."""
        return cls({"keys": np.zeros(0, "<u8"), "shapes": np.zeros(0, "|u1")}, shapes, dialect, secret)

    def filled(self, texts: Sequence[str], rows: Ints, numbers: Ints) -> Arrays:
        """Return the arrays for some patterns, given their rows and the numbers of their shapes."""
        segments = cut(texts, self._dialect)
        hashed, keys = hashes(segments, self._salt), np.zeros(len(texts), np.uint64)
        for number, shape in enumerate(self._shapes):
            own = (numbers == number).nonzero()[0]
            keys[own] = self._salt.of(shape.tail, shape.size)
            for place in shape.literals:
                literals = hashed[segments.first[own] + place]
                keys[own] += at_positions(literals, np.full(len(own), place), self._salt)
        keyed = keys & ~_ROW | rows.astype(np.uint64)
        order = np.argsort(keyed)
        return {"keys": keyed[order], "shapes": numbers[order].astype(np.uint8)}

    def match_batch(self, topics: Sequence[str], texts_of: Callable[[Ints], list[str]]) -> tuple[Ints, Ints]:
        """Return (number of the topic, row of the pattern) for each match, as two arrays in no particular order.

        Args:
            topics: any topics.
            texts_of: returns the patterns of rows.
        """
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for start in range(0, len(topics), TOPICS_AT_ONCE):
            numbers, rows = self._match_some(topics[start : start + TOPICS_AT_ONCE], texts_of)
            found.append((numbers + start, rows))
        numbers, rows = map(np.concatenate, zip(*found, strict=True))
        return numbers, rows

    def _match_some(self, topics: Sequence[str], texts_of: Callable[[Ints], list[str]]) -> tuple[Ints, Ints]:
        segments = cut(topics, self._dialect)
        keys, numbers, shapes = probes(segments, self._dialect, self._shapes, self._salt, self._present)
        asked, places = ranges(self._keys.searchsorted(keys & ~_ROW), self._keys.searchsorted(keys | _ROW, "right"))
        real = self._numbers[places] == shapes[asked]
        asked, rows = asked[real], (self._keys[places[real]] & _ROW).astype(np.int64)
        numbers, shapes = numbers[asked], shapes[asked]
        parts = [np.zeros(0, np.bool_)]
        for start in range(0, len(rows), _HITS_AT_ONCE):
            some = slice(start, start + _HITS_AT_ONCE)
            parts.append(self._same(segments, numbers[some], shapes[some], rows[some], texts_of))
        real = np.concatenate(parts)
        return numbers[real], rows[real]

    def _present(self, keys: U64) -> Ints:
        """Return the places of keys that a pattern may have."""
        if not len(self._keys):
            return np.zeros(0, np.int64)
        nearest = self._keys.take(self._keys.searchsorted(keys & ~_ROW), mode="clip")
        return (nearest ^ keys <= _ROW).nonzero()[0]

    def _same(
        self, segments: Segments, numbers: Ints, shapes: Ints, rows: Ints, texts_of: Callable[[Ints], list[str]]
    ) -> Flags:
        """Return a mask of the pairs in which each literal of the pattern is the segment of the topic."""
        different, own = np.unique(rows, return_inverse=True)
        texts, same = cut(texts_of(different), self._dialect), np.ones(len(rows), np.bool_)
        for number in np.unique(shapes).tolist():
            pairs = (shapes == number).nonzero()[0]
            here, there = segments.first[numbers[pairs]], texts.first[own[pairs]]
            for place in self._shapes[number].literals:
                same[pairs] &= same_text(segments, here + place, texts, there + place)
        return same
