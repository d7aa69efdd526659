"""The shapes of patterns: how a batch matcher divides them into groups that it can serve together."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from matcher.batch.segments import MAX_POSITIONS
from matcher.errors import CorruptIndex
from matcher.pattern import MANY, ONE, Pattern, Tail, Wildcard

MAX_SHAPES: Final = 96  # each costs a few operations a topic

Numbered = list[tuple[int, Pattern]]


class Shape(NamedTuple):
    """What patterns have in common that differ in their literals only.

    Attributes:
        tail: what may follow the segments.
        size: how many segments stand before that.
        wildcards: which of these are wildcards.
    """

    tail: Tail
    size: int
    wildcards: tuple[int, ...]

    @property
    def literals(self) -> tuple[int, ...]:
        """Which segments are literals."""
        return tuple(position for position in range(self.size) if position not in self.wildcards)

    @property
    def starts_with_wildcard(self) -> bool:
        """Whether the first segment of a topic is matched by a wildcard."""
        return not self.size or 0 in self.wildcards

    def fits(self, segments: int) -> bool:
        """Whether a topic of so many segments can match."""
        if self.tail is Tail.END:
            return segments == self.size
        return segments > self.size or (self.tail is Tail.ANY and segments == self.size)


def shape_of(pattern: Pattern) -> Shape | None:
    """Return the shape of a pattern; None where it has none that arrays can serve."""
    if pattern.has_many or pattern.tail is Tail.STARTS or len(pattern.segments) > MAX_POSITIONS:
        return None
    wildcards = tuple(place for place, segment in enumerate(pattern.segments) if segment is ONE)
    return Shape(pattern.tail, len(pattern.segments), wildcards)


def sort_out(patterns: Sequence[Pattern]) -> tuple[dict[Shape, Numbered], Numbered]:
    """Divide numbered patterns by shape, the `MAX_SHAPES` most frequent ones; return the others apart."""
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
    """Return a pattern as what JSON can hold."""
    segments = [None if segment is ONE else 0 if segment is MANY else segment for segment in pattern.segments]
    return [pattern.text, segments, pattern.tail.name, pattern.literal, pattern.policy]


def from_json(value: Any) -> Pattern:
    """Return the pattern that `to_json` took.

    Raises:
        CorruptIndex: it cannot have given this.
    """
    match value:
        case [str(text), [*parts], str(tail), str() | None as literal, str() | None as policy]:
            segments = tuple(ONE if part is None else MANY if part == 0 else part for part in parts)
            fine = all(isinstance(segment, str | Wildcard) for segment in segments) and tail in Tail.__members__
            if fine and (tail != Tail.STARTS.name or isinstance((None, *segments)[-1], str)):
                return Pattern(text, segments, Tail[tail], literal, policy, MANY in segments)
    raise CorruptIndex(f"the index holds {str(value)[:40]!r}, which is no pattern")


def shape_from_json(value: Any) -> Shape:
    """Return the shape that JSON made a list of.

    Raises:
        CorruptIndex: it cannot have been a shape.
    """
    match value:
        case ["END" | "SOME" | "ANY" as tail, int(size), [*wildcards]] if 0 <= size <= MAX_POSITIONS:
            if [place for place in range(size) if place in wildcards] == wildcards:
                return Shape(Tail[tail], size, tuple(wildcards))
    raise CorruptIndex(f"the index holds {str(value)[:40]!r}, which is no shape of patterns")
