"""Automaton of patterns with inner multi-segment wildcards, whose states are the bits of one integer."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from matcher.wildcards import MANY, Wildcard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matcher.wildcards import Segment, Tail

BLOCK_BITS: Final = 2_048
"""Maximum number of bits of an automaton; a second automaton then costs no more than longer steps of the first."""

_FEW: Final = 8  # positions that are set one by one in a mask


class Form(Protocol):
    """Parts of a pattern that an automaton needs; see `matcher.Pattern`."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Literals and wildcards."""

    @property
    def tail(self) -> Tail:
        """Remainder of a topic after the segments."""

    @property
    def starts_with_wildcard(self) -> bool:
        """True if a wildcard matches the first segment of a topic."""


F = TypeVar("F", bound=Form)


class Automaton:
    """Patterns matched together, segment by segment of a topic; immutable.

    Each pattern has a bit for its start, one for each segment, and one for a tail. A bit is set if a topic, up to the
    segment read last, fits the pattern up to there. A step shifts the bits of all patterns at once, so it costs
    (number of bits) / 64 operations of the processor, for any patterns and any topic.

    Args:
        patterns: patterns without `Tail.STARTS`.

    Attributes:
        tails: bits of tails; once set, such a bit stays set for every longer topic.
    """

    __slots__ = ("_ends", "_literals", "_many", "_owners", "_starts", "_texts", "_visible", "_wild", "tails")

    def __init__(self, patterns: Iterable[Form]) -> None:
        self._starts = self._visible = 0
        literals: dict[str, list[int]] = defaultdict(list)
        wild: list[int] = []
        many: list[int] = []
        tails: list[int] = []
        self._owners: dict[int, int] = {}
        position = 0
        for number, pattern in enumerate(patterns):
            self._starts |= 1 << position
            if not pattern.starts_with_wildcard:
                self._visible |= 1 << position
            for segment in pattern.segments:
                position += 1
                if not isinstance(segment, Wildcard):
                    literals[segment].append(position)
                    continue
                wild.append(position)
                if segment is MANY:
                    many.append(position)
            if pattern.tail.may_end:
                self._owners[position] = number
            if pattern.tail.may_go_on:
                position += 1
                tails.append(position)
                self._owners[position] = number
            position += 1
        self._texts = {place: text for text, places in literals.items() for place in places}
        # A literal at one place is stored as the complement of its position: masks of many literals take much memory.
        self._literals = {text: ~places[0] if len(places) == 1 else _mask(places) for text, places in literals.items()}
        self.tails = _mask(tails)
        self._wild, self._many = _mask(wild) | self.tails, _mask(many) | self.tails
        self._ends = _mask(list(self._owners))

    def start(self, *, hidden: bool = False) -> int:
        """Return the state before the first segment; of a hidden topic, without patterns that begin with a wildcard."""
        return self._visible if hidden else self._starts

    def step(self, state: int, segment: str) -> int:
        """Return the state after one more segment; 0 if no pattern can match."""
        literal = self._literals.get(segment, 0)
        if literal < 0:
            literal = 1 << ~literal
        return state << 1 & (literal | self._wild) | state & self._many

    def accepts(self, segments: Sequence[str], state: int | None = None) -> bool:
        """Return True if a pattern matches a topic with these segments, the further ones if there is a state."""
        if state is None:
            state = self._starts
        for segment in segments:
            state = self.step(state, segment)
            if not state:
                return False
        return bool(state & self._ends)

    def wanted(self, state: int, limit: int) -> list[str] | None:
        """Return the segments that a step from this state may take; None if any may, or more than `limit`."""
        following = state << 1
        if following & self._wild or state & self._many or following.bit_count() > limit:
            return None
        return list({text for position in _positions(following) if (text := self._texts.get(position)) is not None})

    def matches(self, state: int) -> bool:
        """Return True if a pattern matches the topic that led to this state."""
        return bool(state & self._ends)

    def matching(self, state: int) -> Iterator[int]:
        """Yield the number of each pattern that matches the topic that led to this state."""
        return (self._owners[position] for position in _positions(state & self._ends))


def in_blocks(patterns: Iterable[F]) -> Iterator[list[F]]:
    """Yield lists of patterns of at most `BLOCK_BITS` bits together, or of one pattern."""
    block: list[F] = []
    size = 0
    for pattern in patterns:
        size += bits_of(pattern)
        if block and size > BLOCK_BITS:
            yield block
            block, size = [], bits_of(pattern)
        block.append(pattern)
    if block:
        yield block


def bits_of(pattern: Form) -> int:
    """Return the number of bits that an automaton has for a pattern, at most."""
    return 2 + len(pattern.segments)


def _positions(number: int) -> Iterator[int]:
    """Yield the positions of the bits that are set."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def _mask(positions: list[int]) -> int:
    """Return the number with these bits, given in ascending order."""
    if len(positions) < _FEW:
        return sum(1 << position for position in positions)
    data = bytearray(positions[-1] // 8 + 1)
    for position in positions:
        data[position // 8] |= 1 << position % 8
    return int.from_bytes(data, "little")
