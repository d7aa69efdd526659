"""Parsed patterns, in one form for all dialects, and their match against one topic."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias


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


ONE: Final = Wildcard.ONE
MANY: Final = Wildcard.MANY
Segment: TypeAlias = str | Literal[Wildcard.ONE, Wildcard.MANY]


class Pattern(NamedTuple):
    """Parsed pattern.

    A trailing multi-segment wildcard is the `tail`; one further left is a `MANY` among the segments. With
    `Tail.STARTS` the last segment is a literal.

    Attributes:
        text: pattern as it was written.
        segments: literals and wildcards, left to right.
        tail: remainder of a topic after the segments.
        literal: the only matching topic, for a pattern without any wildcard; else None.
        policy: requested match policy, in dialects that have match policies.
        has_many: True if a `MANY` stands among the segments.
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
        """Segments matched as a whole: all but the last one of `Tail.STARTS`."""
        return self.segments[:-1] if self.tail is Tail.STARTS else self.segments

    def accepts(self, topic: Sequence[str]) -> bool:
        """Return True if the pattern matches a topic, given by its segments.

        Linear in the length of the pattern; with inner `MANY`, at most (segments of the topic) x (longest run of
        pattern segments between two `MANY`) comparisons. Never recursive.
        """
        if self.has_many:
            return self._accepts_many(topic)
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

    def _accepts_many(self, topic: Sequence[str]) -> bool:
        end = len(self.segments)
        active = [0]
        for segment in topic:
            if self.tail is not Tail.END and active[0] == end:
                return True
            active = advance(self.segments, active, segment)
            if not active:
                return False
        return self.tail is not Tail.SOME and active[0] == end


def advance(segments: Sequence[Segment], active: Sequence[int], segment: str) -> list[int]:
    """Take one step of a pattern's non-deterministic automaton: return the active positions after `segment`.

    A position is the number of pattern segments used so far; positions are held in descending order. A position just
    after a `MANY` stays, because the wildcard may use up further segments. Every smaller position can then be dropped:
    any match of the rest of the pattern from there is a match from the larger position too. So no position occurs
    twice, and at most one run between two `MANY` is active.
    """
    after = []
    for position in active:
        if position < len(segments):
            want = segments[position]
            if isinstance(want, Wildcard) or want == segment:
                after.append(position + 1)
        if position and segments[position - 1] is MANY:
            after.append(position)
            break
    return after
