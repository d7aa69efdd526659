"""Dialect `lite`: what the recorded vectors cannot say."""

import pickle

import pytest

import matcher

INVALID = [
    # pattern, position, segment, part of the reason
    ("", 0, 1, "empty"),
    ("pay__", 5, 2, "empty"),
    ("__pay", 0, 1, "empty"),
    ("pay____refund", 5, 2, "empty"),
    ("pay*", 3, 1, "next to other characters"),
    ("a__b__x*y", 7, 3, "next to other characters"),
    ("***", 0, 1, "next to other characters"),
    ("a__**__b", 3, 2, "not the last"),
    ("**__**", 0, 1, "not the last"),
]

INNER = [
    # pattern with an inner `**`, topic, whether they match
    ("a__**__z", "a__b__z", True),
    ("a__**__z", "a__b__c__z", True),
    ("a__**__z", "a__z", False),
    ("a__**__z", "a__z__z", True),
    ("**__z", "z", False),
    ("**__z", "__z", True),
    ("**__**", "a", False),
    ("**__**", "a__b", True),
    ("**__*__**", "a__b", False),
    ("**__*__**", "a__b__c", True),
    ("a__**__b__**__c", "a__b__b__c__c", True),
    ("a__**__b__**__c", "a__b__b__c", False),
    ("**__a__b__**", "x__a__a__b__y", True),
    ("**__a__b", "x__a__b__a__b", True),
    ("**__a__b", "x__a__b__a", False),
]


@pytest.mark.rule("lite-invalid")
@pytest.mark.parametrize(("pattern", "position", "segment", "reason"), INVALID)
def test_an_invalid_pattern_is_explained(pattern: str, position: int, segment: int, reason: str) -> None:
    """The error names the place and the reason, offers a mend, and says the pattern."""
    with pytest.raises(matcher.InvalidPattern) as caught:
        matcher.validate(pattern)
    error = caught.value
    assert (error.pattern, error.position, error.segment) == (pattern, position, segment)
    assert reason in error.reason
    assert error.hint
    assert f"segment {segment} (character {position})" in str(error)


def test_a_missing_pattern_is_invalid() -> None:
    """`None` is refused like any other invalid pattern, not with a TypeError."""
    with pytest.raises(matcher.InvalidPattern, match="missing"):
        matcher.validate(None)


def test_a_long_invalid_pattern_is_shortened_in_the_message() -> None:
    """A message stays readable when the pattern is not."""
    with pytest.raises(matcher.InvalidPattern) as caught:
        matcher.validate("a" * 100_000 + "*")
    assert len(str(caught.value)) < 500


def test_errors_survive_pickling() -> None:
    """Workers send their errors to the driver pickled."""
    with pytest.raises(matcher.InvalidPattern) as caught:
        matcher.validate("pay*")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert (str(copy), copy.position) == (str(caught.value), 3)


@pytest.mark.parametrize(("pattern", "topic", "expected"), INNER)
def test_inner_multi_is_one_or_more_segments_anywhere(pattern: str, topic: str, *, expected: bool) -> None:
    """With the opt-in, `**` takes one or more segments wherever it stands, in all ways of asking."""
    patterns: matcher.PatternIndex[int] = matcher.PatternIndex(allow_inner_multi=True)
    patterns.add(pattern, 1)
    topics = matcher.TopicIndex(allow_inner_multi=True)
    topics.add(topic)
    assert matcher.matches(pattern, topic, allow_inner_multi=True) is expected
    assert matcher.expand([pattern], [topic], allow_inner_multi=True) == [topic] * expected
    assert patterns.match(topic) == [1] * expected
    assert topics.expand(pattern) == [topic] * expected


@pytest.mark.rule("inner-multi")
@pytest.mark.parametrize("pattern", [case[0] for case in INNER])
def test_inner_multi_is_refused_without_the_opt_in(pattern: str) -> None:
    """By default `**` before the end is an invalid pattern and matches nothing."""
    assert not matcher.is_valid(pattern)
    assert not matcher.matches(pattern, pattern)
    assert matcher.is_valid(pattern, allow_inner_multi=True)


def test_unknown_names_and_options_are_refused() -> None:
    """A dialect or an option that does not exist is an error of the caller, never a pattern that matches nothing."""
    with pytest.raises(matcher.UnknownDialect, match="use one of lite, mqtt, nats, wamp"):
        matcher.matches("a", "a", "light")
    with pytest.raises(matcher.UnsupportedOption, match="no match policies"):
        matcher.matches("a", "a", policy="prefix")
