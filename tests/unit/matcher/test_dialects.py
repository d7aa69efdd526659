"""Dialects: what the recorded vectors cannot say."""

import pickle

import pytest

import matcher
from matcher.dialects.wamp import POLICIES

INVALID = [
    # dialect, pattern, position, segment, part of the reason
    ("lite", "", 0, 1, "empty"),
    ("lite", "pay__", 5, 2, "empty"),
    ("lite", "__pay", 0, 1, "empty"),
    ("lite", "pay____refund", 5, 2, "empty"),
    ("lite", "pay*", 3, 1, "next to other characters"),
    ("lite", "a__b__x*y", 7, 3, "next to other characters"),
    ("lite", "***", 0, 1, "next to other characters"),
    ("lite", "a__**__b", 3, 2, "not the last"),
    ("lite", "**__**", 0, 1, "not the last"),
    ("mqtt", "", 0, 1, "empty"),
    ("mqtt", "a/b+", 3, 2, "'+' is next to"),
    ("mqtt", "a/#b", 2, 2, "'#' is next to"),
    ("mqtt", "a/#/c", 2, 2, "not the last"),
    ("mqtt", "a/\0", 2, 2, "NUL"),
    ("mqtt", "a/\ud800", 2, 2, "surrogate"),
    ("mqtt", "x" * 65_536, 65_535, 1, "longer"),
    ("mqtt", "é" * 32_768, 32_767, 1, "longer"),
    ("mqtt", "$share/", 7, 2, "a share without a name"),
    ("mqtt", "$share//t", 7, 2, "a share without a name"),
    ("mqtt", "$share/g", 8, 2, "a share without a topic filter"),
    ("mqtt", "$share/g/", 9, 3, "a share without a topic filter"),
    ("mqtt", "$share/a+/t", 8, 2, "'+' in the name of a share"),
    ("mqtt", "$share/#", 7, 2, "'#' in the name of a share"),
    ("mqtt", "$share/g/$share/h/t", 9, 3, "a share within a share"),
    ("mqtt", "$share/g/a/#/b", 11, 4, "'#' is not the last level"),
    ("mqtt", "$share/g/a/b+", 12, 4, "'+' is next to other characters in 'b+'"),
    ("mqtt", "$share/g/a\0", 10, 3, "NUL"),
    ("nats", "", 0, 1, "empty"),
    ("nats", "foo..bar", 4, 2, "empty"),
    ("nats", "foo.b r", 5, 2, "blank"),
    ("nats", "foo.>.bar", 4, 2, "not the last"),
    ("wamp", "com.a*b.c", 5, 2, "next to"),
    ("wamp", "com.**.c", 4, 2, "next to"),
    ("wamp", "com.a**", 5, 2, "inside"),
    ("wamp", "com.a*b", 5, 2, "inside"),
    ("wamp", "com..b", 4, 2, "empty"),
    ("wamp", "com.a b", 5, 2, "not allowed"),
]
INVALID_TOPICS = [
    ("lite", "", 0, 1, "empty"),
    ("mqtt", "a/+", 2, 2, "'+' in a topic"),
    ("mqtt", "", 0, 1, "empty"),
    ("nats", "a.>", 2, 2, "wildcard"),
    ("nats", "a.\tb", 2, 2, "blank"),
    ("nats", "a.", 2, 2, "empty"),
    ("wamp", "a.#", 2, 2, "not allowed"),
]
NOTATIONS = [
    # pattern in the common notation, the equivalent pattern, its policy
    ("com.myapp", "com.myapp", "exact"),
    ("com..create", "com..create", "exact"),
    ("com.*.create", "com..create", "wildcard"),
    ("*.myapp", ".myapp", "wildcard"),
    ("com.*.*.create", "com...create", "wildcard"),
    ("com.myapp*", "com.myapp", "prefix"),
    ("com.myapp.*", "com.myapp.", "prefix"),
    ("*", "", "prefix"),
    ("com.myapp.**", "com.myapp.", "wildcard"),
    ("**", "", "wildcard"),
    ("com.*.**", "com..", "wildcard"),
]
WAMP_TOPICS = [
    *("", "com", "com.myapp", "com.myapp.", "com.myapp2", "com.myapp.a", "com.myapp.a.b", "com..create"),
    *("com.x.create", "com.x.y.create", "x.myapp", "com.*.create", "com.myapp.*", "*", "**"),
]


@pytest.mark.rule("lite-invalid", "inner-multi", "mqtt-length", "mqtt-shares")
@pytest.mark.parametrize(("dialect", "pattern", "position", "segment", "reason"), INVALID)
def test_an_invalid_pattern_is_explained(dialect: str, pattern: str, position: int, segment: int, reason: str) -> None:
    """The error names the place, the reason and the remedy; the pattern matches nothing, not even an equal topic."""
    with pytest.raises(matcher.InvalidPattern) as caught:
        matcher.validate(pattern, dialect)
    error = caught.value
    assert (error.pattern, error.position, error.segment) == (pattern, position, segment)
    assert reason in error.reason
    assert error.hint
    assert f"segment {segment} (character {position})" in str(error)
    assert dialect == "wamp" or not matcher.matches(pattern, pattern, dialect), "WAMP validates on request only"


def test_errors_are_short_and_survive_pickling() -> None:
    with pytest.raises(matcher.InvalidPattern, match="missing"):
        matcher.validate(None)
    with pytest.raises(matcher.InvalidPattern) as caught:
        matcher.validate("a" * 100_000 + "*")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own bytes
    assert (str(copy), copy.position) == (str(caught.value), 100_000)
    assert len(str(copy)) < 500


@pytest.mark.parametrize(("dialect", "topic", "position", "segment", "reason"), INVALID_TOPICS)
def test_an_invalid_topic_is_explained(dialect: str, topic: str, position: int, segment: int, reason: str) -> None:
    with pytest.raises(matcher.InvalidTopic) as caught:
        matcher.get_dialect(dialect).validate_topic(topic)
    assert (caught.value.topic, caught.value.position, caught.value.segment) == (topic, position, segment)
    assert reason in caught.value.reason
    assert "invalid topic" in str(caught.value)


@pytest.mark.rule("wamp-star")
@pytest.mark.parametrize(("notation", "pattern", "policy"), NOTATIONS)
def test_the_common_notation_is_a_policy_in_disguise(notation: str, pattern: str, policy: str) -> None:
    """Without a policy, `*` says what a policy would say."""
    for topic in WAMP_TOPICS:
        expected = matcher.matches(pattern, topic, "wamp", policy=policy)
        assert matcher.matches(notation, topic, "wamp") is expected, topic


def test_one_pattern_under_two_policies_is_two_subscriptions() -> None:
    """WAMP sends one event a subscription, and a subscription is a pattern with its policy."""
    index: matcher.PatternIndex[str] = matcher.PatternIndex("wamp")
    for policy in POLICIES:
        assert index.add("com.a", "c1", policy=policy)
    assert index.match("com.a") == ["c1"] * 3
    assert index.remove("com.a", "c1", policy="wildcard")
    assert index.match("com.a") == ["c1"] * 2
    assert index.match("com.ab") == ["c1"]


@pytest.mark.rule("best-match")
def test_the_longest_prefix_comes_first() -> None:
    index: matcher.PatternIndex[str] = matcher.PatternIndex("wamp")
    for prefix in ("com.my", "", "com.myapp", "com", "com.myapp.a", "com.m"):
        index.add(prefix, prefix, policy="prefix")
    assert index.match("com.myapp.a.b") == ["com.myapp.a", "com.myapp", "com.my", "com.m", "com", ""]


def test_unknown_names_and_options_are_refused() -> None:
    with pytest.raises(matcher.UnknownDialect, match="use one of lite, mqtt, nats, wamp"):
        matcher.matches("a", "a", "light")
    with pytest.raises(matcher.UnknownDialect, match="no dialect is named 'None'; use one of"):
        matcher.matches("a", "a", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a topic must be a text, not NoneType"):
        matcher.TopicIndex().add(None)  # type: ignore[arg-type]
    with pytest.raises(matcher.UnsupportedOption, match="no match policies"):
        matcher.matches("a", "a", policy="prefix")
    with pytest.raises(matcher.UnsupportedOption, match="use one of exact, prefix, wildcard"):
        matcher.matches("a", "a", "wamp", policy="regex")
    for dialect in ("mqtt", "nats", "wamp"):
        with pytest.raises(matcher.UnsupportedOption, match="no inner multi-segment wildcard"):
            matcher.matches("a", "a", dialect, allow_inner_multi=True)


@pytest.mark.parametrize("text", ["$share", "$shared/g", "$Share/", "share/", "/$share/g", "$queue/a"])
def test_other_texts_are_filters_as_they_are(text: str) -> None:
    assert matcher.matches(text, text, "mqtt")


@pytest.mark.rule("mqtt-shares")
@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("$share/g/+/+/c", "a/b/c", True),
        ("$share/g/a/b", "a/b", True),
        ("$share/g/#", "$SYS/a", False),
        ("$share/g/$SYS/#", "$SYS/a", True),
        ("$share/g/a/#", "$share/g/a/b", False),
        ("$share/g//", "/", True),
    ],
)
def test_a_share_matches_with_its_filter(pattern: str, topic: str, expected: bool) -> None:  # noqa: FBT001 - a table
    """In functions, explanations and indexes alike."""
    index: matcher.PatternIndex[str] = matcher.PatternIndex("mqtt")
    index.add(pattern, "c")
    topics = matcher.TopicIndex("mqtt")
    topics.add(topic)
    explained = matcher.explain(pattern, topic, "mqtt")
    answers = [matcher.matches(pattern, topic, "mqtt"), explained.matched, bool(index.match(topic))]
    answers += [bool(list(topics.expand(pattern))), bool(matcher.expand([pattern], [topic], "mqtt"))]
    assert answers == [expected] * 5
    assert list(index.match_patterns(topic)) == ([(pattern, "c")] if expected else [])


def test_the_explanation_of_a_share_shows_its_filter() -> None:
    assert str(matcher.explain("$share/g/eu/+/#", "eu/a/b", "mqtt")).splitlines()[1:] == [
        "  pattern  topic  verdict",
        "  eu       eu     equal",
        "  +        a      one segment",
        "  #        b      any further segments",
    ]
