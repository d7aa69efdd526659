"""Shapes of patterns: the groups served together by array operations."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from matcher.batch.segments import MAX_POSITIONS
from matcher.errors import CorruptIndex
from matcher.pattern import MANY, ONE, Pattern, Tail, Wildcard

MAX_SHAPES: Final = 96  # shapes in arrays; each costs a few operations a topic

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
    """Return the pattern from a result of `to_json`.

    Raises:
        CorruptIndex: the value is not a result of `to_json`.
    """
    match value:
        case [str(text), [*parts], str(tail), str() | None as literal, str() | None as policy]:
            segments = tuple(ONE if part is None else MANY if part == 0 else part for part in parts)
            valid = all(isinstance(segment, str | Wildcard) for segment in segments) and tail in Tail.__members__
            if valid and (tail != Tail.STARTS.name or isinstance((None, *segments)[-1], str)):
                return Pattern(text, segments, Tail[tail], literal, policy, MANY in segments)
    raise CorruptIndex(f"the index holds {str(value)[:40]!r}, which is not a pattern")


def shape_from_json(value: Any) -> Shape:
    """Return the shape from its form in JSON, a list.

    Raises:
        CorruptIndex: the value is not a shape.
    """
    match value:
        case ["END" | "SOME" | "ANY" as tail, int(size), [*wildcards]] if 0 <= size <= MAX_POSITIONS:
            if [place for place in range(size) if place in wildcards] == wildcards:
                return Shape(Tail[tail], size, tuple(wildcards))
    raise CorruptIndex(f"the index holds {str(value)[:40]!r}, which is not a shape of patterns")
