"""Likeness of entries and topics, for the nearest entries of a client."""

from typing import Final

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
