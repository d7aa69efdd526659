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

from typing import TYPE_CHECKING

from matcher.dialects import DIALECTS, Dialect, Flaw, get_dialect
from matcher.errors import (
    CorruptIndex,
    InvalidPattern,
    InvalidTopic,
    Malformed,
    MatcherError,
    SelectorError,
    SelectorSyntaxError,
    UnknownDialect,
    UnknownSelector,
    UnsupportedOption,
)
from matcher.explain import Explanation, Outcome, Step, explain
from matcher.functions import expand, is_valid, matches, validate
from matcher.index import PatternIndex, TopicIndex
from matcher.pattern import Pattern, Segment, Tail, Wildcard

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "DIALECTS",
    "CorruptIndex",
    "Dialect",
    "Explanation",
    "Flaw",
    "InvalidPattern",
    "InvalidTopic",
    "Malformed",
    "MatcherError",
    "Outcome",
    "Pattern",
    "PatternIndex",
    "Segment",
    "SelectorError",
    "SelectorSyntaxError",
    "Step",
    "Tail",
    "TopicIndex",
    "UnknownDialect",
    "UnknownSelector",
    "UnsupportedOption",
    "Wildcard",
    "__version__",
    "expand",
    "explain",
    "get_dialect",
    "is_valid",
    "matches",
    "validate",
]

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> str:
        """Return `__version__`, the version of the installed distribution, on first use."""
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 - reads the metadata of the distribution

            return version("reexpand")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
