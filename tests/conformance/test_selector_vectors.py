"""Selectors give the answers recorded from rocketmq-filter 5.5.0 and from Java."""

import json
from pathlib import Path
from typing import Any

import pytest

from matcher.selectors import BloomFilter, java_hash, sql92

FOLDER = Path(__file__).parent / "vectors"
VECTORS: dict[str, Any] = {
    name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in ("sql92", "bloom", "taghash")
}


def outcome(text: str, properties: dict[str, str]) -> bool | str | None:
    try:
        selector = sql92.compile(text)
    except sql92.SelectorSyntaxError:
        return "compile"
    try:
        return selector.evaluate(properties)
    except sql92.SelectorError:
        return "evaluate"


FIXED_UPSTREAM = ["TRUE = a"]
"""Selectors on which 5.5.0 fails and RocketMQ's later fix does not."""


@pytest.mark.rule("sql-missing", "sql-literals", "sql-junctions", "sql-affixes", "sql-not", "sql-never-true")
def test_sql92() -> None:
    """Each selector gives the recorded value, or the recorded kind of error, on the recorded properties."""
    wrong = [
        (case, got)
        for case in VECTORS["sql92"]["cases"]
        if not case.get("trailing")
        and not (case["expr"] in FIXED_UPSTREAM and case["result"] == "error")
        and (got := outcome(case["expr"], case["properties"])) is not case.get("stage", case["result"])
        and got != case.get("stage", "")
    ]
    assert wrong == []


@pytest.mark.parametrize("value", ["true", "TRUE", "false", "x", "", "1"])
@pytest.mark.parametrize("literal", ["TRUE", "FALSE"])
@pytest.mark.parametrize("operator", ["=", "<>"])
def test_a_truth_value_may_stand_on_either_side(literal: str, operator: str, value: str) -> None:
    left, right = (outcome(text, {"a": value}) for text in (f"{literal} {operator} a", f"a {operator} {literal}"))
    assert left is right


@pytest.mark.rule("sql-trailing")
@pytest.mark.parametrize("case", [case for case in VECTORS["sql92"]["cases"] if case.get("trailing")])
def test_sql92_text_after_the_end_is_refused(case: dict[str, Any]) -> None:
    """Text after a complete selector, ignored by RocketMQ, is an error here, with the position of the text."""
    with pytest.raises(sql92.SelectorSyntaxError) as caught:
        sql92.compile(case["expr"])
    assert 0 < caught.value.position < len(case["expr"])


@pytest.mark.rule("bloom-filter")
def test_bloom_positions() -> None:
    """The filter has the recorded shape, and each text sets the recorded bits in the recorded order."""
    vectors = VECTORS["bloom"]
    shape = BloomFilter(vectors["f"], vectors["n"])
    assert (shape.k, shape.m) == (vectors["k"], vectors["m"])
    assert [case for case in vectors["positions"] if shape.positions(case[0]) != case[1]] == []


@pytest.mark.rule("tag")
def test_tag_hashes() -> None:
    """Each text has the recorded Java hash."""
    assert [case for case in VECTORS["taghash"]["hash"] if java_hash(case[0]) != case[1]] == []
