"""Ends of topics, sessions and rights of a group on a parent: updates, causes, sources, and alarms."""

import pytest

from streaming.records.model import DEADLINE_STEP_MS, Source, Stream
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey
from streaming.state import Group, Shard
from streaming.state.client import Ignored
from tests.support.events import (
    DELETED,
    LITERAL,
    WILD,
    Event,
    add,
    created,
    deleted,
    drop,
    ended,
    leave,
    quota,
    replace,
    stream_of,
    superseded,
    wake,
)
from tests.support.story import (
    Said,
    Story,
    added,
    degrouped,
    expired,
    freed,
    lapsed,
    regrouped,
    subscribed,
    unsubscribed,
)

STEP = DEADLINE_STEP_MS


# Topics with a TTL.


@pytest.mark.rule("life-of-a-topic", "causes-of-time", "repeated-topic-events")
def test_a_topic_ends_at_its_time() -> None:
    """The source is the record with the current time. A second creation does not prolong it."""
    story = Story(WILD, replace("*"), created("t", ttlMs=1), created("u"))
    assert story.then(wake(STEP - 1), created("t", ttlMs=5 * STEP)) == set()
    assert story.ignored == {Ignored.TOPIC_EXISTS: 1}
    assert story.then(wake(STEP)) == {expired("t", "*")}
    assert story.only_update.source == Source("clock", 0, 7, 0, 1_007)
    assert story.held() == ["u"]
    assert story.then(wake(9 * STEP)) == set()


@pytest.mark.rule("deadline")
def test_a_ttl_starts_at_the_timestamp_of_the_topic_or_of_its_record() -> None:
    """Else from that of its record, which is 1,002 here."""
    story = Story(WILD, created("a", ttlMs=STEP, timestamp=0), created("b", ttlMs=STEP - 1_003))
    assert {topic: metadata.deadline for topic, metadata in story.state.topics.items()} == {"a": STEP, "b": STEP}
    story = Story(WILD, created("b", ttlMs=STEP - 1_001))
    assert story.state.topics["b"].deadline == 2 * STEP


@pytest.mark.rule("recreated-topic")
@pytest.mark.parametrize(("again", "left"), [(created("t"), []), (created("t", ttlMs=5 * STEP), [6 * STEP])])
def test_a_recreated_topic_has_a_time_of_its_own(again: Event, left: list[int]) -> None:
    """Also in the batch in which the former one would have ended."""
    story = Story(WILD, replace("*"), created("t", ttlMs=1))
    assert story.then(deleted("t"), again, wake(STEP)) == set()
    assert story.held() == ["t"]
    assert sorted(story.state.alarms) == left
    assert story.then(wake(7 * STEP)) == {expired("t", "*") for _ in left}


def test_a_topic_deleted_after_its_end_has_expired() -> None:
    story = Story(WILD, replace("*"), created("t", ttlMs=1))
    story.offset = STEP
    assert story.then(deleted("t")) == {expired("t", "*")}
    assert story.ignored == {Ignored.TOPIC_UNKNOWN: 1}


@pytest.mark.rule("overdue-topic")
def test_a_topic_whose_time_is_over_when_it_comes_never_was() -> None:
    """In a batch with the current time; else it ends with the answer to its alarm."""
    story = Story(WILD, replace("*"))
    assert story.then(created("t", ttlMs=1), wake(STEP)) == set()
    assert not story.expansion.delta
    assert story.then(created("t", ttlMs=1)) == {added("t", "*")}
    assert story.then(wake(99 * STEP)) == {expired("t", "*")}


@pytest.mark.parametrize(
    ("before", "event", "said"),
    [
        ([WILD], replace("*"), set()),
        ([WILD, replace("*")], leave(), {expired("t", "*")}),
        ([quota(1), replace("*")], created("u"), {expired("t", "*"), freed("u", "*")}),
    ],
    ids=["a new client", "a client that leaves", "room for another topic"],
)
def test_the_end_of_a_topic_meets_other_events(before: list[Event], event: Event, said: set[Said]) -> None:
    is_topic = stream_of(event) is Stream.TOPICS
    story = Story(*before, created("t", ttlMs=1), *[event] * is_topic)
    assert story.then(*[event] * (not is_topic), wake(STEP)) == said


def test_the_latest_time_of_a_batch_counts() -> None:
    story = Story(WILD, replace("*"), created("a", ttlMs=1), created("b", ttlMs=STEP), created("c", ttlMs=2 * STEP))
    assert story.then(wake(2 * STEP), wake(STEP)) == {expired("a", "*"), expired("b", "*")}
    assert story.state.alarms == {3 * STEP: True}
    assert {update.source.offset for update in story.expansion.updates} == {6}


# Alarms: the shard asks to be woken for what it keeps.


def alarms(story: Story) -> dict[int, bool | None]:
    """Of the last batch: times asked for, and times that are over (None)."""
    return story.expansion.delta.alarms


@pytest.mark.rule("one-alarm")
def test_each_time_is_asked_for_once() -> None:
    story = Story(created("a", ttlMs=1), created("b", ttlMs=2), created("c", ttlMs=STEP), created("d"))
    assert alarms(story) == {STEP: True, 2 * STEP: True}
    story.then(created("e", ttlMs=3))
    assert alarms(story) == {}
    story.then(created("f", ttlMs=2 * STEP))
    assert alarms(story) == {3 * STEP: True}


@pytest.mark.rule("one-alarm")
def test_times_that_are_over_are_forgotten() -> None:
    """Whether something ended then or not: so what comes late asks again."""
    story = Story(created("a", ttlMs=1), created("b", ttlMs=STEP))
    story.then(deleted("a"))
    story.then(wake(STEP))
    assert alarms(story) == {STEP: None}
    assert story.state.alarms == {2 * STEP: True}
    story.then(created("c", ttlMs=1))
    assert alarms(story) == {STEP: True}
    story.then(wake(3 * STEP), wake(3 * STEP))
    assert alarms(story) == {STEP: None, 2 * STEP: None}
    assert not story.state
    story.then(wake(3 * STEP))
    assert not story.expansion.delta


# The end of a client on all of its parents: the coordinator sends it to each of them, one batch later.


@pytest.mark.rule("causes-of-removes")
def test_a_client_that_left_everywhere_is_ended() -> None:
    """The source is the client's request, not the record of the coordinator."""
    story = Story(WILD, replace("*"), created("t"))
    story.offset = 10
    assert story.then(ended(7, entry=3)) == {unsubscribed("t", "*")}
    assert story.only_update.source == Source("subscriptions", 0, 7, 3, 1_007)
    assert story.state.clients == {}
    assert story.state.last_requests == {}


@pytest.mark.rule("causes-of-time")
def test_a_lease_that_ends_is_a_cause_of_its_own() -> None:
    """Its source is the record that the coordinator wrote: the client has sent nothing."""
    story = Story(WILD, replace("*", version=4), created("t"))
    story.offset = 10
    assert story.then(ended(2, expired=True)) == {lapsed("t", "*")}
    assert story.only_update.source.offset == 11
    assert story.only_update.version == 4
    assert story.then(replace("*", version=3)) == set()
    assert story.ignored == {Ignored.STALE_VERSION: 1}


ONE_OF_TWO = [quota(1), created("t"), created("u"), replace("t", version=1)]
AB, ABC = ([WILD, *map(created, topics)] for topics in ("ab", "abc"))


@pytest.mark.rule("requests-after-end", "renewal")
@pytest.mark.parametrize(
    ("before", "events", "said"),
    [
        # Of additions those since the end stay, and a whole set since then stays as it is.
        ([*ABC, replace("a", "b")], [add("b", "c"), ended(9)], {unsubscribed("a", "a"), subscribed("c", "c")}),
        ([*ABC, replace("a", "b")], [add("b", "c"), replace("b", "c"), ended(11)],
         {unsubscribed("a", "a"), subscribed("c", "c")}),
        ([*ABC, replace("a", "b")], [replace("b"), add("c"), ended(9)],
         {unsubscribed("a", "a"), subscribed("c", "c")}),
        ([*AB, replace()], [replace(), ended(9)], set()),
        # A client that has only taken something back since then has nothing, but is in session.
        ([*AB, replace("a", "b")], [drop("b"), ended(9), add()], {unsubscribed("a", "a"), unsubscribed("b", "b")}),
        # A client that asked again before its lease ended keeps all.
        ([*AB, replace("a")], [add("b"), ended(9, expired=True)], {subscribed("b", "b")}),
        # Also if its request is stale, refused, or for its quota too large, but no such request replaces the set.
        *((ONE_OF_TWO, [again, ended(9, expired=True)], set())
          for again in (replace("t"), add("t", version=0), replace("a*"), replace("*"))),
        *((ONE_OF_TWO, [again, ended(9)], {unsubscribed("t", "t")})
          for again in (replace("t", version=0), replace("a*"), replace("*"))),
        # The end may arrive twice.
        ([*AB, replace("a")], [add("b"), ended(9), ended(9), ended(9, expired=True)],
         {unsubscribed("a", "a"), subscribed("b", "b")}),
        # A client that leaves by itself and returns has a new session, which the end does not concern.
        ([*AB, replace("a")], [leave(), add("b"), ended(9)], {unsubscribed("a", "a"), subscribed("b", "b")}),
        ([*AB, replace("a")], [leave(), add(), ended(9)], {subscribed("b")}),
    ],
)  # fmt: skip
def test_a_client_keeps_what_it_asked_for_after_its_end(
    before: list[Event], events: list[Event], said: set[Said]
) -> None:
    story = Story(*before)
    story.offset = 10
    assert story.then(*events) == said


def test_a_set_of_another_partition_is_not_newer() -> None:
    """Only an addition is, in the partition of the end; what came from elsewhere cannot be compared."""
    story = Story(WILD, *map(created, "ab"))
    story.partition, story.offset = 1, 50
    story.then(replace("a"))
    story.partition = 0
    story.then(add("b"))
    assert story.then(ended(40)) == {unsubscribed("a", "a")}


def test_unknown_clients_leave_no_state() -> None:
    """However often they leave."""
    story = Story(WILD, leave(), drop("t", client="d"), replace("t", client="e"), leave(client="e"))
    assert story.expansion.delta.last_requests == {ClientKey("g", "e"): None}
    assert not story.state.clients
    assert not story.state.last_requests


@pytest.mark.rule("version-of-end")
def test_versions_of_the_end_count_like_those_of_others() -> None:
    story = Story(WILD, replace("*", version=5), created("t"))
    story.offset = 10
    assert story.then(ended(9, version=4)) == set()
    assert story.then(ended(9, version=6)) == {unsubscribed("t", "*")}
    assert story.only_update.version == 6
    assert story.then(replace("*", version=5)) == set()


@pytest.mark.rule("end-of-both-modes")
def test_each_mode_ends_by_what_was_asked_for_in_it() -> None:
    """A set that was refused as patterns has replaced the names only; and what replaced both is kept in both."""
    story = Story(LITERAL, replace("t"), created("t"), created("a*"))
    story.offset = 10
    assert story.then(replace("a*"), ended(9)) == {unsubscribed("t", "t"), subscribed("a*", "a*")}
    assert story.then(WILD) == {degrouped("a*", "a*")}
    story.then(replace("t"), ended(9))
    assert story.held() == ["t"]
    assert story.then(LITERAL) == set()
    story.then(ended(story.offset))
    assert story.state.clients == {}


@pytest.mark.parametrize("number", range(2))
def test_a_shard_notes_requests_that_only_concern_other_shards(number: int) -> None:
    """So that the end of a client means the same on all of them. The first shard counts it."""
    story = Story(WILD, replace("*"), shard=Shard("p", number, Routing({"p": 2})))
    other = next(name for name in "abcdef" if story.shard.routing.shard_of("p", name) != number)
    story.offset = 10
    story.then(replace(other), ended(9))
    assert story.state.last_requests != {}
    assert story.ignored == ({Ignored.ASKED_AGAIN: 1} if number == 0 else {})
    assert story.then(ended(0, client="d")) == set()
    assert story.ignored == ({Ignored.NO_SUBSCRIPTION: 1} if number == 0 else {})


# A group that is bound to another parent: the coordinator tells this one.


def elsewhere(offset: int = 500, parent: str = "q") -> Event:
    return superseded(offset, parent)


@pytest.mark.rule("bound-group")
def test_clients_of_a_group_bound_elsewhere_receive_nothing() -> None:
    """What they have is removed, and nothing is added. The source is the event that bound the group."""
    story = Story(replace("t", "u"), created("t"))
    assert story.then(elsewhere(), created("v"), add("v")) == {degrouped("t", "t")}
    assert story.only_update.source == Source("groups", 0, 500, 0, 999)
    assert story.then(created("u")) == set()
    assert story.then(replace(client="d")) == set()
    assert story.then(deleted("t")) == set()
    assert story.interest().blocks == ()


@pytest.mark.rule("bound-group")
@pytest.mark.parametrize(
    ("back", "said"),
    [(WILD, {regrouped("t", "*"), regrouped("u", "*", "u")}), (superseded(600), {regrouped("u", "u")})],
    ids=["bound here", "bound nowhere"],
)
def test_requests_during_a_binding_elsewhere_count_afterwards(back: Event, said: set[Said]) -> None:
    """The group that moves away takes its attributes with it."""
    story = Story(LITERAL, replace("t"), created("t"), created("u"))
    story.then(elsewhere())
    assert story.then(replace("*", "u")) == set()
    story.offset = 700
    assert story.then(back) == said


def test_only_its_own_parent_can_end_a_binding() -> None:
    """What is told twice changes nothing, and a deletion that names this parent does not concern the group."""
    story = Story(replace("t"), created("t"))
    story.then(elsewhere())
    assert story.then(elsewhere()) == set()
    assert story.ignored == {Ignored.GROUP_SUPERSEDED: 1}
    assert story.then(elsewhere(501, "r")) == set()
    assert story.then(DELETED) == set()
    assert story.ignored == {Ignored.GROUP_UNKNOWN: 1}
    assert story.state.groups["g"] == Group({}, 0, 501, "r")


@pytest.mark.rule("late-move")
def test_a_late_record_of_a_binding_does_not_undo_later_attributes() -> None:
    story = Story(replace("t"), created("t"))
    story.offset = 600
    story.then(LITERAL)
    assert story.then(elsewhere(500)) == set()
    assert story.ignored == {Ignored.GROUP_SUPERSEDED: 1}
    story.then(elsewhere(700))
    assert story.then(superseded(650)) == set()
    assert story.ignored == {Ignored.GROUP_SUPERSEDED: 1}


@pytest.mark.rule("end-of-both-modes")
def test_a_group_deleted_here_can_still_be_bound_elsewhere() -> None:
    """And that it no longer is. Clients that end meanwhile stay ended."""
    story = Story(LITERAL, replace("t"), replace("t", client="d"), created("t"))
    story.then(DELETED)
    assert story.then(elsewhere()) == {degrouped("t", "t"), degrouped("t", "t", client="d")}
    assert story.then(ended(100, client="d")) == set()
    assert story.then(superseded(600)) == {regrouped("t", "t")}
    assert story.state.groups == {}
