"""Patterns that are found by their text: cost of a look-up, memory, and the patterns that are left to the trie."""

import sys
import tracemalloc
from itertools import product
from types import FrameType

import pytest

from matcher.index.texts import MAX_FORMS, MAX_SEGMENTS, PatternTexts


def test_a_look_up_spells_a_bounded_number_of_texts() -> None:
    """However many forms there are: patterns of the others are in a trie."""
    patterns = ["__".join(each) for each in product("a*", repeat=8)]
    index: PatternTexts[str] = PatternTexts()
    for pattern in patterns:
        index.add((pattern,), pattern)
    assert len(list(index._spelling.texts("__".join("a" * 8)))) == MAX_FORMS + 1
    assert sorted(index.match("__".join("a" * 8))) == sorted(patterns)
    assert index.parsed == len(patterns) - MAX_FORMS - 1


def _calls(patterns: list[str]) -> int:
    """Return the number of calls to add patterns one by one, each followed by a look-up."""
    index: PatternTexts[int] = PatternTexts()
    calls = 0

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(profile)
    try:
        for pattern in patterns:
            index.add((pattern,), 1)
            index.match("b__c")
    finally:
        sys.setprofile(None)
    return calls


def test_forms_beyond_the_bound_cost_each_new_form_nothing() -> None:
    """The cost is linear, however many forms the patterns of a client have."""
    patterns = ["__".join(each) for each in product("a*", repeat=9)]
    _calls(patterns)  # parse the forms
    assert _calls(patterns) < 2.5 * _calls(patterns[::2])


def test_the_most_frequent_forms_are_spelled() -> None:
    """Of patterns that are added together, as after a start."""
    rare = ["__".join(each) for each in product("a*", repeat=6) if "*" in each and each[-1] == "a"]
    frequent = [f"{number}__*" for number in range(3)]
    index: PatternTexts[int] = PatternTexts()
    index.add_all([((pattern,), 1) for pattern in rare] + [(frequent, 2)])
    parsed = index.parsed
    index.remove(frequent, 2)
    assert index.parsed == parsed > 0


def test_a_topic_with_wildcard_characters_is_found_once() -> None:
    """Several forms spell the same text for it."""
    index: PatternTexts[int] = PatternTexts()
    index.add(("a__*", "a__**", "*__*", "a__b"), 1)
    assert sorted(index.match_patterns("a__*")) == [("*__*", 1), ("a__*", 1), ("a__**", 1)]
    assert sorted(index.match_patterns("a__**")) == [("*__*", 1), ("a__*", 1), ("a__**", 1)]


@pytest.mark.parametrize("text", ["a\nb__*", "a\x01b__*", "é__*", "\ud800__*", "a_b__*", "a___b__*"])
def test_any_character_may_be_in_a_pattern(text: str) -> None:
    """The characters between outlines are literals in a pattern."""
    index: PatternTexts[int] = PatternTexts()
    index.add(("x__y__*", text, "z__*"), 1)
    assert index.match(text.replace("*", "c")) == [1]
    index.remove(("x__y__*", text, "z__*"), 1)
    assert len(index) == 0


def test_long_patterns_are_in_the_trie() -> None:
    """Their templates would cost each topic."""
    longest = "__".join(["a"] * (MAX_SEGMENTS - 1) + ["*"])
    index: PatternTexts[int] = PatternTexts()
    index.add((longest, f"a__{longest}", "__".join(["a"] * 1_000)), 1)
    assert index.parsed == 2
    assert [index.match(each.replace("*", "b")) for each in (longest, f"a__{longest}")] == [[1], [1]]


def test_a_pattern_takes_one_entry_of_a_dict() -> None:
    """Patterns of one request share their value."""
    patterns = [[f"region__tenant{number * 5 + at}__*" for at in range(5)] for number in range(4_000)]
    tracemalloc.start()
    try:
        index: PatternTexts[int] = PatternTexts()
        index.add_all([(each, number) for number, each in enumerate(patterns)])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / len(index) < 60
    assert index.match("region__tenant77__x") == [15]
