"""What can go wrong in this package.

MatcherError
├── InvalidPattern      a text is no pattern of its dialect (also a ValueError)
├── UnknownDialect      no dialect has this name (also a LookupError)
└── UnsupportedOption   the dialect does not know this option or this value of it (also a ValueError)
"""

from collections.abc import Iterable

_SHOWN = 80  # characters of a pattern that an error message repeats


class MatcherError(Exception):
    """Base of every error that this package raises on purpose."""


class InvalidPattern(MatcherError, ValueError):  # noqa: N818 - the public name
    """A text is no pattern of its dialect.

    Attributes:
        pattern: the whole text.
        position: offset of the first offending character, from 0.
        segment: number of the segment that holds it, from 1.
        reason: what is wrong.
        hint: how to mend it.
    """

    def __init__(self, pattern: str, position: int, segment: int, reason: str, hint: str) -> None:
        super().__init__(pattern, position, segment, reason, hint)
        self.pattern = pattern
        self.position = position
        self.segment = segment
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        shown = self.pattern if len(self.pattern) <= _SHOWN else self.pattern[:_SHOWN] + "..."
        return (
            f"invalid pattern {shown!r} at segment {self.segment} (character {self.position}): "
            f"{self.reason}; {self.hint}"
        )


class UnknownDialect(MatcherError, LookupError):  # noqa: N818 - named like its siblings
    """No dialect has this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        known = tuple(known)
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return f"no dialect is named {self.name!r}; use one of {', '.join(self.known)}"


class UnsupportedOption(MatcherError, ValueError):  # noqa: N818 - named like its siblings
    """A dialect was given an option, or a value of it, that it does not know."""
