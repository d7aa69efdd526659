"""Functions for one pattern or a few, without an index."""

from collections.abc import Iterable
from functools import lru_cache

from matcher.dialects import Dialect, get_dialect
from matcher.errors import InvalidPattern, not_a_list
from matcher.index import PatternIndex
from matcher.pattern import Pattern

_CACHED_LENGTH = 256  # longer patterns are parsed each time, to keep the cache small


def matches(
    pattern: str | None,
    topic: str | None,
    dialect: str | Dialect = "lite",
    *,
    policy: str | None = None,
    allow_inner_multi: bool = False,
) -> bool:
    """Return True if the pattern matches the topic; False if either is missing or the pattern is invalid.

    Linear in the lengths of both; with inner multi-segment wildcards at most their product.

    Args:
        pattern: text of the pattern.
        topic: name of the topic.
        dialect: dialect of both, by name or one of your own.
        policy: `"exact"`, `"prefix"` or `"wildcard"`, in dialects that have match policies (wamp).
        allow_inner_multi: accept multi-segment wildcards before the end of a pattern, in dialects that have them.

    Raises:
        UnknownDialect: no dialect has this name.
        UnsupportedOption: the dialect does not have an option.
    """
    if pattern is None or topic is None:
        return False
    parse = _parse_cached if len(pattern) <= _CACHED_LENGTH else _parse
    parsed = parse(pattern, dialect, policy, allow_inner_multi)
    return parsed is not None and get_dialect(dialect).matches(parsed, topic)


def validate(
    pattern: str | None, dialect: str | Dialect = "lite", *, policy: str | None = None, allow_inner_multi: bool = False
) -> None:
    """Check a pattern.

    Raises:
        InvalidPattern: the pattern is invalid or missing; with position, reason and remedy.
        UnknownDialect: no dialect has this name.
        UnsupportedOption: the dialect does not have an option.
    """
    if pattern is None:
        raise InvalidPattern("", 0, 1, "the pattern is missing", "give its text")
    get_dialect(dialect).validate(pattern, policy=policy, allow_inner_multi=allow_inner_multi)


def is_valid(
    pattern: str | None, dialect: str | Dialect = "lite", *, policy: str | None = None, allow_inner_multi: bool = False
) -> bool:
    """Return True if `validate` accepts the pattern."""
    try:
        validate(pattern, dialect, policy=policy, allow_inner_multi=allow_inner_multi)
    except InvalidPattern:
        return False
    return True


def expand(
    patterns: Iterable[str | Pattern],
    topics: Iterable[str],
    dialect: str | Dialect = "lite",
    *,
    policy: str | None = None,
    allow_inner_multi: bool = False,
) -> list[str]:
    """Return the topics matched by at least one pattern, each once, in order of first occurrence.

    Invalid patterns are skipped. The patterns are indexed first, so the cost is one look-up per topic, not one check
    per pair. For its bound see `PatternIndex.match`.

    Raises:
        TypeError: a text was given in place of a list.
        UnknownDialect: no dialect has this name.
        UnsupportedOption: the dialect does not have an option.
    """
    if isinstance(patterns, str):
        raise not_a_list("patterns", patterns)
    if isinstance(topics, str):
        raise not_a_list("topics", topics)
    index: PatternIndex[None] = PatternIndex(dialect, allow_inner_multi=allow_inner_multi)
    for pattern in patterns:
        try:
            index.add(pattern, None, policy=policy)
        except InvalidPattern:
            continue
    return [topic for topic in dict.fromkeys(topics) if index.match(topic)]


def _parse(text: str, dialect: str | Dialect, policy: str | None, allow_inner_multi: bool) -> Pattern | None:  # noqa: FBT001
    try:
        return get_dialect(dialect).parse(text, policy=policy, allow_inner_multi=allow_inner_multi)
    except InvalidPattern:
        return None


_parse_cached = lru_cache(maxsize=1024)(_parse)
