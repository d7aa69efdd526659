"""Shapes of patterns, the groups served together by array operations, and the keys by which they find topics."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from matcher.batch.segments import MAX_POSITIONS, U64, Ints, Salt, Segments, at_positions, hashes, hidden, matchable
from matcher.dialects import Dialect
from matcher.errors import CorruptIndex
from matcher.pattern import MANY, ONE, Pattern, Tail, Wildcard

MAX_SHAPES: Final = 96  # shapes in arrays; each costs a few operations a topic

EMPTY: Final = np.uint64(0)  # never a key
_SLOTS_PER_KEY: Final = 16  # in the presence table: at most one absent key in 8 passes it
_PLACES_PER_KEY: Final = 4  # in the hash table, which is at most half full

Numbered = list[tuple[int, Pattern]]


class Shape(NamedTuple):
    """Shape of patterns: all of a pattern but its literals.

    Attributes:
        tail: tail after the segments.
        size: number of segments before the tail.
        wildcards: positions of the wildcards among them.
    """

    tail: Tail
    size: int
    wildcards: tuple[int, ...]

    @property
    def literals(self) -> tuple[int, ...]:
        """Positions of the literals."""
        return tuple(position for position in range(self.size) if position not in self.wildcards)

    @property
    def starts_with_wildcard(self) -> bool:
        """True if a wildcard matches the first segment of a topic."""
        return not self.size or 0 in self.wildcards

    def fits(self, segments: int) -> bool:
        """Return True if a topic with this number of segments can match."""
        if self.tail is Tail.END:
            return segments == self.size
        return segments > self.size or (self.tail is Tail.ANY and segments == self.size)


def shape_of(pattern: Pattern) -> Shape | None:
    """Return the shape of a pattern; None if arrays cannot serve it."""
    if pattern.has_many or pattern.tail is Tail.STARTS or len(pattern.segments) > MAX_POSITIONS:
        return None
    wildcards = tuple(place for place, segment in enumerate(pattern.segments) if segment is ONE)
    return Shape(pattern.tail, len(pattern.segments), wildcards)


def group_by_shape(patterns: Sequence[Pattern]) -> tuple[dict[Shape, Numbered], Numbered]:
    """Return numbered patterns by shape, for the `MAX_SHAPES` most frequent shapes, and all other patterns."""
    shapes: dict[Shape, Numbered] = {}
    others: Numbered = []
    for number, pattern in enumerate(patterns):
        shape = shape_of(pattern)
        if shape is None:
            others.append((number, pattern))
        else:
            shapes.setdefault(shape, []).append((number, pattern))
    for shape in sorted(shapes, key=lambda shape: len(shapes[shape]), reverse=True)[MAX_SHAPES:]:
        others += shapes.pop(shape)
    return shapes, others


def to_json(pattern: Pattern) -> list[Any]:
    """Return a pattern as a JSON value."""
    segments = [None if segment is ONE else 0 if segment is MANY else segment for segment in pattern.segments]
    return [pattern.text, segments, pattern.tail.name, pattern.literal, pattern.policy]


def from_json(value: Any) -> Pattern:
    """Return the pattern from a result of `to_json`; else raise `CorruptIndex`."""
    match value:
        case [str(text), [*parts], str(tail), str() | None as literal, str() | None as policy]:
            segments = tuple(ONE if part is None else MANY if part == 0 else part for part in parts)
            valid = all(isinstance(segment, str | Wildcard) for segment in segments) and tail in Tail.__members__
            if valid and (tail != Tail.STARTS.name or isinstance((None, *segments)[-1], str)):
                return Pattern(text, segments, Tail[tail], literal, policy, MANY in segments)
    raise CorruptIndex(f"the index holds {str(value)[:40]!r}, which is not a pattern")


def shape_from_json(value: Any) -> Shape:
    """Return the shape from its form in JSON, a list; else raise `CorruptIndex`."""
    match value:
        case ["END" | "SOME" | "ANY" as tail, int(size), [*wildcards]] if 0 <= size <= MAX_POSITIONS:
            if [place for place in range(size) if place in wildcards] == wildcards:
                return Shape(Tail[tail], size, tuple(wildcards))
    raise CorruptIndex(f"the index holds {str(value)[:40]!r}, which is not a shape of patterns")


def probes(
    segments: Segments,
    dialect: Dialect,
    shapes: Sequence[Shape],
    salt: Salt,
    candidates: Callable[[U64], Ints],
) -> tuple[U64, Ints, Ints]:
    """Return the keys that patterns would have that match topics, with the topics and the shapes, as three arrays.

    The key of a pattern is the sum of a hash for each literal at its position; the key of a topic for a shape is the
    sum over its segments less those under wildcards.

    Args:
        segments: the topics.
        dialect: dialect of topics and patterns.
        shapes: shapes of the patterns, which are numbered in this order.
        salt: of the hashes.
        candidates: returns the places of the keys that are worth a look-up.
    """
    counts = np.where(matchable(segments, dialect), np.minimum(segments.counts, MAX_POSITIONS + 1), 0)
    places = np.arange(len(segments.starts)) - np.repeat(segments.first[:-1], segments.counts)
    mixed = at_positions(hashes(segments, salt), places, salt)
    sums = np.zeros(len(mixed) + 1, np.uint64)
    mixed.cumsum(out=sums[1:])
    found = [(sums[:0], places[:0], places[:0])]
    for count in np.bincount(counts).nonzero()[0].tolist():
        fitting = [number for number, shape in enumerate(shapes) if shape.fits(count)] if count else []
        if not fitting:
            continue
        rows = (counts == count).nonzero()[0]
        begins = segments.first[rows]
        columns = [mixed.take(begins + place) for place in range(min(count, MAX_POSITIONS))]
        bases: dict[tuple[Tail, int], U64] = {}
        out = np.empty((len(fitting), len(rows)), np.uint64)
        for place_of_line, number in enumerate(fitting):
            line, shape = out[place_of_line], shapes[number]
            base = bases.get(shape[:2])
            if base is None:
                base = bases[shape[:2]] = (
                    sums.take(begins + shape.size) - sums.take(begins) + salt.of(shape.tail, shape.size)
                )
            np.subtract(base, columns[shape.wildcards[0]] if shape.wildcards else np.uint64(0), out=line)
            for place in shape.wildcards[1:]:
                line -= columns[place]
        flat = out.ravel()
        hits = candidates(flat)
        lines, columns_hit = np.divmod(hits, len(rows))
        found.append((flat.take(hits), rows.take(columns_hit), np.array(fitting).take(lines)))
    keys, rows, numbers = map(np.concatenate, zip(*found, strict=True))
    unseen = hidden(segments, dialect)
    if unseen is not None:
        wild = np.array([shape.starts_with_wildcard for shape in shapes], np.bool_)
        seen = (~(unseen[rows] & wild[numbers])).nonzero()[0]
        keys, rows, numbers = keys[seen], rows[seen], numbers[seen]
    return keys, rows, numbers


class Keys:
    """Hash table of sorted, distinct keys other than `EMPTY`, built with a few array operations.

    A key is at the place given by its first bits, or at the next free place after it. A presence table with one byte
    per slot is checked first, which drops nearly all absent keys.
    """

    __slots__ = ("_numbers", "_presence_shift", "_present", "_table", "_table_shift")

    def __init__(self, keys: U64) -> None:
        self._presence_shift = np.uint64(64 - _index_bits(_SLOTS_PER_KEY * len(keys)))
        self._table_shift = np.uint64(64 - _index_bits(_PLACES_PER_KEY * len(keys)))
        self._present = np.zeros(1 << 64 - int(self._presence_shift), np.bool_)
        self._present[keys >> self._presence_shift] = True
        order = np.arange(len(keys))
        wanted = (keys >> self._table_shift).view(np.int64)
        places = np.maximum.accumulate(wanted - order) + order
        size = max(1 << 64 - int(self._table_shift), int(places[-1]) + 1 if len(keys) else 0) + 1
        self._table = np.full(size, EMPTY)
        self._table[places] = keys
        self._numbers = np.zeros(size, np.int32)
        self._numbers[places] = order

    @property
    def nbytes(self) -> int:
        """Size of the tables, in bytes."""
        return self._present.nbytes + self._table.nbytes + self._numbers.nbytes

    def candidates(self, keys: U64) -> Ints:
        """Return the places of keys to look up: all present ones, and a few absent ones."""
        return self._present.take((keys >> self._presence_shift).view(np.int64)).nonzero()[0]

    def find(self, keys: U64) -> tuple[Ints, Ints]:
        """Return (place, number among the sorted keys) for each key that is present, as two arrays."""
        asked = np.arange(len(keys))
        places = (keys >> self._table_shift).view(np.int64)
        found_asked, found_numbers = [asked[:0]], [self._numbers[:0]]
        while len(asked):
            stored = self._table.take(places)
            hits = (stored == keys).nonzero()[0]
            found_asked.append(asked.take(hits))
            found_numbers.append(self._numbers.take(places.take(hits)))
            # Keys are in order, so a larger key ends the search.
            others = ((stored < keys) & (stored != EMPTY)).nonzero()[0]
            asked, keys, places = asked.take(others), keys.take(others), places.take(others) + 1
        return np.concatenate(found_asked), np.concatenate(found_numbers)


def usable(keys: U64) -> bool:
    """Return True if sorted keys are distinct and none is `EMPTY`."""
    return bool((keys[1:] != keys[:-1]).all() and (keys[:1] != EMPTY).all())


def _index_bits(number: int) -> int:
    return max(8, number.bit_length() - 1)
