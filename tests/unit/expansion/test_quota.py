"""Quotas: how many topics of a parent a client may hold, and which updates and dead letters they cause."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.records.model import DEFAULT_QUOTA, LITE, WILDCARD, Reason, Stream
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey
from streaming.state import Shard
from tests.support.events import (
    DELETED,
    LITERAL,
    WAMP,
    WILD,
    Event,
    add,
    attributes,
    created,
    deleted,
    drop,
    exclusive,
    leave,
    quota,
    replace,
    stream_of,
    superseded,
)
from tests.support.states import decode, encode
from tests.support.story import (
    Said,
    Story,
    added,
    degrouped,
    deselected,
    evicted,
    exceeded,
    freed,
    regrouped,
    released,
    removed,
    selected,
    subscribed,
    unsubscribed,
)

ONE, TWO = quota(1), quota(2)
AB, ABC, ABCD = ([*map(created, topics)] for topics in ("ab", "abc", "abcd"))
TAGGED = [
    created("a", tags="x"),
    created("b", tags="x"),
    created("c", tags="y"),
    created("d", tags="y"),
    created("e", tags="y"),
]
CAPPING = Shard("p", cap_requests=True)


def reported(story: Story) -> list[tuple[Reason, int]]:
    """The problems of the last batch, each with the offset of its event."""
    return [(problem.reason, problem.source.offset) for problem in story.problems]


def refused(*offsets: int) -> list[tuple[Reason, int]]:
    return [(Reason.QUOTA_EXCEEDED, offset) for offset in offsets]


# Requests: refused whole if their net change exceeds the quota.


@pytest.mark.rule("beyond-quota", "refused-request")
def test_a_request_beyond_the_quota_is_refused_whole() -> None:
    """Nothing of it counts under either mode, neither its version nor its selector; the former set stays."""
    story = Story(TWO, *ABC, replace("a", version=1))
    assert story.then(replace("a", "b", "c", version=9)) == set()
    assert reported(story) == refused(6)
    assert story.held() == ["a"]
    assert story.then(replace("b", version=2)) == {unsubscribed("a", "a"), subscribed("b", "b")}
    story.then(replace("*", client="d", tag="*"))
    assert (len(story.state.clients), story.state.selectors) == (1, {})


def test_the_message_names_client_group_number_and_remedy() -> None:
    """A refused request is not reported as anything else."""
    story = Story(TWO, *ABC)
    story.then(replace("*", "a*"))
    (problem,) = story.problems
    said = ["'c'", "'g'", "hold 3 topics", "more than 2;", "ask for less", "lite.sub.client.quota"]
    assert [part for part in said if part not in problem.message] == []
    assert story.ignored == {}


@pytest.mark.rule("beyond-quota", "quota-counts-topics", "counted-topics", "quota-and-resync", "quota-of-everything")
@pytest.mark.parametrize(
    ("before", "events", "held", "refusals"),
    [
        # The quota itself is allowed, and a topic counts once however many entries match it.
        ([TWO, *AB], [replace("*", "a", "**", "b")], "ab", []),
        # Topics that come or go in the same micro-batch do not count. New topics are capped.
        ([TWO], [replace("*"), *ABC], "ab", [5]),
        ([TWO, *ABC], [replace("*"), deleted("a")], "", [5]),
        # A request for no more topics than before passes, even if it exceeds the quota.
        ([TWO, replace("*"), *ABC], [replace("*"), add("*")], "ab", []),
        ([TWO, replace("*"), *ABCD], [replace("b", "c", "d", "x")], "bc", []),
        ([TWO, replace("b", "c", "d"), *ABCD], [add("a"), add("x")], "bc", [7]),
        ([TWO, replace("*", "a"), *ABCD], [drop("a")], "ab", []),
        ([TWO, replace("*", "a"), *ABCD], [leave()], "", []),
        ([quota(1), created("a", tags="x"), created("b", tags="y"), replace("*", "z", tag="x")],
         [drop("z", tag="x || y")], "a", []),
        # Each request follows the requests before it in the micro-batch.
        ([TWO, *ABC], [add("a"), add("b", "c"), add("b"), add("c")], "ab", [6, 8]),
        # Only topics that the selector accepts count: the selector of the request, if it has one.
        ([TWO, *TAGGED], [replace("*", tag="x")], "ab", []),
        ([TWO, *TAGGED, replace("d", tag="x")], [replace("*")], "ab", []),
        ([TWO, *TAGGED, replace("*", tag="x")], [replace("*", tag="y")], "ab", [8]),
        ([ONE, created("a", tags="x"), created("b", tags="y"), replace("*", tag="x")],
         [replace("*", tag="x || y")], "a", [5]),
        # The mode in force is judged: as names `*` and `b` are one topic. Exclusivity is not considered.
        ([attributes(quota="1"), *ABC], [replace("*", "b")], "b", []),
        ([exclusive(quota="2"), *ABC], [replace("a", "b", "c")], "", [5]),
        # A subscription to every topic counts as none.
        ([TWO, replace(), *ABC], [replace("*")], "abc", [6]),
        ([TWO, replace(), *ABC], [replace("b", "c")], "bc", []),
        ([ONE, *ABC], [replace(), created("d")], "abcd", []),
        # A quota of 0 allows nothing.
        ([quota(0), *AB], [add("a"), leave()], "", [4]),
    ],
)  # fmt: skip
def test_a_request_is_judged_by_the_topics_that_it_adds(
    before: list[Event], events: list[Event], held: str, refusals: list[int]
) -> None:
    story = Story(*before)
    story.then(*events)
    assert (story.held(), reported(story)) == ([*held], refused(*refusals))


def test_a_stale_or_invalid_request_is_not_reported_for_its_quota() -> None:
    story = Story(TWO, replace("a", version=5), *ABC)
    story.then(replace("*", version=4), replace("a*", version=6))
    assert reported(story) == [(Reason.INVALID_PATTERN, 7)]


def test_a_group_bound_elsewhere_has_no_quota_here() -> None:
    story = Story(quota(0), *(created(f"t{number}") for number in range(2_001)))
    story.then(superseded(9, "q"), replace(*story.state.topics))
    assert story.problems == []
    assert story.state.clients != {}


# New topics: capped in order of creation, and reported.


@pytest.mark.rule("first-topics", "quota-report")
def test_topics_beyond_the_quota_are_capped_and_reported_once() -> None:
    """One dead letter per topic event names the clients."""
    story = Story(TWO, replace("*", client="d"), replace("*"), replace("c", client="e"))
    assert len(story.then(*ABCD)) == 5
    assert reported(story) == refused(7, 8)
    assert "'g/c', 'g/d'; it is picked up when room frees" in story.problems[0].message
    assert story.held("c") == story.held("d") == ["a", "b"]
    assert story.held("e") == ["c"]
    story.then(deleted("d"), replace("b", client="f"), created("a"))
    assert story.problems == []
    assert story.then(*map(created, "xyz")) == set()
    assert reported(story) == refused(12, 13, 14)
    story.then(quota(0), *(replace("t", client=f"c{number}") for number in range(8)))
    story.then(created("t"))
    assert "and 5 more;" in story.problems[0].message


@pytest.mark.rule("first-topics")
def test_order_of_creation_is_that_of_the_stream() -> None:
    """A second creation of what exists does not count; one after a deletion does, and is the source."""
    story = Story(ONE, replace("*"))
    assert story.then(created("b"), created("a"), created("b")) == {added("b", "*")}
    assert story.then(deleted("b"), created("b")) == {exceeded("b", "*"), freed("a", "*")}
    assert {update.source.offset for update in story.expansion.updates} == {7}
    story = Story(attributes(quota="1"), replace("a", "b"))
    assert story.then(created("b"), created("a"), deleted("b"), created("b")) == {added("a", "a")}


# Room that frees is taken at once, in order of creation.


@pytest.mark.rule("freed-quota", "causes-of-quotas")
def test_a_deleted_topic_makes_room_for_the_next() -> None:
    story = Story(TWO, replace("*"), *ABCD)
    assert story.then(deleted("a")) == {removed("a", "*"), freed("c", "*")}
    assert {update.source.offset for update in story.expansion.updates} == {7}
    assert story.then(deleted("d")) == set()
    assert story.then(deleted("b"), created("e"), created("f")) == {removed("b", "*"), added("e", "*")}
    assert reported(story) == refused(11)
    assert story.held() == ["c", "e"]


@pytest.mark.rule("freed-quota")
@pytest.mark.parametrize(
    ("before", "events", "said"),
    [
        # An entry that is dropped, for its own client only.
        (
            [TWO, replace("a", "b", "c__*"), replace("c__x", "c__y", client="d"), *map(created, ["a", "b", "c__x"])],
            [drop("a")],
            {unsubscribed("a", "a"), freed("c__x", "c__*")},
        ),
        # A selector that narrows, and one that widens to older topics.
        (
            [TWO, replace("*"), *TAGGED[:3]],
            [replace("z", client="d", tag="y")],
            {deselected("a", "*"), deselected("b", "*"), freed("c", "*")},
        ),
        (
            [ONE, created("a", tags="x"), replace("*", tag="y"), created("b", tags="y")],
            [replace("z", client="d", tag="x || y")],
            {selected("a", "*"), exceeded("b", "*")},
        ),
        # A topic that is picked up and gone in one micro-batch.
        ([ONE, replace("*"), *AB], [deleted("a"), deleted("b")], {removed("a", "*")}),
        # A client that widens to every topic.
        ([ONE, replace("*"), *ABC], [replace()], {freed("b"), freed("c")}),
        # Another mode, which holds the first topics of its own.
        ([ONE, replace("*", "b", "c"), *ABC], [attributes(quota="1")], {degrouped("a", "*"), freed("b", "b")}),
        # Another attribute changes nothing.
        ([ONE, replace("*"), *AB], [quota(1, reset="true")], set()),
        # An eviction.
        (
            [exclusive(quota="1"), replace("*"), *ABC],
            [replace("a", client="d")],
            {evicted("a", "*"), subscribed("a", "a", client="d"), freed("b", "*")},
        ),
    ],
)
def test_room_that_frees_is_taken_at_once(before: list[Event], events: list[Event], said: set[Said]) -> None:
    assert Story(*before).then(*events) == said


# The quota itself changes.


@pytest.mark.rule("current-attributes", "causes-of-quotas")
def test_a_lower_quota_takes_the_newest_topics() -> None:
    """A higher one gives them back. The source is the group event, and the topics' events are not reported."""
    story = Story(quota(3), replace("*"), *ABCD)
    assert story.then(quota(1)) == {exceeded("b", "*"), exceeded("c", "*")}
    assert {update.source.topic for update in story.expansion.updates} == {"groups"}
    assert story.problems == []
    assert story.then(quota(2)) == {freed("b", "*")}
    assert story.then(quota(-1)) == {freed("c", "*"), freed("d", "*")}
    assert story.then(quota(0)) == {exceeded(topic, "*") for topic in "abcd"}
    assert story.then(DELETED) == set()
    assert story.then(WILD) == {regrouped(topic, "*") for topic in "abcd"}
    assert story.then(quota(3), created("e")) == {exceeded("d", "*")}
    assert reported(story) == refused(14)


@pytest.mark.rule("unknown-group", "quota-values")
@pytest.mark.parametrize("group", [(), (LITERAL,)], ids=["unknown", "without the attribute"])
def test_the_default_is_two_thousand(group: tuple[Event, ...]) -> None:
    names = [f"t{number}" for number in range(2_001)]
    story = Story(*group, *map(created, names))
    assert story.then(replace(*names)) == set()
    assert reported(story) == refused(len(group) + 2_002)
    assert len(story.then(replace(*names[1:]))) == 2_000
    assert story.problems == []


def test_topics_from_the_time_without_a_quota_do_not_count_later() -> None:
    """The count of a client without a quota is not kept up to date."""
    story = Story(quota(0, group="h"), created("t"), created("z__z"), replace("*"))
    assert story.then(quota(-1)) == {regrouped("t", "*")}
    assert story.then(superseded(500, "q")) == {degrouped("t", "*")}
    story.then(deleted("t"))
    story.then(ONE)
    assert story.then(created("u")) == {added("u", "*")}


# Quotas and exclusive groups.


@pytest.mark.rule("quota-and-exclusivity")
def test_a_topic_beyond_the_quota_of_the_newest_client_is_not_held() -> None:
    story = Story(exclusive(quota="1"), replace("*"), replace("*", client="d"))
    assert story.then(created("a"), created("b")) == {added("a", "*", client="d")}
    assert "'g/d';" in story.problems[0].message
    assert "'g/c'" not in story.problems[0].message


def test_released_topics_are_held_as_far_as_there_is_room() -> None:
    story = Story(exclusive(quota="2"), replace("*"), replace("b", "c", "d", client="d"))
    story.then(*ABCD)
    assert (story.held("c"), story.held("d")) == (["a"], ["b", "c"])
    assert story.then(leave(client="d"), created("e")) == {
        unsubscribed("b", "b", client="d"), unsubscribed("c", "c", client="d"), released("b", "*"),
    }  # fmt: skip
    assert reported(story) == refused(9)
    assert story.then(deleted("a")) == {removed("a", "*"), freed("c", "*")}


# Rows of their own.


@pytest.mark.rule("quota-counts-topics")
def test_topics_count_not_rows() -> None:
    """All rows of a topic exist, or none."""
    story = Story(TWO, quota(0, group="h"), replace("+", "$share/s/+", "$share/t/b", dialect="mqtt"))
    story.then(*ABC)
    assert story.held() == ["a", "b"]
    assert len(story.rows) == 5
    assert story.problems[0].message.count("'g/c'") == 1
    assert len(story.then(deleted("a"))) == 4
    assert (story.held(), len(story.rows)) == (["b", "c"], 5)


# Over shards.


@pytest.mark.rule("quota-of-shards")
@given(quota=st.integers(0, 100), shards=st.integers(1, 12))
def test_the_shares_of_the_shards_add_up_to_the_quota(quota: int, shards: int) -> None:
    """No two differ by more than one."""
    shares = [Shard("p", number, Routing({"p": shards})).share(quota) for number in range(shards)]
    known = [share for share in shares if share is not None]
    assert sum(known) == quota
    assert len(known) == shards
    assert max(known) - min(known) <= 1
    assert Shard("p", 0, Routing({"p": shards})).share(-1) is None


@pytest.mark.rule("quota-of-shards")
@pytest.mark.parametrize(("number", "share"), [(0, 2), (1, 1), (2, 1)])
def test_a_shard_keeps_to_its_share(number: int, share: int) -> None:
    """In requests, for new topics, and when room frees."""
    shard = Shard("p", number, Routing({"p": 3}))
    story = Story(quota(4), replace("*"), *ABCD, shard=shard)
    assert story.held() == ["a", "b"][:share]
    assert len(story.problems) == 4 - share
    story.then(deleted("a"))
    assert story.held() == ["b", "c"][:share]
    story.then(replace("*", client="d"))
    (problem,) = story.problems
    assert f"hold 3 topics, more than {share} on shard {number} of 3, whose share of 4 is {share};" in problem.message
    assert story.held("d") == ["b", "c"][:share]


@pytest.mark.rule("capped-request")
def test_no_shard_of_several_refuses_a_request() -> None:
    """So all of them know the same set and the same version of a client, whatever topics they have."""
    shards = [Shard("p", number, Routing({"p": 2})) for number in range(2)]
    topics = (ABC, [created("d")])
    stories = [Story(quota(4), *own, shard=shard) for own, shard in zip(topics, shards, strict=True)]
    for story in stories:
        story.offset = 10  # of both requests, wherever the topics are
        story.then(replace("*", version=3, tag="*"))
        assert story.then(replace("d", version=2)) == set()
        assert story.interest().blocks != ()
    assert [story.held() for story in stories] == [["a", "b"], ["d"]]
    clients = [(story.state.clients, story.state.selectors) for story in stories]
    assert clients[0] == clients[1]


# Requests that are capped, since the job refuses none.


@pytest.mark.rule("capped-request")
def test_a_request_may_be_capped_in_place_of_refused() -> None:
    """Nothing of it is lost: its version counts, and it receives further topics when room frees."""
    story = Story(TWO, *ABC, replace("c", version=1), shard=CAPPING)
    assert story.then(replace("*", "a*", version=3)) == {
        exceeded("c", "c"), subscribed("a", "*"), subscribed("b", "*"),
    }  # fmt: skip
    assert reported(story) == [(Reason.QUOTA_CAPPED, 6), (Reason.INVALID_PATTERN, 6)]
    assert "would hold 3 topics, more than 2; it receives the first ones" in story.problems[0].message
    assert story.then(replace("*", version=3), replace("c", version=2)) == set()
    assert reported(story) == []
    assert story.then(deleted("a")) == {removed("a", "*"), freed("c", "*")}


@pytest.mark.rule("capped-request")
def test_capped_requests_leave_the_same_whatever_comes_first() -> None:
    groups_and_requests: list[Event] = [TWO, replace("*", "c"), add("b", client="d")]
    events = [*groups_and_requests, *ABC, replace("b", client="e"), deleted("b"), created("b")]
    together = Story(*sorted(events, key=lambda event: ORDER.index(stream_of(event))), shard=CAPPING)
    orders: list[list[Event]] = [events, [*events[3:], *events[:3]], [*events[1:], TWO]]
    for order in orders:
        story = Story(shard=CAPPING)
        for event in order:
            story.then(event)
        assert story.rows.keys() == together.rows.keys()


# Counts that are kept from batch to batch follow what happens.


def test_the_first_event_that_frees_room_is_the_source() -> None:
    """Whatever the order in which an index yields the topics."""
    story = Story(exclusive(quota="2"), replace("*"), *map(created, "abxy"))
    story.then(replace("a", "b", client="d"), replace("a", client="e"))
    sources = {update.lite_topic: update.source.offset for update in story.expansion.updates if update.op == "ADD"}
    assert sources == {"a": 8, "b": 7, "x": 7, "y": 7}


def test_a_client_that_leaves_without_a_quota_is_counted_again() -> None:
    """Topics are counted in all micro-batches, because those of the other group may exceed its quota."""
    story, key = Story(quota(0, group="h"), quota(9), *AB, replace("a", "b")), ClientKey("g", "c")
    assert story.state.held(key, story.shard.client_share) == 2
    for event in quota(-1), leave(), quota(9), replace("a"):
        story.then(event)
    assert story.state.held(key, story.shard.client_share) == len(story.held()) == 1


steps = st.one_of(
    st.sampled_from("abcdef").map(created),
    st.sampled_from("abcdef").map(deleted),
    st.builds(
        lambda make, *entries, **fields: make(*entries, **fields),
        st.sampled_from([replace, add, drop, leave]),
        st.sampled_from(["*", "a", "b", "c", "**"]),
        st.sampled_from(["*", "d", "e"]),
        client=st.sampled_from("cde"),
        notation=st.sampled_from([LITE, WAMP]),
    ),
    st.builds(
        lambda flags, **values: attributes(*flags, **values),
        st.sampled_from([(), (WILDCARD,)]),
        quota=st.sampled_from([-1, 0, 1, 2, 3]),
        model=st.sampled_from(["Shared", "Exclusive"]),
    ),
)
ORDER = (Stream.GROUPS, Stream.SUBSCRIPTIONS, Stream.TOPICS)


@pytest.mark.rule("first-topics")
@settings(max_examples=100)
@given(batches=st.lists(st.lists(steps, max_size=6), max_size=10))
def test_held_topics_depend_on_the_state_only(batches: list[list[Event]]) -> None:
    """A worker that begins anew says the same as one that has counted all the time, sources included.

    And no client with a quota holds more than that.
    """
    story, limit = Story(quota(0, group="h")), DEFAULT_QUOTA
    for batch in batches:
        batch.sort(key=lambda event: ORDER.index(stream_of(event)))
        cold = Story()
        cold.state, cold.offset, cold.rows = decode(encode(story.state)), story.offset, dict(story.rows)
        assert cold.then(*batch) == story.then(*batch)
        assert set(cold.expansion.updates) == set(story.expansion.updates)
        assert set(cold.problems) == set(story.problems)
        if any("attributes" in event for event in batch):
            limit = story.state.group("g").quota
        for client in "cde":
            everything = story.interest(client).everything is not None
            assert limit < 0 or everything or len(story.held(client)) <= limit
