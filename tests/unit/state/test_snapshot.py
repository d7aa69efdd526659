"""A state whose topics and clients are in arrays is the state that it was, and has the same interests."""

import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matcher import InvalidPattern, get_dialect
from streaming.records.model import BIND_TOPIC, LITE, NO_METADATA, WILDCARD, Notation
from streaming.records.subscribers import ClientKey, Matches, SubscriberKey
from streaming.state import Group, ShardDelta, ShardState, restore, settle, snapshot_content
from streaming.state import indexes as module
from streaming.state.blocks import Block
from streaming.state.client import ABSENT, Client, Interest, LastRequest, Subscription
from streaming.state.client_table import ClientTable, SettledClients
from streaming.state.codec import state_fields
from streaming.state.interests import allows_inner_multi, pattern_of
from streaming.state.settled import TextTable
from streaming.tuning import Tuning
from tests.support.events import MQTT, NATS, WAMP
from tests.support.states import as_read

TOPICS = ["a", "b", "a__b", "b__a", "a__b__c", "a/b", "a.b", "a*.b", "", "*"]
ENTRIES: dict[Notation, list[str]] = {
    LITE: ["a", "*", "**", "a__*", "*__b", "a__**", "a__b__c", "a__*__**", "a__**__c", "**__b"],
    MQTT: ["a", "#", "a/+", "$share/s/#", "+"],
    NATS: ["a.*", "*.b", ">", "a*.b", "*"],
    WAMP: ["a", "a.b", "b"],
    Notation("wamp", "prefix"): ["a", "a.", "b."],
    Notation("wamp"): ["a", ".b", "a."],
}
GROUPS = {
    "literal": Group({BIND_TOPIC: "p"}, 0, 0),
    "wildcard": Group({BIND_TOPIC: "p", WILDCARD: ""}, 0, 0),
    "elsewhere": Group({BIND_TOPIC: "q", WILDCARD: ""}, 0, 0, bound_to="q"),
}


@pytest.fixture(scope="module", autouse=True)
def few_topics() -> Iterator[None]:
    """Let two topics be enough for a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming.state.snapshot._FEW_TOPICS", 2)
        yield


def subscription(random: Random) -> Subscription:
    blocks = []
    for order in range(random.randrange(3)):
        notation = random.choice(list(ENTRIES))
        entries = random.sample(ENTRIES[notation], random.randrange(1, 4))
        blocks.append(Block(order + random.choice([0, 0.5]), 0, order, notation, tuple(entries)))
    return Subscription(True, random.choice([None, 7]), tuple(blocks), random.choice([None, None, None, 3]))


def change(random: Random, state: ShardState) -> ShardDelta:
    """Return random changes of a few clients, groups and topics."""
    names = random.choices(TOPICS, k=3)
    delta = ShardDelta(
        {name: None for name in names if name in state.topics},
        {name: NO_METADATA for name in names if name not in state.topics},
        {f"g{random.randrange(3)}": random.choice([*GROUPS.values(), None]) for _ in range(random.randrange(2))},
    )
    for number in random.sample(range(12), random.randrange(3)):
        key = ClientKey(f"g{number % 3}", f"c{number}")
        one = subscription(random)
        again = Client(*(each._replace(version=random.randrange(9)) for each in state.client(key)))
        new = Client(one, one), Client(one, subscription(random)), Client(ABSENT, ABSENT)
        delta.clients[key] = client = random.choice([*new, again, None])
        if client is None or random.random() < 0.8:
            delta.last_requests[key] = LastRequest(0, number, 1, 2) if client and random.random() < 0.8 else None
    return delta


def assert_same(found: ShardState, wanted: ShardState, topics: Sequence[str] = TOPICS) -> None:
    assert found == wanted
    assert_targets(found)
    assert sorted(found.clients) == sorted(wanted.clients)
    assert len(found.clients) == len(wanted.clients)
    assert len(found.last_requests) == len(wanted.last_requests)
    assert whole(found) == whole(wanted)
    assert {key: found.version(key) for key in found.clients} == {key: wanted.version(key) for key in wanted.clients}
    plain = wanted.new_interests_of(wanted.clients.present)
    assert found.interests.separate_patterns == plain.separate_patterns
    for topic in topics:
        assert normal(found.interests.match(topic)) == normal(plain.match(topic))
        assert sorted(found.interests.hits(topic)) == sorted(plain.hits(topic))
        assert found.interests.orders(topic) == plain.orders(topic)
    assert [*map(normal, found.interests.match_all(topics))] == [normal(plain.match(topic)) for topic in topics]
    pairs, others = found.interests.pairs(topics), plain.pairs(topics)
    assert pairs.topics_by_client() == others.topics_by_client()


def assert_targets(state: ShardState) -> None:
    """Check the topics of each entry."""
    for notation, entries in ENTRIES.items():
        rules = get_dialect(notation.dialect)
        for entry in entries:
            inner_multi = allows_inner_multi(notation.dialect, state.inner_multi)
            with suppress(InvalidPattern):
                text = pattern_of(entry, notation)
                pattern = rules.parse(text, policy=notation.policy, allow_inner_multi=inner_multi)
                wanted = [topic for topic in state.topics if rules.matches(pattern, topic)]
                asked = Interest(patterns=True, blocks=(Block(1, 0, 1, notation, (entry,)),))
                assert sorted(state.topics_of(asked)) == sorted(wanted)


def test_long_patterns_are_not_parsed_at_each_use() -> None:
    """A client with one of more segments than arrays have keeps its interest in memory."""
    state = ShardState()
    for number, size in enumerate((16, 17)):
        one = Subscription(True, 1, (Block(1, 0, 1, LITE, ("__".join("a" * size),)),))
        clients = {ClientKey("g", f"{number}"): Client(one, one)}
        state.apply(ShardDelta({}, {}, {"g": GROUPS["wildcard"]}, {**clients}))
    settle(state, as_read(snapshot_content(state)))
    assert state.settled is not None
    assert state.settled.unindexed == [ClientKey("g", "1")]
    assert [*state.interests.match("__".join("a" * 17))] == [SubscriberKey("g", "1")]


def test_settled_clients_take_no_memory_of_the_worker() -> None:
    """Of two thousand clients, those that change are counted again."""
    plain, found = ShardState(), ShardState()
    one = Subscription(True, 1, (Block(1, 0, 1, LITE, tuple(f"{'x' * 30}{number}" for number in range(10))),))
    clients = {ClientKey("g", f"{number}"): Client(one, one) for number in range(2_000)}
    for state in (plain, found):
        state.apply(ShardDelta({}, {"a": NO_METADATA}, {"g": GROUPS["wildcard"]}, {**clients}))
    content = snapshot_content(found)
    settle(found, as_read(content))
    assert found.memory_bytes(600_000) < plain.memory_bytes(600_000) / 5
    former, changed = memory(found), [*clients][:400]
    found.apply(ShardDelta(clients=dict.fromkeys(changed, Client(one, ABSENT))))
    added = memory(found) - former
    assert added > plain.memory_bytes(0) / 10
    settle(found, as_read(snapshot_content(found)))
    assert found.settled is not None
    assert len(found.settled.clients.recent) == len(changed)
    assert memory(found) == former + added
    found.apply(ShardDelta(clients=dict.fromkeys([*clients][400:800], Client(one, ABSENT))))
    settle(found, as_read(snapshot_content(found)))
    assert not found.settled.clients.recent
    assert memory(found) <= former


def memory(state: ShardState) -> int:
    """Return the estimate for 600,000 bytes of texts, without cached look-ups."""
    return state.memory_bytes(600_000) - settled_of(state).interests.memory_bytes


def many(count: int, *entries: str, group: str = "g", inner_multi: bool = False) -> ShardState:
    """Return a settled state whose clients have all these patterns, and a last request each."""
    state = ShardState(inner_multi=inner_multi)
    one = Subscription(True, 1, (Block(1, 0, 1, LITE, entries),))
    keys = [ClientKey(group, f"c{number}") for number in range(count)]
    requests: dict[ClientKey, LastRequest | None] = {key: LastRequest(0, 1, 1, 1) for key in keys}
    groups: dict[str, Group | None] = {group: GROUPS["wildcard"]}
    state.apply(ShardDelta({}, {"a": NO_METADATA}, groups, dict.fromkeys(keys, Client(one, one)), requests))
    settle(state, as_read(snapshot_content(state)))
    return state


def settled_of(state: ShardState) -> SettledClients:
    assert state.settled is not None
    return state.settled


def test_an_event_that_repeats_a_group_decodes_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    state = many(20, "a")
    monkeypatch.setattr(ClientTable, "_value", None)
    state.apply(ShardDelta(groups={"g": Group({BIND_TOPIC: "p", WILDCARD: "", "lite.sub.quota": "7"}, 0, 1)}))
    monkeypatch.undo()
    assert len(state.interests.match("a")) == 20
    state.apply(ShardDelta(groups={"g": None}))
    assert not settled_of(state).interests.match("a")


def test_arrays_are_written_again_when_most_interests_have_changed() -> None:
    """Their clients are indexed in memory until then, which counts."""
    state = many(200, *(f"a__{'x' * 30}{number}" for number in range(10)))
    former, arrays = state.memory_bytes(200_000), settled_of(state).arrays
    state.apply(ShardDelta(groups={"g": GROUPS["literal"]}))
    assert state.memory_bytes(200_000) > former + 200 * 10 * 50
    settle(state, as_read(snapshot_content(state)))
    assert not settled_of(state).unindexed
    assert settled_of(state).arrays["block_kinds"].tolist() != arrays["block_kinds"].tolist()


def test_a_failed_micro_batch_leaves_the_arrays() -> None:
    """With the changes since then: clients whose group has changed, and those that have changed themselves."""
    state, one = many(20, "a"), Subscription(True, 2, (Block(2, 0, 2, LITE, ("b", "a")),))
    state.apply(ShardDelta(groups={"h": GROUPS["literal"]}))
    state.apply(ShardDelta(clients={ClientKey("g", "c3"): None, ClientKey("g", "c4"): Client(one, one)}))
    plain = state.without_indexes()
    assert plain.memory_bytes(10_000) == state.memory_bytes(10_000)
    plain.apply(ShardDelta(clients={ClientKey("g", "c5"): Client(one, one)}))
    state.apply(ShardDelta(clients={ClientKey("g", "c5"): Client(one, one)}))
    assert plain.memory_bytes(10_000) == state.memory_bytes(10_000)
    assert_same(plain, state)
    found = ShardState()
    restore(found, as_read(snapshot_content(plain)))
    assert_same(found, state)


def test_a_repeated_request_leaves_its_client_settled() -> None:
    """It changes nothing but the client's last request; many of them are a change of the arrays."""
    state = many(20, "a")
    keys = list(state.clients)
    for count, settled in ((3, 3), (9, 0)):
        state.apply(ShardDelta(last_requests=dict.fromkeys(keys[:count], LastRequest(0, 2, 1, 1))))
        settle(state, as_read(snapshot_content(state)))
        assert len(settled_of(state).requests.recent) == settled
        assert not settled_of(state).clients.recent


def test_the_counts_of_clients_that_are_gone_are_forgotten() -> None:
    state = many(20, "a")
    state.counts = state.new_counts(dict.fromkeys(state.clients, 1))
    state.apply(ShardDelta(clients=dict.fromkeys(list(state.clients)[1:])))
    content = as_read(snapshot_content(state))
    found = ShardState()
    restore(found, content)
    assert found.counts is not None
    assert found.counts.by_client == {ClientKey("g", "c0"): 1}


def added(topics: Iterable[str]) -> ShardDelta:
    return ShardDelta(added=dict.fromkeys(topics, NO_METADATA))


def patterned(count: int) -> ShardState:
    """Return a settled state of many topics, whose client has a pattern."""
    state = many(1, "a__*", inner_multi=True)
    state.apply(added(f"a__b__{number}" for number in range(count)))
    settle(state, as_read(snapshot_content(state)))
    return state


def expand(state: ShardState, *patterns: str, notation: Notation = LITE) -> list[str]:
    return sorted(state.topics_of(Interest(patterns=True, blocks=(Block(1, 0, 1, notation, patterns),))))


def counted_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that will have the numbers of settled topics that are read."""
    counts, former = list[int](), TextTable.at

    def at(table: TextTable, rows: npt.NDArray[np.int64]) -> list[str]:
        counts.append(len(rows))
        return former(table, rows)

    monkeypatch.setattr(TextTable, "at", at)
    return counts


def test_settled_topics_are_found_without_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by patterns without a shape."""
    state = patterned(2_000)
    deep, starred = "__".join("c" * 20), "__".join("*" * 20)
    state.apply(added([deep]))
    settle(state, as_read(snapshot_content(state)))
    decoded = counted_rows(monkeypatch)
    size = state.memory_bytes(100_000)
    assert expand(state, "a__b__7", "*__*__1999", "x__**") == ["a__b__1999", "a__b__7"]
    assert expand(state, starred, "**__1998", "a__**__*__77") == ["a__b__1998", deep]
    assert sum(decoded) < 20
    assert state.memory_bytes(100_000) == size + 400  # for a name that was looked up
    state.apply(ShardDelta({"a__b__7": None, deep: None}, {f"{deep}__c": NO_METADATA}))
    assert expand(state, "**__7", f"{starred}__**", "**__c__**") == [f"{deep}__c"]
    assert not state._targets.indexes


def test_recent_topics_are_indexed_after_many_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of so few topics is gone when they are settled."""
    monkeypatch.setattr(module, "_QUESTIONS", 3)
    state = patterned(2_000)
    state.apply(ShardDelta({"a__b__3": None, "a": None}, {"a__c": NO_METADATA, "a__b": NO_METADATA}))
    size = state.memory_bytes(100_000)
    for _ in range(3):
        assert expand(state, "a__*") == ["a__b", "a__c"]
        assert not state._targets.recent
    assert expand(state, "a__*") == ["a__b", "a__c"]
    assert len(state._targets.recent["lite"]) == 2
    assert size < state.memory_bytes(100_000) < size + 2_000
    state.apply(ShardDelta({"a__b": None, "a__b__4": None}, {"a__d": NO_METADATA}))
    assert expand(state, "a__*", "*__b__1") == ["a__b__1", "a__c", "a__d"]
    settle(state, as_read(snapshot_content(state)))
    assert not state._targets.recent
    state.apply(ShardDelta({"a__d": None}, {"a__e": NO_METADATA}))
    assert expand(state, "a__*") == ["a__c", "a__e"]
    assert not state._targets.indexes


@pytest.mark.parametrize("notation", [LITE, NATS])
def test_postings_replace_an_index_of_all_topics(notation: Notation) -> None:
    """A snapshot has them for the dialects of all patterns; before the first pattern for the default dialect."""
    state, separator = ShardState(), get_dialect(notation.dialect).separator
    state.apply(added(f"a{separator}{number}" for number in range(99)))
    wide, wanted = f"*{separator}7", [f"a{separator}7"]
    assert expand(state, wide, notation=notation) == wanted
    settle(state, as_read(snapshot_content(state)))
    assert [*state._targets.indexes] == ([] if notation is LITE else ["nats"])
    assert expand(state, wide, notation=notation) == wanted
    one = Subscription(True, 1, (Block(1, 0, 1, notation, ("*",)),))
    state.apply(ShardDelta({}, {}, {"g": GROUPS["wildcard"]}, {ClientKey("g", "c"): Client(one, one)}))
    settle(state, as_read(snapshot_content(state)))
    assert not state._targets.indexes
    assert expand(state, wide, notation=notation) == wanted
    state.apply(ShardDelta({wanted[0]: None}))
    assert expand(state, wide, wanted[0], notation=notation) == []


def peak_bytes(state: ShardState, *patterns: str) -> int:
    """Return the most memory that the topics of patterns take meanwhile, without those that are returned."""
    expand(state, *patterns)
    tracemalloc.start()
    try:
        found = expand(state, *patterns)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - sum(map(sys.getsizeof, found))


def test_the_topics_of_overlapping_patterns_are_in_memory_once() -> None:
    state = many(1, "a__*")
    state.apply(added(f"a__b__c__d__e__{number:030}" for number in range(3_000)))
    settle(state, as_read(snapshot_content(state)))
    patterns = ["__".join(each) for each in product(*((literal, "*") for literal in "abcde"), "*")]
    assert peak_bytes(state, *patterns) < peak_bytes(state, patterns[0]) + 2_000_000


def test_long_topics_are_read_without_further_memory() -> None:
    state = many(1, "a__*")
    state.apply(added(f"a__{number:016000}" for number in range(600)))
    settle(state, as_read(snapshot_content(state)))
    assert peak_bytes(state, "a__*") < 3 * 512 * 16_000


def test_few_other_topics_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all topics have some segments in common, with which another one may share a bucket."""
    state = many(1, "a__*")
    common = "__".join(f"common{place}" for place in range(15))
    state.apply(added(f"{common}__{number}" for number in range(2_000)))
    settle(state, as_read(snapshot_content(state)))
    decoded = counted_rows(monkeypatch)
    assert expand(state, *(f"x{number}__**" for number in range(2_000))) == []
    assert sum(decoded) < 2_000 * 2_000 * 15 / 2**18 * 10


def whole(state: ShardState) -> list[Any]:
    """Return the clients of a state and their requests as a journal has them, whatever their order in the state."""
    return state_fields(state, {}, state.clients.items(), state.last_requests.items())[3:5]


def normal(matches: Matches) -> dict[SubscriberKey, set[str]]:
    return {subscriber: set(texts) for subscriber, texts in matches.items()}


@pytest.mark.parametrize(("array_min_topics", "forms", "questions"), [(1, 16, 0), (100, 16, 99), (1, 2, 30)])
@given(seed=st.integers(0, 10_000), length=st.integers(1, 25))
def test_any_state_and_its_interests_stay_as_they_are(
    array_min_topics: int, forms: int, questions: int, seed: int, length: int
) -> None:
    """Whether it is settled again and again, or read from a snapshot, with many or few changes in between."""
    random = Random(seed)
    new = partial(ShardState, inner_multi=True, tuning=Tuning(array_min_topics=array_min_topics, array_build_topics=0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matcher.index.texts.MAX_FORMS", forms)
        patch.setattr("streaming.state.indexes._QUESTIONS", questions)
        run(random, new, length)


def run(random: Random, new: Callable[[], ShardState], length: int) -> None:
    wanted, found = new(), new()
    for _ in range(length):
        delta = change(random, wanted)
        wanted.apply(delta)
        found.apply(delta)
        assert_same(found, wanted)
        match random.randrange(3):
            case 0:
                settle(found, as_read(snapshot_content(found)))
            case 1:
                content = as_read(snapshot_content(found))
                found = new()
                restore(found, content)
        assert_same(found, wanted)
