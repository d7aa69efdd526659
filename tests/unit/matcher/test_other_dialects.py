"""Dialects `mqtt`, `nats` and `wamp`: what the recorded vectors cannot say."""

import pytest

import matcher
from matcher.dialects.mqtt import shared
from matcher.dialects.wamp import POLICIES

INVALID = [
    # dialect, pattern, position, segment, part of the reason
    ("mqtt", "", 0, 1, "empty"),
    ("mqtt", "a/b+", 3, 2, "'+' is next to"),
    ("mqtt", "a/#b", 2, 2, "'#' is next to"),
    ("mqtt", "a/#/c", 2, 2, "not the last"),
    ("mqtt", "a/\0", 2, 2, "NUL"),
    ("mqtt", "a/\ud800", 2, 2, "surrogate"),
    ("mqtt", "x" * 65_536, 65_535, 1, "longer"),
    ("mqtt", "é" * 32_768, 32_767, 1, "longer"),
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


@pytest.mark.rule("mqtt-length")
@pytest.mark.parametrize(("dialect", "pattern", "position", "segment", "reason"), INVALID)
def test_an_invalid_pattern_is_explained(dialect: str, pattern: str, position: int, segment: int, reason: str) -> None:
    """The error names the place and the reason."""
    with pytest.raises(matcher.InvalidPattern) as caught:
        matcher.validate(pattern, dialect)
    assert (caught.value.position, caught.value.segment) == (position, segment)
    assert reason in caught.value.reason


@pytest.mark.parametrize(("dialect", "topic", "position", "segment", "reason"), INVALID_TOPICS)
def test_an_invalid_topic_is_explained(dialect: str, topic: str, position: int, segment: int, reason: str) -> None:
    """Topics are validated on request, with the same care."""
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


@pytest.mark.rule("wamp-star")
@pytest.mark.parametrize("policy", POLICIES)
def test_with_a_policy_a_star_is_literal(policy: str) -> None:
    """An explicit policy takes `*` as a character like others."""
    assert matcher.matches("com.*", "com.*", "wamp", policy=policy)
    assert not matcher.matches("com.*", "com.a", "wamp", policy=policy)


def test_a_wildcard_and_a_prefix_in_one_notation() -> None:
    """The two rules of the notation hold together, though no policy says so."""
    assert matcher.expand(["com.*.a*"], ["com.x.ab.c", "com.x.b", "com.a"], "wamp") == ["com.x.ab.c"]


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
    """Best match first holds for prefixes as well."""
    index: matcher.PatternIndex[str] = matcher.PatternIndex("wamp")
    for prefix in ("com.my", "", "com.myapp", "com", "com.myapp.a", "com.m"):
        index.add(prefix, prefix, policy="prefix")
    assert index.match("com.myapp.a.b") == ["com.myapp.a", "com.myapp", "com.my", "com.m", "com", ""]


@pytest.mark.parametrize(
    ("pattern", "policy"), [("com.my", "prefix"), ("", "prefix"), ("com..x", "wildcard"), ("com", "exact")]
)
def test_removing_leaves_nothing_behind(pattern: str, policy: str) -> None:
    """After the last subscription is gone, the index is as it was when new."""
    index: matcher.PatternIndex[int] = matcher.PatternIndex("wamp")
    index.add(pattern, 1, policy=policy)
    assert index.remove(pattern, 1, policy=policy)
    assert not index.remove(pattern, 1, policy=policy)
    assert not index._exact
    assert index._trie.is_empty
    assert index._prefixes.is_empty
    assert index._prefix_count == 0


def test_unknown_options_are_refused() -> None:
    """A policy or an opt-in that a dialect lacks is an error of the caller."""
    with pytest.raises(matcher.UnsupportedOption, match="use one of exact, prefix, wildcard"):
        matcher.matches("a", "a", "wamp", policy="regex")
    for dialect in ("mqtt", "nats", "wamp"):
        with pytest.raises(matcher.UnsupportedOption, match="no inner multi-segment wildcard"):
            matcher.matches("a", "a", dialect, allow_inner_multi=True)


@pytest.mark.rule("mqtt-shares")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$share/g/a/+", ("g", "a/+")),
        ("$share/g//", ("g", "/")),
        ("$share/g/$share", ("g", "$share")),
        ("$share/g/$share/h/a", None),
        ("$share/g", None),
        ("$share/g/", None),
        ("$share//a", None),
        ("$share/+/a", None),
        ("share/g/a", None),
    ],
)
def test_shared_subscriptions(text: str, expected: tuple[str, str] | None) -> None:
    """A shared subscription names a group without wildcards and a filter."""
    assert shared(text) == expected


@pytest.mark.rule("mqtt-shares")
@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("$share/", 7, "a share without a name"),
        ("$share//t", 7, "a share without a name"),
        ("$share/g", 8, "a share without a topic filter"),
        ("$share/g/", 9, "a share without a topic filter"),
        ("$share/a+/t", 8, "'+' in the name of a share"),
        ("$share/#", 7, "'#' in the name of a share"),
        ("$share/g/$share/h/t", 9, "a share within a share"),
        ("$share/g/a/#/b", 11, "'#' is not the last level"),
        ("$share/g/a/b+", 12, "'+' is next to other characters in 'b+'"),
        ("$share/g/a\0", 10, "NUL"),
    ],
)
def test_a_malformed_share_is_invalid(text: str, position: int, reason: str) -> None:
    """With the place in the whole text; it matches nothing, not even an equal topic."""
    with pytest.raises(matcher.InvalidPattern) as caught:
        matcher.validate(text, "mqtt")
    assert (caught.value.position, caught.value.reason) == (position, reason)
    assert caught.value.segment == text.count("/", 0, position) + 1
    assert caught.value.hint
    assert not matcher.matches(text, text, "mqtt")


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
