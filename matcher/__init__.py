"""Topic patterns with wildcards: match, validate, expand, and index them in both directions.

    >>> import matcher
    >>> matcher.matches("pay__*", "pay__refund")
    True
    >>> index = matcher.PatternIndex()
    >>> index.add("pay__**", "client-1")
    True
    >>> index.match("pay__refund__notify")
    ['client-1']

Nothing outside the standard library is needed.
"""

from matcher.dialects import DIALECTS, Dialect, get_dialect
from matcher.errors import InvalidPattern, InvalidTopic, MatcherError, UnknownDialect, UnsupportedOption
from matcher.explain import explain
from matcher.functions import expand, is_valid, matches, validate
from matcher.index import PatternIndex, TopicIndex
from matcher.pattern import Pattern

__all__ = [
    "DIALECTS",
    "Dialect",
    "InvalidPattern",
    "InvalidTopic",
    "MatcherError",
    "Pattern",
    "PatternIndex",
    "TopicIndex",
    "UnknownDialect",
    "UnsupportedOption",
    "expand",
    "explain",
    "get_dialect",
    "is_valid",
    "matches",
    "validate",
]
