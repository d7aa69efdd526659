"""What ends by itself or from afar: topics, sessions, and the rights of a group on a parent."""

import pytest

from streaming.records.model import BIND_TOPIC, DEADLINE_STEP_MS, GroupEvent, Place, Source, Stream, TopicEvent
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause
from streaming.state import Group, Shard
from streaming.state.client import Ignored
from tests.support.builders import (
    DELETED,
    LITERAL,
    WILD,
    add,
    bound,
    created,
    deleted,
    drop,
    ended,
    group_json,
    leave,
    replace,
    request_json,
    tick_json,
    topic_json,
    wake,
)
from tests.support.simulator import Record, Simulation
from tests.support.story import Said, Story, added, removed

STEP = DEADLINE_STEP_MS


def expired(topic: str, *patterns: str, client: str = "c") -> Said:
    return removed(topic, *patterns, cause=Cause.TOPIC_EXPIRED, client=client)


def unsubscribed(topic: str, *patterns: str, client: str = "c") -> Said:
    return removed(topic, *patterns, cause=Cause.UNSUBSCRIBED, client=client)


def regrouped(topic: str, *patterns: str) -> Said:
    return added(topic, *patterns, cause=Cause.GROUP_CHANGED)


def degrouped(topic: str, *patterns: str) -> Said:
    return removed(topic, *patterns, cause=Cause.GROUP_CHANGED)


# Topics with a TTL.


@pytest.mark.rule("life-of-a-topic")
@pytest.mark.rule("causes-of-time")
def test_a_topic_ends_at_its_time() -> None:
    """The source is the record that says how late it is."""
    story = Story(WILD, replace("*"), created("t", ttl_ms=1), created("u"))
    assert story.then(wake(STEP - 1)) == set()
    assert story.then(wake(STEP)) == {expired("t", "*")}
    assert story.only_update.source == Source("clock", 0, 6, 0, 1_006)
    assert story.held() == ["u"]
    assert story.then(wake(9 * STEP)) == set()


@pytest.mark.rule("deadline")
def test_it_lives_from_its_own_timestamp_if_it_has_one() -> None:
    """Else from that of its record, which is 1,002 here."""
    story = Story(WILD, created("a", ttl_ms=STEP)._replace(timestamp=0), created("b", ttl_ms=STEP - 1_003))
    assert {topic: metadata.deadline for topic, metadata in story.state.topics.items()} == {"a": STEP, "b": STEP}
    story = Story(WILD, created("b", ttl_ms=STEP - 1_001))
    assert story.state.topics["b"].deadline == 2 * STEP


@pytest.mark.rule("repeated-topic-events")
def test_a_second_creation_does_not_prolong_it() -> None:
    story = Story(WILD, replace("*"), created("t", ttl_ms=1))
    assert story.then(created("t", ttl_ms=5 * STEP)) == set()
    assert story.ignored == {Ignored.TOPIC_EXISTS: 1}
    assert story.then(wake(STEP)) == {expired("t", "*")}


@pytest.mark.rule("recreated-topic")
@pytest.mark.parametrize(("again", "left"), [(created("t"), []), (created("t", ttl_ms=5 * STEP), [6 * STEP])])
def test_a_topic_created_anew_has_a_time_of_its_own(again: TopicEvent, left: list[int]) -> None:
    """Also in the batch in which the former one would have ended."""
    story = Story(WILD, replace("*"), created("t", ttl_ms=1))
    assert story.then(deleted("t"), again, wake(STEP)) == set()
    assert story.held() == ["t"]
    assert sorted(story.state.alarms) == left
    assert story.then(wake(7 * STEP)) == {expired("t", "*") for _ in left}


@pytest.mark.rule("late-topic-event")
def test_a_topic_created_after_its_end_lives_anew() -> None:
    """No tick has told of the end yet, and a tick that tells of it does not end the new topic."""
    story = Story(WILD, replace("*"), created("t", ttl_ms=1), created("u"))
    story.offset = STEP
    assert story.then(created("t", ttl_ms=STEP)) == set()
    assert story.held() == ["u", "t"]
    assert story.then(wake(STEP)) == set()
    assert story.then(wake(9 * STEP)) == {expired("t", "*")}


def test_a_topic_deleted_after_its_end_has_expired() -> None:
    story = Story(WILD, replace("*"), created("t", ttl_ms=1))
    story.offset = STEP
    assert story.then(deleted("t")) == {expired("t", "*")}
    assert story.ignored == {Ignored.TOPIC_UNKNOWN: 1}


@pytest.mark.rule("overdue-topic")
def test_a_topic_whose_time_is_over_when_it_comes_never_was() -> None:
    """In a batch that says how late it is; else it ends with the answer to its alarm."""
    story = Story(WILD, replace("*"))
    assert story.then(created("t", ttl_ms=1), wake(STEP)) == set()
    assert not story.expansion.delta
    assert story.then(created("t", ttl_ms=1)) == {added("t", "*")}
    assert story.then(wake(99 * STEP)) == {expired("t", "*")}


def test_who_comes_while_it_ends_gets_nothing() -> None:
    story = Story(WILD, created("t", ttl_ms=1))
    assert story.then(replace("*"), wake(STEP)) == set()


def test_who_leaves_while_it_ends_loses_it_by_its_end() -> None:
    story = Story(WILD, replace("*"), created("t", ttl_ms=1))
    assert story.then(leave(), wake(STEP)) == {expired("t", "*")}


def test_its_end_makes_room() -> None:
    story = Story(bound(quota=1), replace("*"), created("t", ttl_ms=1), created("u"))
    assert story.then(wake(STEP)) == {expired("t", "*"), added("u", "*", cause=Cause.QUOTA_FREED)}


def test_of_several_times_in_a_batch_the_latest_counts() -> None:
    story = Story(WILD, replace("*"), created("a", ttl_ms=1), created("b", ttl_ms=STEP), created("c", ttl_ms=2 * STEP))
    assert story.then(wake(2 * STEP), wake(STEP)) == {expired("a", "*"), expired("b", "*")}
    assert story.state.alarms == {3 * STEP: True}
    assert {update.source.offset for update in story.expansion.updates} == {6}


# Alarms: the shard asks to be woken for what it keeps.


def alarms(story: Story) -> dict[int, bool | None]:
    """Of the last batch: times asked for, and times that are over (None)."""
    return story.expansion.delta.alarms


@pytest.mark.rule("one-alarm")
def test_each_time_is_asked_for_once() -> None:
    story = Story(created("a", ttl_ms=1), created("b", ttl_ms=2), created("c", ttl_ms=STEP), created("d"))
    assert alarms(story) == {STEP: True, 2 * STEP: True}
    story.then(created("e", ttl_ms=3))
    assert alarms(story) == {}
    story.then(created("f", ttl_ms=2 * STEP))
    assert alarms(story) == {3 * STEP: True}


@pytest.mark.rule("one-alarm")
def test_times_that_are_over_are_forgotten() -> None:
    """Whether something ended then or not: so what comes late asks again."""
    story = Story(created("a", ttl_ms=1), created("b", ttl_ms=STEP))
    story.then(deleted("a"))
    story.then(wake(STEP))
    assert alarms(story) == {STEP: None}
    assert story.state.alarms == {2 * STEP: True}
    story.then(created("c", ttl_ms=1))
    assert alarms(story) == {STEP: True}
    story.then(wake(3 * STEP))
    assert alarms(story) == {STEP: None, 2 * STEP: None}
    assert list(story.state.topics) == []


def test_a_wake_that_comes_too_early_or_twice_does_no_harm() -> None:
    story = Story(created("a", ttl_ms=STEP))
    story.then(wake(STEP))
    assert (alarms(story), story.state.alarms) == ({}, {2 * STEP: True})
    story.then(wake(2 * STEP), wake(2 * STEP))
    story.then(wake(2 * STEP))
    assert not story.state
    assert not story.expansion.delta


# The end of a client on all of its parents: its home tells each of them, one batch later.


@pytest.mark.rule("causes-of-removes")
def test_a_client_that_left_everywhere_is_ended() -> None:
    """The source is the request that said so, not what home made of it."""
    story = Story(WILD, replace("*"), created("t"))
    story.offset = 10
    assert story.then(ended(7, entry=3)) == {unsubscribed("t", "*")}
    assert story.only_update.source == Source("subscriptions", 0, 7, 3, 1_007)
    assert story.state.clients == {}
    assert story.state.last_requests == {}


@pytest.mark.rule("causes-of-time")
def test_a_lease_that_ends_is_a_cause_of_its_own() -> None:
    """Its source is the record that home wrote: the client has said nothing."""
    story = Story(WILD, replace("*", version=4), created("t"))
    story.offset = 10
    assert story.then(ended(2, expired=True)) == {removed("t", "*", cause=Cause.LEASE_EXPIRED)}
    assert story.only_update.source.offset == 11
    assert story.only_update.version == 4
    assert story.then(replace("*", version=3)) == set()
    assert story.ignored == {Ignored.STALE_VERSION: 1}


@pytest.mark.rule("requests-after-end")
def test_who_asked_again_before_the_end_arrived_keeps_what_it_asked_for() -> None:
    """A whole set since then stands as it is; of additions those since then."""
    story = Story(WILD, replace("a", "b"), *map(created, "abc"))
    story.offset = 10
    assert story.then(add("b", "c"), ended(9)) == {unsubscribed("a", "a"), added("c", "c", cause=Cause.SUBSCRIBED)}
    assert story.then(replace("b", "c"), ended(12)) == set()
    assert story.ignored == {Ignored.UNCHANGED: 1, Ignored.ASKED_AGAIN: 1}
    assert story.held() == ["b", "c"]


def test_a_set_that_replaced_all_stands_although_more_was_added_since() -> None:
    """What it kept from before was asked for again."""
    story = Story(WILD, replace("a", "b"), *map(created, "abc"))
    story.offset = 10
    story.then(replace("b"))
    assert story.then(add("c"), ended(9)) == {added("c", "c", cause=Cause.SUBSCRIBED)}
    assert story.held() == ["b", "c"]


def test_who_only_took_something_back_since_has_nothing() -> None:
    """But is still in session, so an empty addition is no receive-all."""
    story = Story(WILD, replace("a", "b"), *map(created, "ab"))
    story.offset = 10
    assert story.then(drop("b"), ended(9)) == {unsubscribed("a", "a"), unsubscribed("b", "b")}
    assert story.then(add()) == set()


@pytest.mark.rule("requests-after-end")
def test_everything_ends_unless_it_was_asked_for_since() -> None:
    story = Story(WILD, replace(), created("t"))
    story.offset = 10
    assert story.then(replace(), ended(9)) == set()
    assert story.then(ended(14)) == {unsubscribed("t")}


def test_who_asked_again_before_its_lease_ended_keeps_all() -> None:
    story = Story(WILD, replace("a"), *map(created, "ab"))
    story.offset = 10
    assert story.then(add("b"), ended(9, expired=True)) == {added("b", "b", cause=Cause.SUBSCRIBED)}
    assert story.ignored == {Ignored.ASKED_AGAIN: 1}


@pytest.mark.rule("renewal")
def test_a_repeated_request_is_a_sign_of_life() -> None:
    """Also one that is stale, refused or for its quota too large: somebody is there."""
    for request in (replace("t"), add("t", version=0), replace("a*"), replace("*")):
        story = Story(bound(quota=1), created("t"), created("u"))
        story.then(replace("t", version=1))
        story.offset = 10
        assert story.then(request, ended(9, expired=True)) == set(), request
        assert story.ignored[Ignored.ASKED_AGAIN] == 1


def test_a_refused_set_replaces_nothing() -> None:
    """So what was asked for before the end is over."""
    for request in (replace("a*"), replace("*"), replace("t", version=0)):
        story = Story(bound(quota=1), created("t"), created("u"))
        story.then(replace("t", version=1))
        story.offset = 10
        assert story.then(request, ended(9)) == {unsubscribed("t", "t")}, request


def test_an_end_that_arrives_twice_does_no_harm() -> None:
    """What was asked for since is still known to be newer."""
    story = Story(WILD, replace("a"), *map(created, "ab"))
    story.offset = 10
    story.then(add("b"))
    assert story.then(ended(9)) == {unsubscribed("a", "a")}
    assert story.then(ended(9)) == story.then(ended(9, expired=True)) == set()
    assert story.held() == ["b"]


def test_a_set_of_another_partition_is_not_newer() -> None:
    """Only an addition is, in the partition of the end; what came from elsewhere cannot be compared."""
    story = Story(WILD, *map(created, "ab"))
    story.partition, story.offset = 1, 50
    story.then(replace("a"))
    story.partition = 0
    story.then(add("b"))
    assert story.then(ended(40)) == {unsubscribed("a", "a")}


def test_of_clients_that_are_not_known_nothing_is_kept() -> None:
    """However often they leave."""
    story = Story(WILD, leave(), drop("t", client="d"), replace("t", client="e"), leave(client="e"))
    assert story.expansion.delta.last_requests == {ClientKey("g", "e"): None}
    assert not story.state.clients
    assert not story.state.last_requests


def test_a_client_that_is_gone_is_counted_by_the_first_shard() -> None:
    for number in range(2):
        story = Story(WILD, shard=Shard("p", number, Routing({"p": 2})))
        assert story.then(ended(0)) == set()
        assert story.ignored == ({Ignored.NO_SUBSCRIPTION: 1} if number == 0 else {})


def test_who_leaves_by_itself_and_returns_is_a_new_session() -> None:
    """The end that still comes concerns the former one."""
    story = Story(WILD, replace("a"), *map(created, "ab"))
    story.offset = 10
    assert story.then(leave(), add("b"), ended(9)) == {unsubscribed("a", "a"), added("b", "b", cause=Cause.SUBSCRIBED)}


def test_who_returns_to_receive_everything_does() -> None:
    """By an empty addition, which begins a session; its end arrives after that."""
    story = Story(WILD, replace("a"), *map(created, "ab"))
    story.offset = 10
    assert story.then(leave(), add(), ended(9)) == {added("b", cause=Cause.SUBSCRIBED)}
    assert story.held() == ["a", "b"]


@pytest.mark.rule("version-of-end")
def test_versions_of_the_end_count_like_those_of_others() -> None:
    story = Story(WILD, replace("*", version=5), created("t"))
    story.offset = 10
    assert story.then(ended(9, version=4)) == set()
    assert story.then(ended(9, version=6)) == {unsubscribed("t", "*")}
    assert story.only_update.version == 6
    assert story.then(replace("*", version=5)) == set()


def test_each_reading_ends_by_what_was_asked_for_in_it() -> None:
    """A set that was refused as patterns has replaced the names only; and what replaced both is kept in both."""
    story = Story(LITERAL, replace("t"), created("t"), created("a*"))
    story.offset = 10
    assert story.then(replace("a*"), ended(9)) == {unsubscribed("t", "t"), added("a*", "a*", cause=Cause.SUBSCRIBED)}
    assert story.then(WILD) == {removed("a*", "a*", cause=Cause.GROUP_CHANGED)}
    story.then(replace("t"), ended(9))
    assert story.held() == ["t"]
    assert story.then(LITERAL) == set()


@pytest.mark.rule("end-of-both-modes")
def test_both_readings_end() -> None:
    story = Story(WILD, replace("t", "a*"), created("t"))
    story.offset = 10
    story.then(ended(9))
    assert story.then(LITERAL) == set()
    assert story.state.clients == {}


def test_one_shard_knows_of_requests_that_only_concern_others() -> None:
    """So that the end of a client means the same on all of them."""
    story = Story(WILD, replace("*"), shard=Shard("p", 0, Routing({"p": 2})))
    other = next(name for name in "abcdef" if story.shard.routing.shard_of("p", name) == 1)
    story.offset = 10
    story.then(replace(other), ended(9))
    assert story.state.last_requests != {}
    assert story.ignored == {Ignored.ASKED_AGAIN: 1}


# A group that is bound to another parent: its home tells this one.


def elsewhere(offset: int = 500, parent: str = "q") -> GroupEvent:
    return GroupEvent("g", {}, "p", Place(0, offset, 999), parent)


def unbound(offset: int = 600) -> GroupEvent:
    return GroupEvent("g", {}, "p", Place(0, offset, 999))


@pytest.mark.rule("bound-group")
def test_clients_of_a_group_bound_elsewhere_receive_nothing() -> None:
    """What there was is taken back, what comes is not given; the source is the event that bound the group."""
    story = Story(replace("t", "u"), created("t"))
    assert story.then(elsewhere()) == {degrouped("t", "t")}
    assert story.only_update.source == Source("groups", 0, 500, 0, 999)
    assert story.then(created("u")) == set()
    assert story.then(replace(client="d")) == set()
    assert story.then(deleted("t")) == set()


@pytest.mark.rule("bound-group")
def test_what_they_ask_for_meanwhile_counts_when_they_are_back() -> None:
    """Whether the group is bound here, or nowhere any more."""
    events: list[tuple[GroupEvent, set[Said]]] = [
        (WILD, {regrouped("t", "*"), regrouped("u", "*", "u")}),
        (unbound(), {regrouped("u", "u")}),
    ]
    for back, said in events:
        story = Story(replace("t"), created("t"), created("u"))
        story.then(elsewhere())
        assert story.then(replace("*", "u")) == set()
        story.offset = 700
        assert story.then(back) == said


def test_a_client_that_asks_in_the_batch_that_binds_the_group_elsewhere_gets_nothing() -> None:
    story = Story(created("t"))
    assert story.then(elsewhere(), replace("t"), created("u"), add("u")) == set()
    assert story.interest().blocks == ()
    assert story.state.clients != {}


def test_what_is_told_twice_changes_nothing() -> None:
    story = Story(replace("t"), created("t"))
    story.then(elsewhere())
    assert story.then(elsewhere()) == set()
    assert story.ignored == {Ignored.GROUP_SUPERSEDED: 1}
    assert story.then(elsewhere(501, "r")) == set()
    assert story.state.groups["g"] == Group({}, 0, 501, "r")


@pytest.mark.rule("late-move")
def test_what_is_told_late_does_not_undo_what_came_since() -> None:
    story = Story(replace("t"), created("t"))
    story.offset = 600
    story.then(LITERAL)
    assert story.then(elsewhere(500)) == set()
    assert story.ignored == {Ignored.GROUP_SUPERSEDED: 1}
    story.then(elsewhere(700))
    assert story.then(unbound(650)) == set()
    assert story.ignored == {Ignored.GROUP_SUPERSEDED: 1}


def test_only_its_own_parent_can_end_a_binding() -> None:
    """A deletion that names this one does not concern the group any more."""
    story = Story(replace("t"), created("t"))
    story.then(elsewhere())
    assert story.then(DELETED) == set()
    assert story.ignored == {Ignored.GROUP_UNKNOWN: 1}
    assert story.state.groups["g"].bound_to == "q"


def test_a_group_deleted_here_can_still_be_told_that_it_is_bound_elsewhere() -> None:
    """And that it no longer is."""
    story = Story(LITERAL, replace("t"), created("t"))
    story.then(DELETED)
    assert story.then(elsewhere()) == {degrouped("t", "t")}
    assert story.then(unbound()) == {regrouped("t", "t")}
    assert story.state.groups == {}


@pytest.mark.parametrize("group", [LITERAL, WILD])
def test_a_group_that_moves_away_takes_its_attributes_with_it(group: GroupEvent) -> None:
    """Unlike one that is deleted, whose clients go on with the defaults."""
    story = Story(group, replace("t", "*"), created("t"))
    story.then(elsewhere())
    assert story.rows == {}
    assert story.then(unbound()) == {regrouped("t", "t")}


def test_other_groups_stay() -> None:
    story = Story(replace("t"), replace("t", group="h"), created("t"))
    story.then(elsewhere())
    assert [subscriber.group for subscriber, _ in story.rows] == ["h"]


@pytest.mark.rule("end-of-both-modes")
def test_an_end_reaches_clients_of_a_group_bound_elsewhere() -> None:
    story = Story(replace("t"), created("t"))
    story.then(elsewhere())
    assert story.then(ended(100)) == set()
    assert story.then(unbound()) == set()


# Homes and shards together: what homes write back is read in the batch that follows.


class Job:
    """A job in which each record is one later than the former."""

    def __init__(self, client_timeout_ms: int = 0) -> None:
        self.simulation = Simulation(Routing({"p": 2}), client_timeout_ms=client_timeout_ms)
        self.offset = 0

    def then(self, *records: tuple[Stream, bytes]) -> set[tuple[str, str, str]]:
        """One micro-batch and those that follow from it. Returns the relation: parent, client, topic."""
        read: list[Record] = []
        for stream, value in records:
            self.offset += 1
            read.append(Record(stream, value, 0, self.offset, 1_000 * self.offset))
        self.simulation.run(read)
        return {(row.parent, row.client_id, row.lite_topic) for row in self.simulation.relation}

    @property
    def dead(self) -> list[str]:
        """The reasons of all dead letters so far."""
        return [letter["reason"] for letter in self.simulation.dead_letters]


def says(**fields: object) -> tuple[Stream, bytes]:
    return Stream.SUBSCRIPTIONS, request_json(**fields)


def binds(parent: str) -> tuple[Stream, bytes]:
    return Stream.GROUPS, group_json(attributes={BIND_TOPIC: parent})


def creates(parent: str = "p", topic: str = "t", **fields: object) -> tuple[Stream, bytes]:
    return Stream.TOPICS, topic_json(parentTopic=parent, liteTopic=topic, **fields)


DELETES = (Stream.GROUPS, group_json(attributes={}))
LEAVES = says(action="COMPLETE_REMOVE", topic=...)


@pytest.mark.rule("bound-group")
def test_a_group_receives_on_its_own_parent_only_wherever_its_clients_ask() -> None:
    job = Job()
    job.then(creates("p"), creates("q"), creates("r"))
    assert job.then(says(), says(topic="q")) == {("p", "c", "t"), ("q", "c", "t")}
    assert job.then(binds("q")) == {("q", "c", "t")}
    assert job.then(says(topic="r")) == {("q", "c", "t")}
    assert job.then(binds("r")) == {("r", "c", "t")}
    assert job.dead == ["group-bound-elsewhere"]
    assert job.then(DELETES) == {("p", "c", "t"), ("q", "c", "t"), ("r", "c", "t")}


def test_a_group_that_moves_there_and_back_and_is_deleted_in_one_batch_is_bound_nowhere() -> None:
    """Whichever way it is deleted: what its first parent was told of the binding arrives after that."""
    for deletes in (DELETES, (Stream.GROUPS, group_json(attributes={}, parentTopic="p"))):
        job = Job()
        job.then(binds("p"), creates(), says())
        assert job.then(binds("q"), binds("p"), deletes) == {("p", "c", "t")}


@pytest.mark.rule("deleted-attributes")
def test_a_deletion_that_names_another_parent_does_not_end_a_binding() -> None:
    job = Job()
    job.then(says(), creates(), binds("q"))
    assert job.then((Stream.GROUPS, group_json(attributes={}, parentTopic="p"))) == set()


@pytest.mark.rule("end-on-all-parents")
def test_a_client_that_leaves_everywhere_and_returns_in_one_batch_has_what_it_asked_for_since() -> None:
    """Also in one record."""
    job = Job()
    both = {("p", "c", "t"), ("q", "c", "t")}
    assert job.then(creates(), creates("q"), says(), says(topic="q")) == both
    assert job.then(LEAVES, says(action="PARTIAL_ADD")) == {("p", "c", "t")}
    assert job.then(says(topic="q")) == both
    record = b'{"subscriptionSet":[%b]}'
    assert job.then((Stream.SUBSCRIPTIONS, record % b",".join((LEAVES[1], says(topic="q")[1])))) == {("q", "c", "t")}
    assert job.then((Stream.SUBSCRIPTIONS, record % b",".join((says()[1], LEAVES[1])))) == set()


@pytest.mark.rule("lease")
def test_a_client_that_falls_silent_is_ended_everywhere() -> None:
    """Its requests were at 3 s and 4 s."""
    job = Job(client_timeout_ms=60_000)
    both = {("p", "c", "t"), ("q", "c", "t")}
    job.then(creates(), creates("q"), says(), says(topic="q"))
    assert job.then((Stream.CLOCK, tick_json(tick=64_000))) == both
    assert job.then((Stream.CLOCK, tick_json(tick=64_001))) == set()
    assert {update["cause"] for update in job.simulation.updates[-2:]} == {"LEASE_EXPIRED"}
    assert job.then((Stream.CLOCK, tick_json(tick=65_000))) == set()


@pytest.mark.rule("expiry")
@pytest.mark.rule("overdue-topic")
def test_a_topic_with_a_ttl_ends_after_its_time_on_any_shard() -> None:
    job = Job()
    topics = [creates(topic=name, ttlMs=5_000) for name in "abcd"]
    assert len(job.then(says(liteTopicSet=[*"abcd"]), *topics)) == 4
    assert len(job.then((Stream.CLOCK, tick_json(tick=9_999)))) == 4
    assert job.then((Stream.CLOCK, tick_json(tick=10_000))) == set()
    assert job.then(creates(topic="a", ttlMs=1_000)) == set(), "its time is 9,000"
    assert [update["op"] for update in job.simulation.updates[-2:]] == ["ADD", "REMOVE"]
    assert job.then(creates(topic="a", ttlMs=1_001)) == {("p", "c", "a")}
    assert job.then((Stream.CLOCK, tick_json(tick=20_000))) == set()
