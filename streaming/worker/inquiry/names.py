"""Filters of names, and the likeness of an entry and a topic; neither needs the state of a shard."""

from collections.abc import Callable
from typing import Final

from matcher.dialects import get_dialect

NEAREST: Final = 5
"""Number of entries that are shown if none matches."""


def likeness(text: str, topic: str) -> int:
    """Return the length of the common prefix of an entry and a topic; case is ignored."""
    one, other = text.casefold(), topic.casefold()
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if other.startswith(one[:middle]) else (low, middle - 1)
    return low


def accepting(text: str | None, dialect: str) -> Callable[[str], bool]:
    """Return the filter by a pattern or name; raise `InvalidPattern` or `UnknownDialect`."""
    if text is None:
        return lambda _: True
    rules = get_dialect(dialect)
    parsed = rules.parse(text)
    return lambda name: name == text or rules.matches(parsed, name)
