"""What a dialect has to say for the indexes and functions of this package to serve it."""

from abc import ABC, abstractmethod
from typing import ClassVar

from matcher.errors import InvalidPattern, UnsupportedOption
from matcher.pattern import Pattern


class Dialect(ABC):
    """A pattern language: how its patterns are written and how its topics fall into segments.

    A dialect has no state, so one instance serves all threads.

    Attributes:
        name: how users name it.
        separator: what stands between two segments.
        reserved: topics that begin with this text are hidden from patterns whose first segment is a wildcard.
    """

    name: ClassVar[str]
    separator: ClassVar[str]
    reserved: ClassVar[str] = ""

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

    def validate(self, text: str, *, policy: str | None = None, allow_inner_multi: bool = False) -> None:
        """Refuse a text that is no valid pattern, with the errors of `parse`."""
        self.parse(text, policy=policy, allow_inner_multi=allow_inner_multi)

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
        if allow_inner_multi:
            raise UnsupportedOption(f"dialect {self.name!r} has no inner multi-segment wildcard")

    def _invalid(
        self, text: str, segments: list[str], index: int, reason: str, hint: str, *, offset: int = 0
    ) -> InvalidPattern:
        """Build the error about character `offset` of the segment at `index`."""
        position = sum(map(len, segments[:index])) + index * len(self.separator) + offset
        return InvalidPattern(text, position, index + 1, reason, hint)
