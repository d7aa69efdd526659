"""Advised shards, depth and partitions, and the warnings."""

from collections.abc import Iterable

import pytest

from streaming.operations.advise import rule
from streaming.operations.advise.inventory import Holding
from streaming.operations.advise.rule import Advice, Spread, advise
from streaming.records.model import NO_METADATA, SubscriptionRequest
from streaming.records.routing import Routing
from streaming.state import ShardState
from tests.support.builders import bound, replace
from tests.unit.operations.test_placement import shard_after


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make hundreds of topics serve for ten thousands."""
    monkeypatch.setattr(rule, "TOPICS_PER_SHARD", 100)


def holding(topics: Iterable[str], *requests: SubscriptionRequest) -> Holding:
    return Holding(dict.fromkeys(topics, NO_METADATA), shard_after(list(requests)) if requests else ShardState())


def numbered(count: int, form: str = "tenant{}__created") -> list[str]:
    return [form.format(number) for number in range(count)]


def one(advice: Advice) -> rule.ParentAdvice:
    (parent,) = advice.parents
    return parent


@pytest.mark.parametrize(
    ("topics", "shards"), [(0, 1), (1, 1), (100, 1), (101, 2), (1_500, 16), (1_590, 32), (5_000, 64)]
)
def test_as_few_shards_as_leave_the_fullest_one_small(topics: int, shards: int) -> None:
    """Topics are never spread quite evenly, so 1,590 need more than sixteen shards."""
    placement = one(advise({"p": holding(numbered(topics))}, 2)).placement
    assert placement.shards == shards
    assert placement.topics.sum() == topics
    if topics < 5_000:
        assert placement.fullest <= 100
        routing = Routing({"p": max(1, shards // 2)}, placement.depth)
        fuller = [0] * max(1, shards // 2)
        for name in numbered(topics):
            fuller[routing.shard_of("p", name)] += 1
        assert shards == 1 or max(fuller) > 100


def test_small_parents_get_neither_shards_nor_another_depth() -> None:
    advice = advise({"p": holding(["a__b"] * 100, replace("*__b")), "q": holding([])}, 3)
    assert (advice.depth, advice.depths, advice.sharded, advice.cores) == (1, (), (), 3)
    assert [parent.name for parent in advice.parents] == ["p", "q"]
    assert [parent.candidates for parent in advice.parents] == [(), ()]
    assert advice.warnings == []


@pytest.mark.parametrize(
    ("form", "patterns", "depth"),
    [
        ("tenant{}__created", [], 1),  # nothing is better than the default
        ("eu__tenant{}__created", [], 2),  # all topics share the first segment
        ("eu__order__tenant{}", [], 3),
        ("eu__order__paid__tenant{}", [], 4),
        ("eu__order__paid__late__tenant{}", [], 0),
        ("tenant{}__order__created", ["tenant{}__*__created"], 1),  # deeper would copy each to all shards
        ("eu__tenant{}__created", ["eu__tenant{}__*"], 2),
    ],
)
def test_the_depth_makes_the_largest_shards_small_with_few_copies(form: str, patterns: list[str], depth: int) -> None:
    requests = [replace(text.format(number), client=f"c{number}") for text in patterns for number in range(200)]
    advice = advise({"p": holding(numbered(800, form), *requests)}, 2)
    assert advice.depth == depth
    assert one(advice).placement.depth == depth
    assert {found.depth for found in advice.depths} == {0, 1, 2, 3, 4}


def test_one_depth_serves_all_large_parents() -> None:
    """The parent with the most to lose decides."""
    copied = [replace(*(f"tenant{number}__*" for number in range(100)))]
    holdings = {
        "many": holding(numbered(3_000, "eu__tenant{}")),
        "few": holding(numbered(200, "tenant{}__order__created"), *copied),
        "small": holding(numbered(10)),
    }
    advice = advise(holdings, 2)
    assert advice.depth == 2
    assert {parent.name: parent.placement.shards for parent in advice.sharded} == {"many": 32, "few": 4}
    assert advise({"few": holdings["few"]}, 2).depth == 1


def test_more_shards_than_help_are_not_advised() -> None:
    """Four hundred topics share a routing prefix, so no number of shards splits them."""
    spread = Spread(holding([*numbered(400, "eu__{}"), *numbered(300)]), 1)
    placements = tuple(spread.placed(count) for count in rule.SHARD_COUNTS)
    take = rule.best(placements)
    assert 1 < take.shards < 64
    assert take.fullest <= 1.1 * placements[-1].fullest
    assert placements[rule.SHARD_COUNTS.index(take.shards) - 1].fullest > 1.1 * placements[-1].fullest


def test_it_warns_of_a_prefix_that_no_shards_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "DEPTHS", (1,))
    names = [f"eu__{number}" for number in range(400)] + numbered(600)
    (warning,) = advise({"p": holding(names)}, 2).warnings[:1]
    assert warning.startswith("p: 40% of the topics (400) share 'eu', which decides the shard")


def test_it_warns_where_not_even_the_most_shards_are_enough() -> None:
    (warning, *_) = advise({"p": holding(numbered(20_000))}, 2).warnings
    assert "more than 64 shards are not advised" in warning


def test_it_warns_of_patterns_that_every_shard_keeps() -> None:
    requests = [replace("*__created", "tenant1__*", "tenant2__*", client="c")]
    advice = advise({"p": holding(numbered(150), *requests)}, 2)
    assert one(advice).placement.shards == 2
    assert (
        "p: 1 of 3 patterns have a wildcard in the segments that decide the shard, so each of the 2 shards keeps them"
        in (advice.warnings)
    )
    assert not [text for text in advise({"p": holding(numbered(150), replace("a"))}, 2).warnings if "wildcard" in text]


@pytest.mark.parametrize(("quota", "said"), [(50, ["of the smallest, 50, each grants 25"]), (-1, [])])
def test_it_warns_of_quotas_that_shards_divide(quota: int, said: list[str]) -> None:
    state = shard_after([replace("a")], group=bound(quota=quota))
    found = advise({"p": Holding(dict.fromkeys(numbered(150), NO_METADATA), state)}, 2).warnings
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))
