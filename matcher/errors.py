"""Exceptions of this package, as one tree.

MatcherError
├── Malformed           a text breaks a rule of its dialect (also a ValueError)
│   ├── InvalidPattern
│   └── InvalidTopic
├── UnknownDialect      no dialect has this name (also a LookupError)
├── UnsupportedOption   the dialect lacks this option, or this value of it (also a ValueError)
├── UnknownSelector     no kind of selector has this name (also a LookupError)
├── SelectorSyntaxError the text of a selector breaks the rules of its kind (also a ValueError)
├── SelectorError       a selector cannot be evaluated on these properties
└── CorruptIndex        bytes are not a valid index (also a ValueError)
"""

from collections.abc import Iterable
from typing import ClassVar


class MatcherError(Exception):
    """Base of every exception raised on purpose by this package."""


class Malformed(MatcherError, ValueError):
    """A text breaks a rule of its dialect.

    Attributes:
        text: the whole text.
        position: offset of the first offending character, from 0.
        segment: number of the segment that holds it, from 1.
        reason: the broken rule.
        hint: the remedy.
    """

    kind: ClassVar[str] = "text"

    def __init__(self, text: str, position: int, segment: int, reason: str, hint: str) -> None:
        super().__init__(text, position, segment, reason, hint)
        self.text = text
        self.position = position
        self.segment = segment
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return (
            f"invalid {self.kind} {shown(self.text)!r} at segment {self.segment} (character {self.position}): "
            f"{self.reason}; {self.hint}"
        )


class InvalidPattern(Malformed):
    """A text is not a pattern of its dialect."""

    kind: ClassVar[str] = "pattern"

    @property
    def pattern(self) -> str:
        """The text of the pattern."""
        return self.text


class InvalidTopic(Malformed):
    """A text is not a topic of its dialect."""

    kind: ClassVar[str] = "topic"

    @property
    def topic(self) -> str:
        """The text of the topic."""
        return self.text


class _UnknownName(MatcherError, LookupError):
    """A name is not among the known ones."""

    kind: ClassVar[str]

    def __init__(self, name: str, known: Iterable[str]) -> None:
        known = tuple(known)
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return f"no {self.kind} is named {shown(str(self.name))!r}; use one of {', '.join(self.known)}"


class UnknownDialect(_UnknownName):
    """No dialect has this name."""

    kind: ClassVar[str] = "dialect"


class UnknownSelector(_UnknownName):
    """No kind of selector has this name."""

    kind: ClassVar[str] = "kind of selector"


class UnsupportedOption(MatcherError, ValueError):
    """A dialect lacks an option, or a value of an option."""


class SelectorSyntaxError(MatcherError, ValueError):
    """The text of a selector breaks the rules of its kind.

    Attributes:
        text: the whole text.
        position: offset of the first offending character, from 0.
        reason: the broken rule.
        hint: the remedy.
    """

    def __init__(self, text: str, position: int, reason: str, hint: str) -> None:
        super().__init__(text, position, reason, hint)
        self.text = text
        self.position = position
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"invalid selector {shown(self.text)!r} at character {self.position}: {self.reason}; {self.hint}"


class SelectorError(MatcherError):
    """A selector cannot be evaluated on these properties; like "unknown", this counts as no match."""


class CorruptIndex(MatcherError, ValueError):
    """Bytes are not a valid index; rebuild the index from its patterns or topics."""


def not_a_list(argument: str, text: str) -> TypeError:
    """Return the error for a text in place of a list: iteration would take each character for an item."""
    return TypeError(f"{argument} must be a list of texts, not the text {shown(text)!r}; write [{shown(text)!r}]")


def shown(text: str, limit: int = 80) -> str:
    """Return a text of the user for messages, cut after a number of characters."""
    return text if len(text) <= limit else text[:limit] + "..."
