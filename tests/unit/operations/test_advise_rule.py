"""Predicted contents of shards, the advice that follows from them, and the warnings."""

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.expansion import apply_events
from streaming.operations.advise import rule
from streaming.operations.advise.inventory import Holding
from streaming.operations.advise.rule import Advice, Spread, advise, sizes
from streaming.records.model import LITE, NO_METADATA, Notation, Source
from streaming.records.routing import Routing
from streaming.state import Shard, ShardState
from streaming.tuning import DEFAULT_TUNING
from tests.support.events import MQTT, NATS, WAMP, WILD, Event, parsed, replace, wildcard
from tests.support.states import encode

COUNTS = [1, 2, 4, 8]

segments = st.sampled_from(["a", "b", "", "é", "__"])
topics = st.lists(st.lists(segments, min_size=1, max_size=4).map("__".join), max_size=30, unique=True)
pieces = st.sampled_from(["a", "b", "c", "*", "**", "+", "#", ">"])
entries = st.lists(st.lists(st.lists(pieces, min_size=1, max_size=3).map(tuple), max_size=5, unique=True), max_size=5)
notations = st.sampled_from([LITE, LITE, MQTT, NATS, WAMP])
SEPARATORS = {"lite": "__", "mqtt": "/", "nats": ".", "wamp": "."}


def shard_after(
    requests: list[Event], number: int = 0, routing: Routing | None = None, group: Event = WILD
) -> ShardState:
    found = ShardState()
    asks = [(Source("subscriptions", 0, offset, 0, 0), parsed(event)) for offset, event in enumerate(requests)]
    found.apply(
        apply_events(
            found,
            [(Source("groups", 0, 0, 0, 0), parsed(group)), *asks],
            Shard("p", number, routing or Routing()),
            DEFAULT_TUNING,
        ).delta
    )
    return found


@st.composite
def requests(draw: st.DrawFn) -> list[Event]:
    """Draw requests, each of a client of its own."""
    made = []
    for number, texts in enumerate(draw(entries)):
        notation: Notation = draw(notations)
        joined = [SEPARATORS[notation.dialect].join(parts) for parts in texts]
        made.append(replace(*joined, client=f"c{number}", notation=notation))
    return made


@given(names=topics, made=requests(), depth=st.integers(0, 3), shards=st.sampled_from(COUNTS))
def test_topics_and_patterns_stand_where_the_job_puts_them(
    names: list[str], made: list[Event], depth: int, shards: int
) -> None:
    routing = Routing({"p": shards}, depth)
    placement = Spread(Holding(dict.fromkeys(names, NO_METADATA), shard_after(made)), depth).placed(shards)

    lives_in = Counter(routing.shard_of("p", name) for name in names)
    assert placement.topics.tolist() == [lives_in[number] for number in range(shards)]
    assert placement.topics.sum() == len(names)
    assert placement.fullest == max(lives_in.values(), default=0)
    assert placement.skew == pytest.approx(placement.fullest * shards / len(names) if names else 1)

    kept = [list(Holding({}, shard_after(made, number, routing)).entries()) for number in range(shards)]
    assert placement.patterns.tolist() == list(map(len, kept))
    distinct = list(Holding({}, shard_after(made)).entries())
    assert placement.entries == len(distinct)
    assert placement.replicas == pytest.approx(sum(map(len, kept)) / len(distinct) if distinct else 1)
    if shards > 1:
        everywhere = [entry for entry in distinct if all(entry in shard for shard in kept)]
        assert placement.everywhere == len(everywhere)


def test_the_largest_prefix_is_what_most_topics_share() -> None:
    names = ["eu__a__1", "us__a__1", "eu__a__2", "eu__b__1", "us__a__2"]
    holding = Holding(dict.fromkeys(names, NO_METADATA), ShardState())
    assert Spread(holding, 1).largest_prefix() == ("eu", 3)
    assert Spread(holding, 2).largest_prefix() in [("eu__a", 2), ("us__a", 2)]
    assert Spread(holding, 0).largest_prefix()[1] == 1


@pytest.mark.parametrize("clients", [10, 5_000])
@pytest.mark.parametrize("shards", [1, 8])
def test_the_bytes_are_about_those_of_the_real_state(clients: int, shards: int) -> None:
    """Within a tenth, for the largest shard."""
    random = Random(3)
    names = [f"{random.choice('abcdefghijklmnop')}__tenant{number}__created" for number in range(20_000)]
    made = [
        replace(
            *(f"{random.choice('abcdefgh*')}__tenant{random.randrange(10_000)}__*" for _ in range(3)), client=f"c{n}"
        )
        for n in range(clients)
    ]
    routing = Routing({"p": shards}, 1)
    holding = Holding(dict.fromkeys(names, NO_METADATA), shard_after(made))
    real = []
    for number in range(shards):
        shard = shard_after(made, number, routing)
        shard.topics = {name: NO_METADATA for name in names if routing.shard_of("p", name) == number}
        real.append(len(encode(shard) or b""))
    assert Spread(holding, 1).placed(shards).largest_bytes(sizes(holding)) == pytest.approx(max(real), rel=0.1)


def test_nothing_has_the_bytes_of_nothing() -> None:
    holding = Holding({}, ShardState())
    assert sizes(holding) == (0, 0, 0)
    assert Spread(holding, 1).placed(1).largest_bytes(sizes(holding)) == 0


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make hundreds of topics serve for ten thousands."""
    monkeypatch.setattr(rule, "TOPICS_PER_SHARD", 100)


def holding(topics: Iterable[str], *requests: Event) -> Holding:
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


def test_it_warns_where_shards_do_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix that no shards part, more topics than the most shards hold, and patterns that every shard keeps."""
    (warning, *_) = advise({"p": holding(numbered(20_000))}, 2).warnings
    assert "more than 64 shards are not advised" in warning
    wide = holding(numbered(150), replace("*__created", "tenant1__*", "tenant2__*", client="c"))
    advice = advise({"p": wide}, 2)
    assert one(advice).placement.shards == 2
    assert advice.warnings[0] == (
        "p: wildcards in the segments that decide the shard are in 1 of 3 patterns, so each of the 2 shards keeps them"
    )
    assert not [text for text in advise({"p": holding(numbered(150), replace("a"))}, 2).warnings if "wildcard" in text]
    monkeypatch.setattr(rule, "DEPTHS", (1,))
    (warning, *_) = advise({"p": holding([*numbered(400, "eu__{}"), *numbered(600)])}, 2).warnings
    assert warning.startswith("p: 40% of the topics (400) share 'eu', which decides the shard")


@pytest.mark.parametrize(("quota", "said"), [(50, ["of the smallest, 50, each grants 25"]), (-1, [])])
def test_it_warns_of_quotas_that_shards_divide(quota: int, said: list[str]) -> None:
    state = shard_after([replace("a")], group=wildcard(quota=quota))
    found = advise({"p": Holding(dict.fromkeys(numbered(150), NO_METADATA), state)}, 2).warnings
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))
