"""Dialects give the answers recorded from RocketMQ, Mosquitto, nats-server and Crossbar.io."""

import json
from pathlib import Path
from typing import Any

import pytest

import matcher
from matcher.dialects.nats import Nats
from matcher.dialects.wamp import flaw_of_uri

FOLDER = Path(__file__).parent / "vectors"
VECTORS: dict[str, Any] = {
    name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in ("lite", "mqtt", "nats", "wamp")
}

SHARE = "$share/"
"""Beginning of patterns without a recorded answer: mosquitto calls libmosquitto with the filter of a share alone."""


def _without_shares(dialect: str, cases: list[Any]) -> list[Any]:
    return [case for case in cases if dialect != "mqtt" or not case[0].startswith(SHARE)]


@pytest.mark.rule(
    "unchecked-names", "lite-segments", "lite-wildcards", "invalid-pattern", "mqtt-wildcards", "mqtt-hidden", "nats"
)
@pytest.mark.parametrize("dialect", ["lite", "mqtt", "nats"])
def test_matches(dialect: str) -> None:
    """Each (pattern, topic) pair matches or not, as recorded; missing arguments match nothing."""
    cases = _without_shares(dialect, [*VECTORS[dialect]["match"], *VECTORS[dialect].get("null_match", ())])
    assert [case for case in cases if matcher.matches(case[0], case[1], dialect) is not case[2]] == []


@pytest.mark.rule("lite-invalid", "mqtt-wildcards", "nats")
@pytest.mark.parametrize("dialect", ["lite", "mqtt", "nats"])
def test_is_valid(dialect: str) -> None:
    cases = _without_shares(dialect, [*VECTORS[dialect]["validate"], *VECTORS[dialect].get("null_validate", ())])
    assert [case for case in cases if matcher.is_valid(case[0], dialect) is not case[1]] == []


@pytest.mark.rule("nats")
@pytest.mark.parametrize(("dialect", "section"), [("mqtt", "validate_topic"), ("nats", "validate_publish")])
def test_topics_are_valid_or_not(dialect: str, section: str) -> None:
    valid = matcher.get_dialect(dialect).flaw_of_topic
    assert [case for case in VECTORS[dialect][section] if (valid(case[0]) is None) is not case[1]] == []


def test_nats_literal_subjects() -> None:
    cases = VECTORS["nats"]["validate_literal"]
    assert [case for case in cases if Nats().is_literal(case[0]) is not case[1]] == []


@pytest.mark.parametrize("dialect", ["lite", "mqtt", "nats"])
def test_expand(dialect: str) -> None:
    """The union of several patterns is the recorded one, in the recorded order."""
    cases = [
        case for case in VECTORS[dialect]["expand"]
        if dialect != "mqtt" or not any(pattern.startswith(SHARE) for pattern in case["patterns"])
    ]  # fmt: skip
    assert [case for case in cases if matcher.expand(case["patterns"], case["topics"], dialect) != case["result"]] == []


@pytest.mark.rule("wamp")
def test_wamp_matches() -> None:
    """Each (policy, pattern, topic) matches or not, as recorded."""
    cases = VECTORS["wamp"]["match"]
    wrong = [case for case in cases if matcher.matches(case[1], case[2], "wamp", policy=case[0]) is not case[3]]
    assert wrong == []


def test_wamp_uris() -> None:
    wrong = [
        (mode, uri, expected)
        for mode, uri, expected in VECTORS["wamp"]["validate"]
        if expected
        is not (
            flaw_of_uri(
                uri,
                strict=mode.startswith("strict"),
                allow_last_empty=mode.endswith("_last_empty"),
                allow_empty_components=mode in ("strict_empty", "loose_empty"),
            )
            is None
        )
    ]
    assert wrong == []


def test_wamp_expand() -> None:
    """The union of patterns under different policies is the recorded one, in the recorded order."""
    parse = matcher.get_dialect("wamp").parse
    for case in VECTORS["wamp"]["expand"]:
        patterns = [parse(text, policy=policy) for policy, text in case["patterns"]]
        assert matcher.expand(patterns, case["topics"], "wamp") == case["result"]


@pytest.mark.parametrize("dialect", ["lite", "mqtt", "nats", "wamp"])
def test_indexes_agree_with_the_pairs(dialect: str) -> None:
    """Both indexes, filled with everything at once, give the recorded answer for each recorded pair."""
    patterns: matcher.PatternIndex[str] = matcher.PatternIndex(dialect)
    topics = matcher.TopicIndex(dialect)
    cases = _without_shares(dialect, VECTORS[dialect]["match"])
    cases = [case if dialect == "wamp" else [None, *case] for case in cases]
    for policy, pattern, topic, _ in cases:
        topics.add(topic)
        if dialect == "wamp" or matcher.is_valid(pattern, dialect):
            patterns.add(pattern, f"{policy} {pattern}", policy=policy)
    wrong = [
        (policy, pattern, topic, expected)
        for policy, pattern, topic, expected in cases
        if (f"{policy} {pattern}" in patterns.match(topic)) is not expected
        or (topic in topics.expand(pattern, policy=policy)) is not expected
    ]
    assert wrong == []
