"""Names of Kafka topics, and the patterns that can match one."""

import re
from typing import Final

from matcher.dialects import DIALECTS
from matcher.pattern import Tail

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Names that Kafka marks as internal. Other names that begin with `__` belong to users."""

MAX_LENGTH: Final = 249
"""Maximum number of characters in the name of a Kafka topic."""

_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9._-]")
"""Characters that the name of a Kafka topic cannot contain."""

_ADVICE: Final = {
    ("mqtt", "/"): " Use the dialect nats, which separates by '.'.",
    ("mqtt", "$"): " A group shares its topics without $share.",
    ("nats", "*"): " A wildcard takes a whole token: put it between dots, as in 'orders.*'.",
    ("nats", ">"): " A wildcard takes a whole token: put it after a dot, as in 'orders.>'.",
    ("wamp", "*"): " With a policy '*' is no wildcard: leave the policy out.",
}


def everything(dialect: str) -> str:
    """Return the catch-all pattern of a dialect, or of `nats` if there is no such dialect."""
    return DIALECTS.get(dialect, DIALECTS["nats"]).catch_all


def is_everything(pattern: str, dialect: str, policy: str | None = None) -> bool:
    """Return True for the catch-all pattern of a dialect.

    `PatternConsumer` and `watch-kafka` select every topic with it, also those that it does not match, such as
    `orders..created` in `nats`.
    """
    return policy is None and dialect in DIALECTS and pattern == DIALECTS[dialect].catch_all


def unmatchable(pattern: str, dialect: str, policy: str | None = None) -> str | None:
    """Return the reason why no Kafka topic can match a pattern, with advice; None if one can.

    Raises:
        InvalidPattern: the pattern is invalid.
        UnsupportedOption: the dialect has no policies.
    """
    parsed = DIALECTS[dialect].parse(pattern, policy=policy)
    fixed = "".join(segment for segment in parsed.segments if isinstance(segment, str))
    written = pattern.translate({ord(each): None for each in DIALECTS[dialect].wildcards})
    foreign = _FOREIGN.search(written) or _FOREIGN.search(fixed)
    if foreign:
        reason = f"the character {foreign[0]!r}, and no Kafka topic has it in its name."
        return reason + _ADVICE.get((dialect, foreign[0]), "")
    if parsed.literal in {".", ".."}:
        return f"the name {parsed.literal!r}, which Kafka gives to no topic."
    gaps = len(parsed.segments) - 1 + (parsed.tail is Tail.SOME)
    shortest = len(fixed) + max(gaps, 0) * len(DIALECTS[dialect].separator)
    if shortest > MAX_LENGTH:
        return f"at least {shortest:,} characters, and a Kafka topic has at most {MAX_LENGTH} in its name."
    return None
