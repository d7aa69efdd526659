"""`explain`: it agrees with `matches`, and names what decides."""

import dataclasses
from typing import Any

import pytest

import matcher
from matcher.explain import Outcome

CASES: list[tuple[dict[str, Any], str, str, Outcome, str]] = [
    # options, pattern, topic, what decides, part of the sentence
    ({}, "pay__*", "pay__refund", "match", "every segment fits"),
    ({}, "pay__**", "pay__refund__sent", "match", "every"),
    ({}, "pay", "pay", "match", "every"),
    ({}, "pay__*__sent", "pay__a__failed", "segment", "segment 3 of the topic, 'failed', is not 'sent'"),
    ({}, "pay", "Pay", "segment", "segment 1 of the topic, 'Pay', is not 'pay'"),
    ({}, "pay__*__sent", "pay__a", "too-short", "ends after segment 2, but the pattern expects 'sent'"),
    ({}, "pay__**", "pay", "too-short", "ends after segment 1, but the pattern expects '**'"),
    ({}, "pay__*", "pay__a__b", "too-long", "the pattern ends before segment 3 of the topic, 'b'"),
    ({}, "pay__*", "", "invalid-topic", "the topic is empty; give it a name"),
    ({"dialect": "mqtt"}, "a/#", "a", "match", "every"),
    ({"dialect": "mqtt"}, "#", "$SYS/x", "hidden", "topics that begin with '$' are hidden"),
    ({"dialect": "mqtt"}, "+/x", "$SYS/y", "hidden", "a wildcard in the first segment"),
    ({"dialect": "mqtt"}, "$SYS/+", "$SYS/y", "match", "every"),
    ({"dialect": "mqtt"}, "a/+", "a/#", "invalid-topic", "'#' in a topic; only filters have wildcards"),
    ({"dialect": "nats"}, "a.>", "a", "too-short", "expects '>'"),
    ({"dialect": "nats"}, "a.>", "a..b", "invalid-topic", "the token is empty"),
    ({"dialect": "nats"}, "foo*", "foox", "segment", "'foox', is not 'foo*'"),
    ({"dialect": "wamp"}, "com.my*", "com.your.app", "segment", "'your', does not begin with 'my'"),
    ({"dialect": "wamp"}, "com.my*", "com", "too-short", "expects 'my*'"),
    ({"dialect": "wamp", "policy": "prefix"}, "com.my", "com.myapp.x", "match", "every"),
    ({"dialect": "wamp", "policy": "wildcard"}, "com..x", "com.a.y", "segment", "'y', is not 'x'"),
    ({"dialect": "wamp", "policy": "exact"}, "com.*", "com.x", "segment", "'x', is not '*'"),
    ({"allow_inner_multi": True}, "a__**__d", "a__b__c__d", "match", "every"),
    ({"allow_inner_multi": True}, "a__**__d", "a__d__e", "segment", "'e', is not 'd' at the end of the topic"),
    ({"allow_inner_multi": True}, "a__**__d", "a__d", "too-short", "expects 'd' at the end of the topic"),
    (
        {"allow_inner_multi": True},
        "a__**__b__c__**__d",
        "a__x__b__y__b__d",
        "segment",
        "'y', is not 'c', and no other position fits better",
    ),
    ({"allow_inner_multi": True}, "a__**__b__**", "b__x", "segment", "segment 1 of the topic, 'b', is not 'a'"),
]


@pytest.mark.parametrize(("options", "pattern", "topic", "outcome", "reason"), CASES)
def test_an_explanation_names_the_deciding_segment(
    options: dict[str, Any], pattern: str, topic: str, outcome: Outcome, reason: str
) -> None:
    """In one word and as a sentence, which stands above the table too."""
    explanation = matcher.explain(pattern, topic, **options)
    assert explanation.outcome == outcome
    assert reason in explanation.reason
    assert str(explanation).startswith(f"{'match' if outcome == 'match' else 'no match'}: {explanation.reason}")


def test_an_inner_wildcard_shows_what_it_stands_for() -> None:
    explanation = matcher.explain("a__**__d", "a__b__c__d", allow_inner_multi=True)
    steps = [(step.pattern, step.topic) for step in explanation.steps]
    assert steps == [("a", "a"), ("**", "b"), ("**", "c"), ("d", "d")]


def test_the_furthest_place_is_shown() -> None:
    """After an inner wildcard, the position with the most fitting segments is shown; the steps end there."""
    explanation = matcher.explain("a__**__b__c__d__**", "a__b__b__x__b__c__x__b", allow_inner_multi=True)
    assert [(step.pattern, step.topic, step.fits) for step in explanation.steps] == [
        ("a", "a", True),
        *[("**", segment, True) for segment in ("b", "b", "x")],
        ("b", "b", True),
        ("c", "c", True),
        ("d", "x", False),
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, matcher.InvalidPattern),
        ({"dialect": "no"}, matcher.UnknownDialect),
        ({"policy": "exact"}, matcher.UnsupportedOption),
    ],
)
def test_explain_raises_the_errors_of_validate(options: dict[str, Any], error: type[matcher.MatcherError]) -> None:
    """An invalid pattern is no mismatch here: there is nothing to lay beside the topic."""
    with pytest.raises(error):
        matcher.explain("a*", "a", **options)


def test_the_table_shows_empty_long_and_unprintable_segments() -> None:
    """Without control characters on the terminal, and without endless lines."""
    lines = str(matcher.explain("a__*__*__*", f"a____\x1b[2J__{'x' * 1_000}")).splitlines()
    assert [line.split()[1] for line in lines[2:]] == ["a", "''", r"'\x1b[2J'", "x" * 40 + "..."]


def test_a_hostile_pattern_stays_polynomial() -> None:
    """Many inner wildcards before a segment that never comes: no backtracking."""
    pattern = "__".join(["**", "a", "*"] * 300 + ["b"])
    explanation = matcher.explain(pattern, "__".join(["a"] * 2_000), allow_inner_multi=True)
    assert explanation.outcome == "segment"


def test_an_explanation_is_frozen() -> None:
    explanation = matcher.explain("a", "a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        explanation.matched = False  # type: ignore[misc]
