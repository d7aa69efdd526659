"""What a shard remembers, as bytes."""

import json
import tracemalloc
from hashlib import blake2b

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.records.model import (
    BIND_TOPIC,
    DEFAULT_QUOTA,
    LITE,
    MODEL,
    NO_METADATA,
    QUOTA,
    RESET_EXCLUSIVE,
    RESET_UNSUBSCRIBE,
    WILDCARD,
    Notation,
    SelectorSpec,
    Source,
    TopicMetadata,
)
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause
from streaming.state import Backfill, Group, GroupSelectors, ShardDelta, ShardState, append
from streaming.state.blocks import Block
from streaming.state.client import ABSENT, Client, Interest, LastRequest, Mode, Subscription
from streaming.state.delta import Former, PolicyEvent
from streaming.state.group import Selection
from streaming.state.policy import GroupPolicy
from streaming.storage import journal
from streaming.storage.journal import Journal
from tests.support.events import MQTT, NATS, WAMP
from tests.support.states import decode, encode

INT64 = 2**63
names = st.text(max_size=20)
offsets = st.integers(0, INT64 - 1)
begins = st.integers(-1, INT64 - 1)
partitions = st.integers(0, 1 << 31)
notations = st.sampled_from([LITE, MQTT, NATS, WAMP, WAMP._replace(policy="prefix"), Notation("lite", None, True)])
blocks = st.builds(Block, offsets, partitions, offsets, notations, st.lists(names, max_size=4, unique=True).map(tuple))
views = st.builds(
    Subscription,
    st.booleans(),
    st.none() | st.integers(-INT64, INT64 - 1),
    st.lists(blocks, max_size=3).map(tuple),
    st.none() | offsets,
    begins,
)
shared = views.map(lambda subscription: Client(subscription, subscription))
groups = st.builds(Group, st.dictionaries(names, names, max_size=3), partitions, offsets, st.none() | names)
selectors = st.builds(SelectorSpec, names, names)
unsettled = st.builds(Selection, partitions, offsets, selectors, st.sampled_from([(mode,) for mode in Mode]))
group_selectors = st.builds(
    GroupSelectors, st.none() | selectors, st.none() | selectors, st.lists(unsettled, max_size=2).map(tuple), begins
)
metadata = st.builds(
    TopicMetadata,
    st.none() | names,
    st.dictionaries(names, names, max_size=2),
    st.none() | st.integers(-INT64, INT64 - 1),
).map(lambda metadata: NO_METADATA if metadata == NO_METADATA else metadata)


@st.composite
def states(draw: st.DrawFn) -> ShardState:
    """Any state."""
    made = ShardState()
    made.topics = draw(st.dictionaries(names, metadata, max_size=6))
    made.groups = draw(st.dictionaries(names, groups, max_size=3))
    keys = st.builds(ClientKey, names, names)
    made.clients.update(draw(st.dictionaries(keys, shared | st.builds(Client, views, views), max_size=4)))
    requests = st.builds(LastRequest, partitions, offsets, begins, begins, offsets, offsets)
    made.last_requests.update(draw(st.dictionaries(keys, requests)))
    made.selectors = draw(st.dictionaries(names, group_selectors, max_size=2))
    made.alarms = draw(st.dictionaries(st.integers(0, INT64 - 1), st.just(True), max_size=2))
    made.latest_order = draw(st.integers(1, INT64 - 1)) if made else 0
    return made


def filled() -> ShardState:
    """A small state of everything."""
    made = ShardState()
    made.topics = {"a__b": NO_METADATA, "é": TopicMetadata("x", {"k": "v"}, 7_000), "😀": NO_METADATA}
    made.groups = {"g": Group({BIND_TOPIC: "p", WILDCARD: ""}, 2, 17), "h": Group({}, 0, 3, "q")}
    subscription = Subscription(
        True, -5, (Block(4, 0, 40, LITE, ("a__*", "b")), Block(6, 1, 60, WAMP, ("c..",))), 2, 40
    )
    made.clients[ClientKey("g", "shared")] = Client(subscription, subscription)
    made.clients[ClientKey("g", "apart")] = Client(subscription, ABSENT)
    made.last_requests[ClientKey("g", "shared")] = LastRequest(1, 70, 40, 30, 6, 5)
    made.last_requests[ClientKey("g", "left")] = LastRequest(0, 5, -1, -1)
    made.selectors = {"g": GroupSelectors(SelectorSpec("TAG", "x"), None)}
    made.alarms = {7_000: True}
    asked = Interest(True, subscription.blocks, 2)
    source = Source("s", 0, 1, 0, 9)
    former = Former(asked, source, Cause.UNSUBSCRIBED, {"type": "TAIL_N", "value": 3})
    policy = GroupPolicy(Mode.WILDCARD, exclusive=True, selector=SelectorSpec("TAG", "x"))
    made.backfills = {
        ClientKey("g", ""): Backfill({"apart": former}, "a__b", "😀"),
        ClientKey("g", " "): Backfill({}, "a__b", "a__b", policy, PolicyEvent(source, "shared")),
    }
    made.latest_order = 9
    return made


@given(made=states())
def test_a_state_is_what_was_encoded(made: ShardState) -> None:
    """All values and their types come back, and the order of topics; what comes back has the same bytes."""
    data = encode(made)
    again = decode(data)
    assert again == made
    assert list(again.topics) == list(made.topics)
    assert list(again.clients.present) == sorted(made.clients.present)
    assert all(isinstance(key, ClientKey) for key in again.clients)
    subscriptions = [each for client in again.clients.values() for each in client]
    assert all(isinstance(each, Subscription) for each in subscriptions)
    held = [block for each in subscriptions for block in each.blocks]
    assert all(isinstance(block, Block) for block in held)
    assert all(isinstance(block.notation, Notation) for block in held)
    assert all(isinstance(metadata, TopicMetadata) for metadata in again.topics.values())
    assert all((metadata is NO_METADATA) is (metadata == NO_METADATA) for metadata in again.topics.values())
    assert encode(again) == data
    assert bool(again) == bool(made)


def test_a_shared_view_stays_shared() -> None:
    clients = decode(encode(filled())).clients
    both = clients[ClientKey("g", "shared")]
    assert both.literal is both.wildcard
    apart = clients[ClientKey("g", "apart")]
    assert apart.literal != apart.wildcard
    (plain, other) = both.literal.blocks
    assert plain.notation is LITE, "states omit the default notation, and recognize it by identity"
    assert other.notation == WAMP


def test_many_backfills_share_the_order_of_the_topics() -> None:
    """A tenant with many groups does not multiply the memory of a worker."""
    made, names = ShardState(), [f"topic-{number}" for number in range(10_000)]
    backfills: dict[ClientKey, Backfill | None] = {
        ClientKey(f"group-{number}", " "): Backfill({}, names[number], names[-1 - number]) for number in range(500)
    }
    made.apply(ShardDelta(added=dict.fromkeys(names, NO_METADATA), backfills=backfills))
    tracemalloc.start()
    try:
        found = [made.remaining(key) for key in backfills]
        assert tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()
    assert all(list(span) == names[place : len(names) - place] for place, span in enumerate(found[:10]))


def test_the_topics_that_remain_keep_their_order() -> None:
    """A topic that is created again is new, also after the places of most topics were made again."""
    made, key, names = ShardState(), ClientKey("g", " "), [f"topic-{number}" for number in range(300)]
    backfills: dict[ClientKey, Backfill | None] = {key: Backfill({}, names[100], names[199])}
    made.apply(ShardDelta(added=dict.fromkeys(names, NO_METADATA), backfills=backfills))
    remaining = names[100:200]
    assert list(made.remaining(key)) == remaining
    for start in range(101, 190, 3):  # the first and the last one stay
        gone, again = names[start], names[start + 1]
        added = {again: NO_METADATA, **{f"new-{start}-{number}": NO_METADATA for number in range(20)}}
        made.apply(ShardDelta(dict.fromkeys([gone, again]), added))
        remaining = [name for name in remaining if name not in (gone, again)]
        assert list(made.remaining(key)) == remaining
        assert list(reversed(made.remaining(key))) == remaining[::-1]
        assert [topic for topic in made.topics if topic in made.remaining(key)] == remaining
        assert len(made.order._names) <= 2 * len(made.topics) + 64


def test_a_journal_that_has_outgrown_its_beginning_is_compacted() -> None:
    """Its size stays within a constant factor of its content, whatever comes and goes."""
    made, changes = ShardState(), Journal()
    sizes: list[int] = []
    for number in range(2_000):
        delta = ShardDelta({f"topic-{number - 5}": None} if number > 4 else {}, {f"topic-{number}": NO_METADATA})
        made.apply(delta)
        changes = append(changes, made, delta)
        sizes.append(len(changes.stored or b""))
    assert decode(changes.stored) == made
    assert max(sizes) < 2 * len(encode(made) or b"") + 4_200


@pytest.mark.parametrize("metadata", [NO_METADATA, TopicMetadata("tag", {}, 1_700_000_000_000)])
def test_a_topic_takes_at_most_64_bytes_beyond_its_name_and_tag(metadata: TopicMetadata) -> None:
    """The deadline is in the 64 bytes."""
    made = ShardState()
    made.topics = dict.fromkeys((f"orders__eu__tenant{number}" for number in range(10_000)), metadata)
    texts = sum(len(name) + len(metadata.tags or "") for name in made.topics)
    assert (len(encode(made) or b"") - texts) / 10_000 <= 64


@pytest.mark.parametrize("clients", [1, 100, 10_000])
def test_a_pattern_takes_at_most_150_bytes(clients: int) -> None:
    """Its text and its share of the client included."""
    made = ShardState()
    patterns = [f"orders__*__tenant{number}__**" for number in range(10_000)]
    for number in range(clients):
        block = Block(10_000 + number, 3, (1_000_000_000 + number) << 10, LITE, tuple(patterns[number::clients]))
        subscription = Subscription(True, 1_700_000_000_000, (block,))
        key = ClientKey("group-of-the-shop", f"10.0.0.1@{number}")
        made.clients[key] = Client(subscription, subscription)
        made.last_requests[key] = LastRequest(3, *[(1_000_000_000 + number) << 10] * 3)
    assert len(encode(made) or b"") / 10_000 <= 150


@pytest.mark.rule("wildcard-attribute", "unknown-group")
@pytest.mark.parametrize(
    ("attributes", "policy"),
    [
        ({}, GroupPolicy(quota=DEFAULT_QUOTA)),
        ({WILDCARD: "true"}, GroupPolicy(Mode.WILDCARD, quota=2_000)),
        ({WILDCARD: ""}, GroupPolicy(Mode.WILDCARD, quota=2_000)),
        ({WILDCARD: "false"}, GroupPolicy(Mode.WILDCARD, quota=2_000)),
        ({MODEL: "Exclusive"}, GroupPolicy(exclusive=True, quota=2_000)),
        ({MODEL: "EXCLUSIVE"}, GroupPolicy(exclusive=True, quota=2_000)),
        ({MODEL: "shared"}, GroupPolicy(quota=2_000)),
        ({QUOTA: "0"}, GroupPolicy(quota=0)),
        ({QUOTA: "-1"}, GroupPolicy(quota=-1)),
    ],
)
def test_the_attributes_of_a_group_are_the_terms_of_its_clients(
    attributes: dict[str, str], policy: GroupPolicy
) -> None:
    """The presence of `lite.sub.wildcard` counts; a group of which nothing is known has the defaults."""
    made = ShardState()
    made.groups["g"] = Group({BIND_TOPIC: "p", **attributes}, 0, 0)
    assert made.policy("g") == policy
    assert made.policy("another") == GroupPolicy(Mode.LITERAL, False, False, None, 2_000)
    assert made.restrictive_policies == ({} if not policy.exclusive else {"g": policy})


@pytest.mark.rule("wildcard-attribute")
@pytest.mark.parametrize("value", ["true", "TRUE", "false", "", None])
def test_the_reset_attributes_are_on_when_true(value: str | None) -> None:
    on = value is not None and value.lower() == "true"
    for name in (RESET_EXCLUSIVE, RESET_UNSUBSCRIBE):
        group = Group({} if value is None else {name: value}, 0, 0)
        assert group.resets_offset(Cause.EVICTED) is (on and name == RESET_EXCLUSIVE)
        assert group.resets_offset(Cause.UNSUBSCRIBED) is (on and name == RESET_UNSUBSCRIBE)


def test_the_selector_of_a_group_is_that_of_its_reading() -> None:
    made = ShardState()
    made.selectors["g"] = GroupSelectors(SelectorSpec("TAG", "names"), SelectorSpec("TAG", "patterns"))
    assert made.policy("g").selector == SelectorSpec("TAG", "names")
    assert made.restrictive_policies == {"g": made.policy("g")}
    made.apply(ShardDelta(groups={"g": Group({WILDCARD: ""}, 0, 0)}))
    assert made.policy("g").selector == SelectorSpec("TAG", "patterns")
    assert made.restrictive_policies == {"g": made.policy("g")}
    made.apply(ShardDelta(selectors={"g": GroupSelectors(SelectorSpec("TAG", "names"), None)}))
    assert made.restrictive_policies == {}


def test_a_group_that_is_bound_elsewhere_asks_for_nothing() -> None:
    made = filled()
    subscription = Subscription(True, None, (Block(1, 0, 1, LITE, ("a__b",)),))
    made.clients[ClientKey("h", "c")] = Client(subscription, subscription)
    assert made.policy("h").elsewhere
    assert made.interest(ClientKey("h", "c")) == Interest()
    made.apply(ShardDelta(groups={"h": None}))
    assert made.interest(ClientKey("h", "c")) == Interest(False, subscription.blocks)


def test_the_lowest_quota_in_force() -> None:
    """The default quota always counts, because unknown groups have it."""

    def lowest() -> int:
        return made.lowest_share(lambda quota: None if quota < 0 else quota)

    made = ShardState()
    assert lowest() == 2_000
    made.apply(ShardDelta(groups={"g": Group({QUOTA: "7"}, 0, 0), "h": Group({QUOTA: "-1"}, 0, 0)}))
    assert lowest() == 7
    made.apply(ShardDelta(groups={"g": None}))
    assert lowest() == 2_000


@pytest.mark.parametrize("early", [False, True])
def test_topics_whose_time_is_over_are_due(early: bool) -> None:  # noqa: FBT001
    """Earliest first, up to and including the time asked for; the index that is built first follows what comes."""
    made = ShardState()
    if early:
        assert made.due(INT64) == []
    deadlines = {"a": 20, "b": None, "c": 10, "d": 20}
    made.apply(ShardDelta(added={name: TopicMetadata(deadline=deadline) for name, deadline in deadlines.items()}))
    assert [made.due(now) for now in (9, 10, 19, 20)] == [[], ["c"], ["c"], ["c", "a", "d"]]
    made.apply(ShardDelta({"a": None, "b": None, "c": None}, {"a": TopicMetadata(deadline=30), "c": NO_METADATA}))
    assert [made.due(now) for now in (10, 20, 30)] == [[], ["d"], ["d", "a"]]


def test_an_interest_has_each_topic_once() -> None:
    """Each once, whatever its notations; `$share` is expanded by its filter."""
    made = ShardState()
    made.apply(ShardDelta(added=dict.fromkeys(["a", "b", "a/b", "a.b", "a.b.c"], NO_METADATA)))

    def found(*blocks: Block, patterns: bool = True, everything: int | None = None) -> list[str]:
        return sorted(made.topics_of(Interest(patterns, blocks, everything)))

    assert found(everything=0) == ["a", "a.b", "a.b.c", "a/b", "b"]
    assert found(Block(1, 0, 1, LITE, ("a", "z", "a")), Block(2, 0, 2, LITE, ("b", "a")), patterns=False) == ["a", "b"]
    assert found(Block(1, 0, 1, MQTT, ("$share/x/a/#",)), Block(1, 0, 1, LITE, ("a",))) == ["a", "a/b"]
    assert found(Block(1, 0, 1, WAMP._replace(policy="prefix"), ("a.b",))) == ["a.b", "a.b.c"]
    assert found(Block(1, 0, 1, NATS, ("a.*",)), Block(1, 0, 1, WAMP, ("a.*",))) == ["a.b", "a.b.c"]


def test_topic_indexes_follow_what_comes_and_goes() -> None:
    """Those that exist, one a dialect."""
    wanted = [Interest(True, (Block(1, 0, 1, notation, ("a",)),)) for notation in (LITE, MQTT, NATS)]
    made = ShardState()
    assert [list(made.topics_of(each)) for each in wanted] == [[], [], []]
    made.apply(ShardDelta(added={"a": NO_METADATA, "b": NO_METADATA}))
    assert [list(made.topics_of(each)) for each in wanted] == [["a"], ["a"], ["a"]]
    made.apply(ShardDelta({"a": None}))
    assert [list(made.topics_of(each)) for each in wanted] == [[], [], []]


def test_nothing_left_is_an_empty_state() -> None:
    """Which the job removes instead of storing it."""
    made = filled()
    changes = Journal.open(encode(made))
    delta = ShardDelta(
        dict.fromkeys(made.topics),
        {},
        dict.fromkeys(made.groups),
        dict.fromkeys(made.clients),
        dict.fromkeys(made.last_requests),
        dict.fromkeys(made.selectors),
        dict.fromkeys(made.alarms),
        dict.fromkeys(made.backfills),
    )
    made.apply(delta)
    assert not made
    assert append(changes, made, delta).stored is None
    assert made == ShardState()


def test_the_former_format_is_read() -> None:
    """It does not know when a client asked for everything, nor the order of the request that replaced its set."""
    client, everything = ClientKey("g", "c"), (True, None, (), 2)
    body = msgpack.packb([[], ["t"], [], [[client, [everything, None], [0, 70, 40, 30]]], [], [], [], [], []])
    segment = len(body).to_bytes(4) + body
    found = decode(b"rx\x03" + bytes(4) + segment + blake2b(body, digest_size=16).digest())
    subscription = Subscription(True, None, (), 2)
    assert (dict(found.clients), dict(found.last_requests)) == (
        {client: Client(subscription, subscription)},
        {client: LastRequest(0, 70, 40, 30)},
    )
    assert list(found.topics) == ["t"]


STORED = """[
    [], ["a__b", ["é", "x", {"k": "v"}, 7000], "😀"],
    [["g", [{"lite.bind.topic": "p", "lite.sub.wildcard": ""}, 2, 17, null]], ["h", [{}, 0, 3, "q"]]],
    [[["g", "apart"],
        [[true, -5, [[4, 0, 40, null, ["a__*", "b"]], [6, 1, 60, ["wamp", null, true], ["c.."]]], 2, 40],
        [false, null, [], null, -1]], null],
    [["g", "shared"],
        [[true, -5, [[4, 0, 40, null, ["a__*", "b"]], [6, 1, 60, ["wamp", null, true], ["c.."]]], 2, 40], null],
        [1, 70, 40, 30, 6, 5]]],
    [[["g", "left"], [0, 5, -1, -1, 0, 0]]], [["g", [["TAG", "x"], null]]], [[7000, true]],
    [[["g", ""], [[["apart",
        [true, [[4, 0, 40, null, ["a__*", "b"]], [6, 1, 60, ["wamp", null, true], ["c.."]]], 2],
        ["s", 0, 1, 0, 9], "UNSUBSCRIBED", {"type": "TAIL_N", "value": 3}]], "a__b", "😀", null, null]],
    [["g", " "], [[], "a__b", "a__b", ["wildcard", false, true, ["TAG", "x"], -1], [["s", 0, 1, 0, 9], "shared"]]]],
    [], 9]"""
"""The content of `filled()` in a state value, as JSON."""


def test_the_format_is_known() -> None:
    """A change of what is stored needs a new number, and with it this test and a way to read the former one."""
    assert journal.FORMAT == 7
    made = filled()
    data = encode(made) or b""
    assert data[:8] == b"rx\x07\xf8" + bytes(4)
    (change,) = Journal.open(data).changes()
    assert json.loads(json.dumps(change)) == json.loads(STORED)
