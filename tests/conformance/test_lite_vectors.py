"""Dialect `lite` gives the answers that were recorded from the RocketMQ implementations."""

import json
from pathlib import Path
from typing import Any

import pytest

import matcher

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors" / "lite.json").read_text(encoding="utf-8"))


@pytest.mark.rule("unchecked-names")
@pytest.mark.rule("lite-segments")
@pytest.mark.rule("lite-wildcards")
@pytest.mark.rule("invalid-pattern")
@pytest.mark.parametrize("section", ["match", "null_match"])
def test_matches(section: str) -> None:
    """Each (pattern, topic) pair matches or not, as recorded; missing arguments match nothing."""
    wrong = [case for case in VECTORS[section] if matcher.matches(case[0], case[1]) is not case[2]]
    assert wrong == []


@pytest.mark.rule("lite-invalid")
@pytest.mark.parametrize("section", ["validate", "null_validate"])
def test_is_valid(section: str) -> None:
    """Each pattern is valid or not, as recorded; a missing one is not."""
    wrong = [case for case in VECTORS[section] if matcher.is_valid(case[0]) is not case[1]]
    assert wrong == []


@pytest.mark.parametrize("case", VECTORS["expand"], ids=lambda case: " ".join(case["patterns"])[:40] or "no patterns")
def test_expand(case: dict[str, list[str]]) -> None:
    """The union of several patterns over several topics is the recorded one, in the recorded order."""
    assert matcher.expand(case["patterns"], case["topics"]) == case["result"]


def test_indexes_agree_with_the_pairs() -> None:
    """Both indexes, filled with everything at once, give the recorded answer for each recorded pair."""
    patterns: matcher.PatternIndex[str] = matcher.PatternIndex()
    topics = matcher.TopicIndex()
    for pattern, topic, _ in VECTORS["match"]:
        topics.add(topic)
        if matcher.is_valid(pattern):
            patterns.add(pattern, pattern)
    wrong = [
        case
        for case in VECTORS["match"]
        if (case[0] in patterns.match(case[1])) is not case[2] or (case[1] in topics.expand(case[0])) is not case[2]
    ]
    assert wrong == []
