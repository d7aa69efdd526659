"""Patterns for Kafka topics, checked before they are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matcher.dialects import DIALECTS
from matcher.errors import MatcherError
from streaming.errors import PatternsRefused
from streaming.kafka.names import everything, unmatchable

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_patterns(patterns: Sequence[str], dialect: str, policy: str | None = None) -> None:
    """Check that the job accepts the patterns, and that a Kafka topic can match each.

    Raises:
        PatternsRefused: a pattern is not valid, or no Kafka topic can match it.
    """
    if isinstance(patterns, str):
        raise PatternsRefused(f"patterns is the text {patterns!r}; give a list: [{patterns!r}].")
    if not patterns:
        raise PatternsRefused(f"There is no pattern; {everything(dialect)!r} matches every topic.")
    if dialect not in DIALECTS:
        raise PatternsRefused(f"There is no dialect {dialect!r}; it can be one of: {', '.join(DIALECTS)}.")
    for pattern in patterns:
        try:
            reason = unmatchable(pattern, dialect, policy)
        except (MatcherError, ValueError) as error:
            raise PatternsRefused(f"The pattern {pattern!r} is not valid in the dialect {dialect}: {error}") from None
        if reason is not None:
            raise PatternsRefused(f"The pattern {pattern!r} has {reason}")
