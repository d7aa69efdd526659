"""Patterns for Kafka topics, checked before they are sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from matcher.dialects import DIALECTS
from matcher.errors import MatcherError
from streaming.errors import PatternsRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

_WILDCARDS: Final = {"lite": "*", "mqtt": "+#", "nats": "*>", "wamp": "*"}
"""Characters of the wildcards of each dialect."""

_EVERYTHING: Final = {"lite": "**", "mqtt": "#", "nats": ">", "wamp": "*"}
"""A pattern of each dialect that every Kafka topic matches."""

_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9._-]")
"""Characters that no Kafka topic has in its name."""


def check_patterns(patterns: Sequence[str], dialect: str, policy: str | None = None) -> None:
    """Check that the job accepts the patterns, and that a Kafka topic can match each.

    Raises:
        PatternsRefused: a pattern is not valid, or no Kafka topic can match it.
    """
    if isinstance(patterns, str):
        raise PatternsRefused(f"patterns is the text {patterns!r}; give a list: [{patterns!r}].")
    if not patterns:
        raise PatternsRefused(f"There is no pattern; {_EVERYTHING.get(dialect, '>')!r} matches every topic.")
    if dialect not in DIALECTS:
        raise PatternsRefused(f"There is no dialect {dialect!r}; it can be one of: {', '.join(DIALECTS)}.")
    for pattern in patterns:
        try:
            DIALECTS[dialect].parse(pattern, policy=policy)
        except (MatcherError, ValueError) as error:
            raise PatternsRefused(f"The pattern {pattern!r} is not valid in the dialect {dialect}: {error}") from None
        foreign = _FOREIGN.search(pattern.translate({ord(each): None for each in _WILDCARDS[dialect]}))
        if foreign:
            raise PatternsRefused(
                f"The pattern {pattern!r} has the character {foreign[0]!r}, and no Kafka topic has it in its name."
                f"{_ADVICE.get((dialect, foreign[0]), '')}"
            )


_ADVICE: Final = {
    ("mqtt", "/"): " Take the dialect nats, which separates by '.'.",
    ("mqtt", "$"): " A group shares its topics without $share.",
}
