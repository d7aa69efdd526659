"""Parsed patterns, in one form for all dialects, and their match against topics."""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BLOCK_BITS: Final = 2_048
"""Maximum number of bits of an automaton; a second automaton then costs no more than longer steps of the first."""

_FEW: Final = 8  # positions that are set one by one in a mask


class Wildcard(Enum):
    """Wildcard in place of a literal segment."""

    ONE = "exactly one segment"
    MANY = "one or more segments"


class Tail(Enum):
    """Remainder of a topic, after the segments of a pattern."""

    END = "nothing"
    SOME = "one or more further segments"
    ANY = "zero or more further segments"
    STARTS = "the rest of the last segment, then zero or more further segments"

    @property
    def may_end(self) -> bool:
        """True if a topic may end with the segments of the pattern."""
        return self in (Tail.END, Tail.ANY)

    @property
    def may_go_on(self) -> bool:
        """True if a topic may have more segments than the pattern."""
        return self is not Tail.END


ONE: Final = Wildcard.ONE
MANY: Final = Wildcard.MANY
Segment: TypeAlias = str | Literal[Wildcard.ONE, Wildcard.MANY]


class Pattern(NamedTuple):
    """Parsed pattern.

    A trailing multi-segment wildcard is the `tail`; further left it is a `MANY` among the segments. With `Tail.STARTS`
    the last segment is a literal, and no segment is a `MANY`.

    Attributes:
        text: pattern as it was written.
        segments: literals and wildcards, left to right.
        tail: remainder of a topic after the segments.
        literal: the only matching topic, for a pattern without any wildcard; else None.
        policy: requested match policy, in dialects that have match policies.
        has_many: True if a `MANY` is among the segments.
    """

    text: str
    segments: tuple[Segment, ...]
    tail: Tail = Tail.END
    literal: str | None = None
    policy: str | None = None
    has_many: bool = False

    @property
    def starts_with_wildcard(self) -> bool:
        """True if a wildcard matches the first segment of a topic."""
        return isinstance(self.segments[0], Wildcard) if self.segments else True

    @property
    def whole(self) -> tuple[Segment, ...]:
        """Segments matched as a whole: all, except the last with `Tail.STARTS`."""
        return self.segments[:-1] if self.tail is Tail.STARTS else self.segments

    def accepts(self, topic: Sequence[str]) -> bool:
        """Return True if the pattern matches a topic, given by its segments.

        Linear in the length of the pattern; with inner `MANY`, (segments of the topic) x (segments of the pattern / 64)
        operations more. Never recursive.
        """
        if self.has_many:
            return Automaton([self]).accepts(topic)
        wanted = self.whole
        further = len(topic) - len(wanted)
        if self.tail is Tail.END:
            fits = further == 0
        elif self.tail is Tail.SOME:
            fits = further > 0
        elif self.tail is Tail.ANY:
            fits = further >= 0
        else:
            fits = further > 0 and topic[len(wanted)].startswith(str(self.segments[-1]))
        return fits and all(want is ONE or want == have for want, have in zip(wanted, topic, strict=False))


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

    def __init__(self, patterns: Iterable[Pattern]) -> None:
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


def in_blocks(patterns: Iterable[Pattern]) -> Iterator[list[Pattern]]:
    """Yield lists of patterns of at most `BLOCK_BITS` bits together, or of one pattern."""
    block: list[Pattern] = []
    size = 0
    for pattern in patterns:
        size += bits_of(pattern)
        if block and size > BLOCK_BITS:
            yield block
            block, size = [], bits_of(pattern)
        block.append(pattern)
    if block:
        yield block


def bits_of(pattern: Pattern) -> int:
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
