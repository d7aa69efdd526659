"""Depth and cost: nothing recurses, nothing is exponential. Costs are counted, not timed."""

import tracemalloc
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import matcher
from matcher import PatternIndex, TopicIndex
from matcher.batch import FlatPatterns, FlatTopics
from matcher.batch.segments import MAX_POSITIONS
from matcher.batch.shapes import MAX_SHAPES, Keys
from matcher.index.node import MAX_DEPTH, Node
from matcher.pattern import BLOCK_BITS, Automaton

DEEP = 100_000


@pytest.mark.rule("no-recursion")
@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("__".join(["a"] * DEEP), "__".join(["a"] * DEEP), "__".join(["a"] * (DEEP - 1))),
        ("__".join(["*"] * DEEP), "__".join(["a"] * DEEP), "__".join(["a"] * (DEEP + 1))),
        ("__".join(["*"] * DEEP + ["**"]), "__".join(["a"] * (DEEP + 1)), "__".join(["a"] * DEEP)),
        ("**__a__**__b__**", "__".join(["x", "a", "x", "b", *["a"] * DEEP]), "__".join(["a"] * DEEP)),
        ("__".join(["**"] * DEEP), "__".join(["a"] * DEEP), "__".join(["a"] * (DEEP - 1))),
    ],
    ids=["literal", "one", "tail", "inner", "many"],
)
def test_a_hundred_thousand_segments(pattern: str, matching: str, other: str) -> None:
    patterns: PatternIndex[int] = PatternIndex(allow_inner_multi=True)
    topics = TopicIndex(allow_inner_multi=True)
    assert matcher.matches(pattern, matching, allow_inner_multi=True)
    assert not matcher.matches(pattern, other, allow_inner_multi=True)
    patterns.add(pattern, 1)
    topics.add(matching)
    topics.add(other)
    assert topics.expand(pattern) == [matching]
    assert patterns.match(matching) == [1]
    assert patterns.match(other) == []
    assert patterns.remove(pattern, 1)
    assert topics.remove(matching)
    assert topics.remove(other)
    assert len(patterns) == len(topics) == 0


@pytest.mark.parametrize(
    ("dialect", "one", "rest"), [("lite", "*", "**"), ("mqtt", "+", "#"), ("nats", "*", ">"), ("wamp", "*", "*")]
)
def test_thousands_of_segments_in_every_dialect(dialect: str, one: str, rest: str) -> None:
    separator = matcher.get_dialect(dialect).separator
    count = 30_000  # MQTT allows 65,535 bytes
    topics = [separator.join(["a"] * size) for size in (count, count + 1)]
    patterns = [separator.join([one] * (count - 1) + [last]) for last in ("a", "b", rest)]
    expected = [(0, 0), (0, 2), (1, 2)]  # (topic, pattern)
    for row, topic in enumerate(topics):
        for number, pattern in enumerate(patterns):
            assert matcher.matches(pattern, topic, dialect) is ((row, number) in expected)
            assert matcher.explain(pattern, topic, dialect).matched is ((row, number) in expected)
    index: PatternIndex[int] = PatternIndex(dialect)
    for number, pattern in enumerate(patterns):
        index.add(pattern, number)
    assert [(row, number) for row, topic in enumerate(topics) for number in sorted(index.match(topic))] == expected
    assert sorted(zip(*map(list, FlatPatterns(patterns, dialect).match_batch(topics)), strict=True)) == expected
    asked, found = FlatTopics(topics, dialect).expand_batch(patterns)
    assert sorted(zip(found, asked, strict=True)) == expected


@pytest.mark.rule("lazy")
@pytest.mark.parametrize("count", [200, 400])
def test_inner_wildcards_of_many_patterns_are_matched_side_by_side(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps for a topic are its segments times the blocks of patterns, and a block holds many patterns."""
    index: PatternIndex[int] = PatternIndex(allow_inner_multi=True)
    for number in range(count):
        index.add("__".join(["**", "a"] * 15 + [f"b{number}"]), number)
    topic = ["a"] * 100
    steps = counted(monkeypatch, Automaton, "step", lambda *_: 1)
    assert index.match("__".join(topic)) == []
    assert sum(steps) <= len(topic) * (33 * count // BLOCK_BITS + 2)
    assert index.match("__".join([*topic, "b7"])) == [7]


def test_blocks_of_patterns_that_went_are_joined() -> None:
    index: PatternIndex[int] = PatternIndex(allow_inner_multi=True)
    for number in range(2_000):
        index.add(f"a__**__{number}", number)
    blocks = len(index._inner._blocks)
    for number in range(2_000):
        if number % 20:
            index.remove(f"a__**__{number}", number)
    assert len(index._inner._blocks) <= blocks // 10 + 2
    assert [index.match(f"a__x__{number}") for number in (0, 1, 20, 1_980)] == [[0], [], [20], [1_980]]


def test_without_inner_wildcards_each_node_is_visited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 2**10 patterns over `a` and `*`: one visit a node, whatever the topic."""
    index: PatternIndex[int] = PatternIndex()
    for number in range(2**10):
        index.add("__".join("a*"[number >> bit & 1] for bit in range(10)), number)
    visits = counted(monkeypatch, Node, "get", lambda *_: 1)
    assert len(index.match("__".join(["a"] * 10))) == 2**10
    assert 0 < len(visits) <= 2**10


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, cost: Callable[..., int]) -> list[int]:
    """Note the cost of each call of a function of a module or class, from now on."""
    original = getattr(owner, name)
    costs: list[int] = []

    def counting(*arguments: Any) -> Any:
        costs.append(cost(*arguments))
        return original(*arguments)

    monkeypatch.setattr(owner, name, counting)
    return costs


HARD_PATTERN = (["**"] + ["a"] * 5) * 50 + ["b"]  # the last segment fails it, wherever the runs are laid


@pytest.mark.parametrize("length", [1_000, 2_000])
def test_one_check_costs_a_step_a_segment(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the runs between two wildcards are, and however they are laid."""
    steps = counted(monkeypatch, Automaton, "step", lambda *_: 1)
    pattern = ["**", *["a"] * (length // 2), "b"]
    assert not matcher.matches("__".join(pattern), "__".join(["a"] * length), allow_inner_multi=True)
    assert not matcher.matches("__".join(HARD_PATTERN), "__".join(["a"] * length), allow_inner_multi=True)
    assert sum(steps) <= 2 * length


def test_an_expansion_costs_a_step_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner `**` over nested topics and over many siblings: each node is visited once, each further segment once."""
    index = TopicIndex(allow_inner_multi=True)
    sizes = range(1, 100)
    for size in sizes:
        index.add("__".join(["a"] * size))
        index.add(f"a__a__{size}")
    steps = counted(monkeypatch, Automaton, "step", lambda *_: 1)
    assert index.expand("__".join(HARD_PATTERN)) == []
    assert sum(steps) <= MAX_DEPTH + len(sizes) + sum(max(0, size - MAX_DEPTH) for size in sizes)


@pytest.mark.parametrize("count", [200, 400])
def test_many_patterns_are_expanded_side_by_side(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    index = TopicIndex(allow_inner_multi=True)
    for number in range(50):
        index.add("__".join(["a"] * 20 + [f"b{number}"]))
    patterns = ["__".join(["**", "a"] * 8 + [f"b{number}"]) for number in range(count)]
    steps = counted(monkeypatch, Automaton, "step", lambda *_: 1)
    assert len(set(index.expand_any(patterns))) == 50
    nodes = 20 + 50
    assert sum(steps) <= nodes * (19 * count // BLOCK_BITS + 1)


@pytest.mark.parametrize(
    ("end", "pattern"),
    [("q" * 1_000, "*__*__qq"), ("__".join("q" * 15 + "x"), "*__*__x__**")],
    ids=["text", "segments"],
)
def test_an_expansion_splits_no_long_topics(end: str, pattern: str) -> None:
    """Else a look-up would cost as much as the texts of all stored topics."""
    splits = 0

    class Topic(str):
        __slots__ = ()

        def split(self, *arguments: Any) -> list[str]:
            nonlocal splits
            splits += 1
            return super().split(*arguments)

    index = TopicIndex()
    for number in range(10):
        index.add(Topic(f"a__{number}__{end}"))
    added = splits
    assert index.expand(pattern) == []
    assert splits == added


@pytest.mark.parametrize("depth", [1_000, 2_000])
def test_deep_names_take_memory_for_their_text(depth: int) -> None:
    topics, patterns = TopicIndex("mqtt"), PatternIndex[int]("mqtt")
    names = [f"{number}/" + "/".join("a" * depth) for number in range(20)]
    tracemalloc.start()
    try:
        for name in names:
            topics.add(name)
            patterns.add(f"{name}/+", 1)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert topics.expand("+/a/#") == names
    assert patterns.match(f"{names[0]}/b") == [1]
    assert held / len(names) < (MAX_DEPTH + 8) * 1_000 + 16 * depth  # the pattern with its segments, and its nodes


def test_an_expansion_without_inner_wildcards_looks_at_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten `*` over all topics of two names: as many look-ups and children as there are nodes, not as ways to them."""
    index = TopicIndex()
    for number in range(2**10):
        index.add("__".join("ab"[number >> bit & 1] for bit in range(10)))
    costs = counted(monkeypatch, matcher.index.topics, "_topics", len)
    assert len(index.expand("__".join(["*"] * 10))) == 2**10
    assert len(index.expand("**")) == 2**10
    assert sum(costs) <= 2**10 + 2**11  # the level that `*` ends at, and all levels below the root


@pytest.mark.parametrize("run", [["a"] * 2_000, ["*"] * 2_000])
def test_an_explanation_has_a_budget(run: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run that fits nowhere is not tried everywhere; the answer is exact all the same."""
    module = import_module("matcher.explain")  # the package has a function of this name
    monkeypatch.setattr(module, "_COMPARISONS", 10_000)
    costs = counted(monkeypatch, module, "_fitting", lambda run, *_: len(run))
    pattern, topic = ["**", *run, "b", "**", "c"], ["a"] * 4_000
    found = matcher.explain("__".join(pattern), "__".join(topic), allow_inner_multi=True)
    assert (found.matched, found.outcome) == (False, "segment")
    assert 0 < sum(costs) <= 10_000 + 4 * len(pattern)
    topic[3_000] = "b"
    topic[-1] = "c"
    assert matcher.explain("__".join(pattern), "__".join(topic), allow_inner_multi=True).matched


def test_a_batch_probes_a_shape_once_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many shapes there are: those beyond the limit cost one look-up a topic in an index."""
    patterns = [".".join("a*"[number >> bit & 1] for bit in range(10)) for number in range(2**10)]
    topics = [".".join(["a"] * size) for size in (10, 10, 3, 2_000)]
    index = FlatPatterns([*patterns, ".".join(["*"] * (MAX_POSITIONS + 1))], "nats")
    probed = counted(monkeypatch, Keys, "candidates", lambda _, keys: len(keys))
    looked_up = counted(monkeypatch, PatternIndex, "match", lambda *_: 1)
    rows, _ = index.match_batch(topics)
    assert len(rows) == 2 * 2**10
    assert 0 < sum(probed) <= MAX_SHAPES * len(topics)
    assert sum(looked_up) == len(topics)


def test_flat_topics_check_only_what_the_first_segments_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an inner `**`, topics that differ before it are not looked at one by one."""
    topics = [f"x{number}__a__b" for number in range(1_000)] + ["y__a__b", "y__a__c", "y"]
    index = FlatTopics(topics, allow_inner_multi=True)
    checks = counted(monkeypatch, Automaton, "accepts", lambda *_: 1)
    assert index.expand("y__**__b").tolist() == [1_000]
    assert sum(checks) == 2


def test_names_that_share_all_but_their_end_do_not_collide() -> None:
    """Nobody who does not know the salt can make a batch walk through keys: few keys lie at the place of another."""
    keys = FlatPatterns([f"{'x' * 40}{number}.*" for number in range(20_000)], "nats")._keys
    places = (keys._table != 0).nonzero()[0]
    walked = places - (keys._table[places] >> keys._table_shift).astype(int)
    assert walked.mean() < 1
    assert walked.max() < 100
