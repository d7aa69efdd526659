"""Parsed patterns, in one form for all dialects, and their match against one topic."""

from collections.abc import Sequence
from typing import NamedTuple

from matcher.automaton import Automaton
from matcher.wildcards import MANY, ONE, Segment, Tail, Wildcard

__all__ = ["MANY", "ONE", "Pattern", "Segment", "Tail", "Wildcard"]


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
