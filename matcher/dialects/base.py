"""What a dialect has to say for the indexes and functions of this package to serve it."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from matcher.errors import InvalidPattern, InvalidTopic, UnsupportedOption
from matcher.pattern import Pattern


class Flaw(NamedTuple):
    """Where a text breaks a rule, what is wrong, and how to mend it."""

    position: int
    reason: str
    hint: str


class Dialect(ABC):
    """A pattern language: how its patterns are written and how its topics fall into segments.

    A dialect has no state, so one instance serves all threads.

    Attributes:
        name: how users name it.
        separator: what stands between two segments.
        reserved: topics that begin with this text are hidden from patterns whose first segment is a wildcard.
        rest_may_be_empty: whether the trailing multi-segment wildcard also matches no segment at all.
        empty_topic: whether the empty text is a topic that can be matched.
        forbidden_characters: a topic that holds one of these ASCII characters is matched by nothing.
        forbidden_segments: a topic that has one of these segments, of at most eight bytes, is matched by nothing.
        max_bytes: a topic of more bytes of UTF-8, or one that UTF-8 cannot hold, is matched by nothing.

    The last four say once more what `split` does, in a form that serves whole batches.
    """

    name: ClassVar[str]
    separator: ClassVar[str]
    reserved: ClassVar[str] = ""
    rest_may_be_empty: ClassVar[bool] = False
    empty_topic: ClassVar[bool] = False
    forbidden_characters: ClassVar[str] = ""
    forbidden_segments: ClassVar[tuple[str, ...]] = ()
    max_bytes: ClassVar[int | None] = None

    @abstractmethod
    def parse(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> Pattern:
        """Read a pattern; linear in its length.

        Raises:
            InvalidPattern: the text is no pattern of this dialect.
            UnsupportedOption: this dialect does not know the policy, or knows no inner multi-segment wildcard.
        """

    @abstractmethod
    def split(self, topic: str) -> list[str] | None:
        """Split a topic into its segments; None for a topic that no pattern can match."""

    @abstractmethod
    def flaw_of_topic(self, topic: str) -> Flaw | None:
        """Say why a text is no topic of this dialect; None where it is one."""

    def validate(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> None:
        """Refuse a text that is no valid pattern, with the errors of `parse`."""
        self.parse(text, policy=policy, allow_inner_multi=allow_inner_multi)

    def validate_topic(self, topic: str) -> None:
        """Refuse a text that is no topic of this dialect.

        Raises:
            InvalidTopic: with the position, the reason and how to mend it.
        """
        flaw = self.flaw_of_topic(topic)
        if flaw is not None:
            raise InvalidTopic(topic, flaw.position, self._segment_at(topic, flaw.position), flaw.reason, flaw.hint)

    def hides(self, topic: str) -> bool:
        """Whether a wildcard in the first segment must not match this topic."""
        return bool(self.reserved) and topic.startswith(self.reserved)

    def matches(self, pattern: Pattern, topic: str) -> bool:
        """Whether a parsed pattern matches a topic; for the bound see `Pattern.accepts`."""
        if pattern.literal is not None:
            return topic == pattern.literal
        segments = self.split(topic)
        if segments is None or (pattern.starts_with_wildcard and self.hides(topic)):
            return False
        return pattern.accepts(segments)

    def _refuse_options(self, policy: str | None, *, allow_inner_multi: bool = False) -> None:
        if policy is not None:
            raise UnsupportedOption(f"dialect {self.name!r} has no match policies, but policy={policy!r} was given")
        self._refuse_inner_multi(allow_inner_multi=allow_inner_multi)

    def _refuse_inner_multi(self, *, allow_inner_multi: bool) -> None:
        if allow_inner_multi:
            raise UnsupportedOption(f"dialect {self.name!r} has no inner multi-segment wildcard")

    def _invalid(self, text: str, position: int, reason: str, hint: str) -> InvalidPattern:
        return InvalidPattern(text, position, self._segment_at(text, position), reason, hint)

    def _start(self, parts: list[str], index: int) -> int:
        """Return the offset of the segment at `index`."""
        return sum(map(len, parts[:index])) + index * len(self.separator)

    def _segment_at(self, text: str, position: int) -> int:
        return text.count(self.separator, 0, position) + 1
