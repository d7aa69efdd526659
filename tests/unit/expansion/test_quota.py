"""Quotas: how many topics of a parent a client may hold, and what becomes of the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.records.columns import Event
from streaming.records.model import DEFAULT_QUOTA, Action, GroupEvent, Place, Reason
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause
from streaming.state import Shard
from tests.support.builders import (
    DELETED,
    LITERAL,
    MQTT,
    WAMP,
    WILD,
    add,
    bound,
    created,
    deleted,
    drop,
    leave,
    replace,
    request,
)
from tests.support.states import decode, encode
from tests.support.story import Said, Story, added, removed

TWO = bound(quota=2)
ABC = [*map(created, "abc")]
CAPPING = Shard("p", cap_requests=True)


def freed(topic: str, *patterns: str, client: str = "c") -> Said:
    return added(topic, *patterns, cause=Cause.QUOTA_FREED, client=client)


def exceeded(topic: str, *patterns: str, client: str = "c") -> Said:
    return removed(topic, *patterns, cause=Cause.QUOTA_EXCEEDED, client=client)


def subscribed(topic: str, *patterns: str, client: str = "c") -> Said:
    return added(topic, *patterns, cause=Cause.SUBSCRIBED, client=client)


def unsubscribed(topic: str, *patterns: str, client: str = "c") -> Said:
    return removed(topic, *patterns, cause=Cause.UNSUBSCRIBED, client=client)


def reported(story: Story) -> list[tuple[Reason, int]]:
    """The problems of the last batch, each with the offset of its event."""
    return [(problem.reason, problem.source.offset) for problem in story.problems]


# Requests: refused whole where they would pass the quota by their net change.


@pytest.mark.rule("beyond-quota")
@pytest.mark.rule("refused-request")
def test_a_request_beyond_the_quota_is_refused_whole() -> None:
    """Nothing of it counts, its version included; the former set stands."""
    story = Story(TWO, *map(created, "abc"), replace("a", version=1))
    assert story.then(replace("a", "b", "c", version=9)) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 6)]
    assert story.held() == ["a"]
    assert story.then(replace("b", version=2)) == {unsubscribed("a", "a"), subscribed("b", "b")}


def test_the_message_says_whose_quota_how_many_and_what_to_do() -> None:
    story = Story(TWO, *map(created, "abc"))
    story.then(replace("*"))
    (problem,) = story.problems
    said = ["'c'", "'g'", "hold 3 topics", "more than 2;", "ask for less", "lite.sub.client.quota"]
    assert [part for part in said if part not in problem.message] == []


@pytest.mark.rule("beyond-quota")
def test_exactly_the_quota_is_allowed() -> None:
    story = Story(TWO, created("a"), created("b"))
    assert story.then(replace("*")) == {subscribed("a", "*"), subscribed("b", "*")}
    assert story.problems == []


@pytest.mark.rule("refused-request")
def test_neither_reading_of_a_refused_request_counts() -> None:
    """Not even the one in which it would have passed, nor its selector."""
    story = Story(TWO, *map(created, ["a", "b", "*"]))
    story.then(replace("*", tag="*"))
    assert not story.state.clients
    assert not story.state.selectors
    assert story.then(LITERAL) == set()


@pytest.mark.rule("quota-counts-topics")
def test_topics_count_once_however_many_patterns_match_them() -> None:
    story = Story(TWO, created("a"), created("b"))
    assert story.then(replace("*", "a", "**", "b")) == {
        subscribed("a", "*", "**", "a"), subscribed("b", "*", "**", "b"),
    }  # fmt: skip
    assert story.problems == []


@pytest.mark.rule("counted-topics")
def test_only_topics_that_exist_before_the_batch_count_for_a_request() -> None:
    """Those that come with it are capped."""
    story = Story(TWO)
    assert story.then(replace("*"), *map(created, "abc")) == {added("a", "*"), added("b", "*")}
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 5)]
    story = Story(TWO, *map(created, "abc"))
    assert story.then(replace("*"), deleted("a")) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 5)]


@pytest.mark.rule("quota-and-resync")
def test_a_resync_of_the_same_set_passes() -> None:
    """Although it asks for more than it may hold: more topics came since."""
    story = Story(TWO, replace("*"), *map(created, "abc"))
    assert story.then(replace("*")) == set()
    assert story.then(add("*")) == set()
    assert story.problems == []
    assert story.held() == ["a", "b"]


@pytest.mark.rule("quota-and-resync")
def test_what_asks_for_no_more_than_before_passes() -> None:
    """Also where it is still more than the quota."""
    story = Story(TWO, replace("*"), *map(created, "abcd"))
    assert story.then(replace("b", "c", "d", "x")) == {unsubscribed("a", "*"), freed("c", "c")}
    assert story.problems == []
    assert story.held() == ["b", "c"]


@pytest.mark.rule("beyond-quota")
def test_what_asks_for_one_more_than_before_is_refused() -> None:
    story = Story(TWO, replace("b", "c", "d"), *map(created, "abcd"))
    assert story.then(add("a")) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 7)]
    assert story.then(add("x")) == set()
    assert story.problems == []


@pytest.mark.rule("quota-and-resync")
@pytest.mark.parametrize("request_", [request(Action.PARTIAL_REMOVE, "a"), leave()])
def test_who_gives_up_something_is_never_refused(request_: Event) -> None:
    story = Story(TWO, replace("*", "a"), *map(created, "abcd"))
    story.then(request_)
    assert story.problems == []


def test_a_selector_that_comes_with_less_is_not_refused() -> None:
    """Although the client would match more topics: it is capped instead."""
    story = Story(bound(quota=1), created("a", "x"), created("b", "y"), replace("*", "z", tag="x"))
    story.then(request(Action.PARTIAL_REMOVE, "z", tag="x || y"))
    assert story.problems == []
    assert story.held() == ["a"]
    assert story.then(deleted("a")) == {removed("a", "*"), freed("b", "*")}


def test_each_request_of_a_batch_is_judged_by_what_those_before_it_left() -> None:
    story = Story(TWO, *map(created, "abc"))
    assert story.then(add("a"), add("b", "c"), add("b"), add("c")) == {subscribed("a", "a"), subscribed("b", "b")}
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 6), (Reason.QUOTA_EXCEEDED, 8)]


def test_a_refused_request_is_not_reported_as_something_else_as_well() -> None:
    story = Story(TWO, *map(created, "abc"))
    story.then(replace("*", "a*"))
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 5)]
    assert story.ignored == {}


def test_a_stale_or_invalid_request_is_not_reported_for_its_quota() -> None:
    story = Story(TWO, replace("a", version=5), *map(created, "abc"))
    story.then(replace("*", version=4), replace("a*", version=6))
    assert reported(story) == [(Reason.INVALID_PATTERN, 7)]


@pytest.mark.rule("counted-topics")
def test_only_what_the_selector_agrees_with_counts() -> None:
    """The one that the request brings, if it brings one."""
    topics = [created("a", "x"), created("b", "x"), created("c", "y"), created("d", "y"), created("e", "y")]
    story = Story(TWO, *topics)
    assert story.then(replace("*", tag="x")) == {subscribed("a", "*"), subscribed("b", "*")}
    story = Story(TWO, *topics, replace("d", tag="x"))
    assert story.then(replace("*", client="b")) == {
        subscribed("a", "*", client="b"), subscribed("b", "*", client="b"),
    }  # fmt: skip
    assert story.then(replace("*", client="b", tag="y")) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 9)]


def test_a_selector_that_widens_counts_against_what_the_former_one_left() -> None:
    story = Story(bound(quota=1), created("a", "x"), created("b", "y"), replace("*", tag="x"))
    assert story.then(replace("*", tag="x || y")) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 5)]


@pytest.mark.rule("counted-topics")
def test_the_reading_in_force_is_judged() -> None:
    """As names `*` and `b` are one topic."""
    story = Story(bound(wildcard=False, quota=1), *map(created, "abc"))
    assert story.then(replace("*", "b")) == {subscribed("b", "b")}
    assert story.problems == []


@pytest.mark.rule("counted-topics")
def test_exclusivity_is_not_considered_in_a_request() -> None:
    """So a request may be refused for topics of which the client would not hold a single one."""
    story = Story(bound(exclusive=True, quota=2), *map(created, "abc"))
    story.then(replace("a", "b", "c"))
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 5)]


def test_a_group_bound_elsewhere_has_no_quota_here() -> None:
    story = Story(bound(quota=0), *map(created, "abc"))
    story.then(GroupEvent("g", {}, "p", Place(0, 9, 9), "q"), replace(*"abc"))
    assert story.problems == []
    story = Story(*(created(f"t{number}") for number in range(2_001)))
    story.then(GroupEvent("g", {}, "p", Place(0, 9, 9), "q"), replace(*story.state.topics))
    assert story.problems == []
    assert story.state.clients != {}


# New topics: capped in order of creation, and reported.


@pytest.mark.rule("first-topics")
@pytest.mark.rule("quota-report")
def test_topics_beyond_the_quota_are_capped_and_reported() -> None:
    """One dead letter a topic event, naming the clients."""
    story = Story(TWO, replace("*", client="d"), replace("*"), replace("c", client="e"))
    assert len(story.then(*map(created, "abcd"))) == 5
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 7), (Reason.QUOTA_EXCEEDED, 8)]
    assert "'g/c', 'g/d'; it is picked up when room frees" in story.problems[0].message
    assert story.held("c") == story.held("d") == ["a", "b"]
    assert story.held("e") == ["c"]


def test_many_capped_clients_are_summed_up() -> None:
    story = Story(bound(quota=0), *(replace("*", client=f"c{number}") for number in range(8)))
    story.then(created("t"))
    (problem,) = story.problems
    assert "'g/c4' and 3 more;" in problem.message
    assert "c5" not in problem.message


@pytest.mark.rule("quota-report")
def test_a_topic_that_is_capped_is_reported_once() -> None:
    """Not again with each batch that follows."""
    story = Story(bound(quota=1), replace("*"), created("a"), created("b"))
    assert len(story.problems) == 1
    story.then(deleted("b"), replace("b", client="d"))
    assert story.problems == []
    story.then(created("a"))
    assert story.problems == []


def test_who_is_far_beyond_its_quota_gets_nothing_of_several_new_topics() -> None:
    """And each of them is reported."""
    story = Story(bound(quota=1), replace("*"), *map(created, "abcd"))
    assert story.then(*map(created, "efhi")) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, offset) for offset in (7, 8, 9, 10)]


@pytest.mark.rule("first-topics")
def test_order_of_creation_is_that_of_the_stream() -> None:
    """A second creation of what exists does not count; one after a deletion does."""
    story = Story(bound(quota=1), replace("*"))
    assert story.then(created("b"), created("a"), created("b")) == {added("b", "*")}
    assert story.then(deleted("b"), created("b")) == {exceeded("b", "*"), freed("a", "*")}
    story = Story(bound(quota=1), replace("*"))
    assert story.then(created("b"), created("a"), deleted("b"), created("b")) == {added("a", "*")}


def test_a_topic_created_anew_makes_room_for_those_before_it() -> None:
    """The source is its event."""
    story = Story(TWO, replace("*"), *map(created, "abcd"))
    assert story.held() == ["a", "b"]
    assert story.then(deleted("a"), created("a")) == {exceeded("a", "*"), freed("c", "*")}
    assert {update.source.offset for update in story.expansion.updates} == {8}


def test_literal_groups_have_quotas_as_well() -> None:
    story = Story(bound(wildcard=False, quota=1), replace("a", "b"))
    assert story.then(created("b"), created("a")) == {added("b", "b")}


# Room that frees is taken at once, in order of creation.


@pytest.mark.rule("freed-quota")
@pytest.mark.rule("causes-of-quotas")
def test_a_deleted_topic_makes_room_for_the_next() -> None:
    story = Story(TWO, replace("*"), *map(created, "abcd"))
    assert story.then(deleted("a")) == {removed("a", "*"), freed("c", "*")}
    assert {update.source.offset for update in story.expansion.updates} == {7}
    assert story.then(deleted("d")) == set()
    assert story.then(deleted("b"), created("e"), created("f")) == {removed("b", "*"), added("e", "*")}
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 11)]
    assert story.held() == ["c", "e"]


@pytest.mark.rule("freed-quota")
def test_an_entry_that_is_dropped_makes_room() -> None:
    story = Story(TWO, replace("a", "b", "c__*"), *map(created, ["a", "b", "c__x", "c__y"]))
    assert story.then(drop("a")) == {unsubscribed("a", "a"), freed("c__x", "c__*")}


def test_a_selector_that_narrows_makes_room() -> None:
    story = Story(TWO, replace("*"), created("a", "x"), created("b", "x"), created("c", "y"))
    assert story.then(replace("z", client="d", tag="y")) == {
        removed("a", "*", cause=Cause.SELECTOR_CHANGED),
        removed("b", "*", cause=Cause.SELECTOR_CHANGED),
        freed("c", "*"),
    }


def test_a_selector_that_widens_may_let_older_topics_take_the_room() -> None:
    story = Story(bound(quota=1), created("a", "x"), replace("*", tag="y"), created("b", "y"))
    assert story.held() == ["b"]
    assert story.then(replace("z", client="d", tag="x || y")) == {
        added("a", "*", cause=Cause.SELECTOR_CHANGED), exceeded("b", "*"),
    }  # fmt: skip


def test_room_of_one_client_is_not_room_of_another() -> None:
    story = Story(bound(quota=1), replace("*"), replace("a", "b", client="d"), *map(created, "abc"))
    assert story.then(drop("a", client="d")) == {unsubscribed("a", "a", client="d"), freed("b", "b", client="d")}


def test_what_is_picked_up_and_gone_in_one_batch_emits_nothing() -> None:
    story = Story(bound(quota=1), replace("*"), created("a"), created("b"))
    assert story.then(deleted("a"), deleted("b")) == {removed("a", "*")}


# The quota itself changes.


@pytest.mark.rule("current-attributes")
@pytest.mark.rule("causes-of-quotas")
def test_a_lower_quota_takes_the_newest_topics() -> None:
    """And a higher one gives them back; the source is the group event."""
    story = Story(bound(quota=3), replace("*"), *map(created, "abcd"))
    assert story.then(bound(quota=1)) == {exceeded("b", "*"), exceeded("c", "*")}
    assert {update.source.topic for update in story.expansion.updates} == {"groups"}
    assert story.then(bound(quota=2)) == {freed("b", "*")}
    assert story.then(bound(quota=-1)) == {freed("c", "*"), freed("d", "*")}
    assert story.then(bound(quota=0)) == {exceeded(topic, "*") for topic in "abcd"}
    assert story.then(DELETED) == set()
    assert story.then(WILD) == {added(topic, "*", cause=Cause.GROUP_CHANGED) for topic in "abcd"}


def test_a_lower_quota_is_not_reported() -> None:
    """Dead letters say what became of an event; nothing is wrong with the topics' events here."""
    story = Story(bound(quota=3), replace("*"), *map(created, "abc"))
    story.then(bound(quota=1))
    assert story.problems == []


def test_a_quota_that_falls_while_topics_come() -> None:
    story = Story(bound(quota=3), replace("*"), *map(created, "ab"))
    assert story.then(bound(quota=1), created("c")) == {exceeded("b", "*")}
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 6)]


def test_other_attributes_leave_the_quota_alone() -> None:
    story = Story(bound(quota=1), replace("*"), *map(created, "ab"))
    assert story.then(bound(quota=1, resets="exclusive")) == set()
    assert story.held() == ["a"]


def test_another_reading_holds_the_first_ones_of_its_own() -> None:
    story = Story(bound(quota=1), replace("*", "b", "c"), *map(created, "abc"))
    assert story.then(bound(wildcard=False, quota=1)) == {
        removed("a", "*", cause=Cause.GROUP_CHANGED), freed("b", "b"),
    }  # fmt: skip


@pytest.mark.rule("quota-values")
def test_no_quota_limits_nothing() -> None:
    story = Story(bound(quota=-1), *(created(f"t{number}") for number in range(DEFAULT_QUOTA + 1)))
    assert len(story.then(replace("*"))) == 2_001
    assert story.problems == []
    assert len(story.then(created("u"))) == 1


def test_a_quota_of_none_at_all() -> None:
    story = Story(bound(quota=0), replace("*"))
    assert story.then(created("t")) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 3)]
    assert story.then(add("t")) == set()
    assert story.problems == []
    assert story.then(replace("t", client="d")) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 5)]


@pytest.mark.rule("unknown-group")
@pytest.mark.rule("quota-values")
@pytest.mark.parametrize("group", [(), (LITERAL,)], ids=["unknown", "without the attribute"])
def test_the_default_is_two_thousand(group: tuple[Event, ...]) -> None:
    names = [f"t{number}" for number in range(2_001)]
    story = Story(*group, *map(created, names))
    assert story.then(replace(*names)) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, len(group) + 2_002)]
    assert len(story.then(replace(*names[1:]))) == 2_000
    assert story.problems == []


# Who receives everything holds nothing in this sense.


@pytest.mark.rule("quota-of-everything")
def test_everything_is_never_refused_nor_capped() -> None:
    story = Story(bound(quota=1), *map(created, "abc"))
    assert story.then(replace()) == {subscribed(topic) for topic in "abc"}
    assert story.then(created("d"), created("e")) == {added("d"), added("e")}
    assert story.problems == []


@pytest.mark.rule("quota-of-everything")
def test_who_narrows_everything_is_judged_like_one_who_asked_for_nothing() -> None:
    """Receive-all is no reference to topics, so there is nothing to compare with."""
    story = Story(TWO, replace(), *map(created, "abc"))
    assert story.then(replace("*")) == set()
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 6)]
    assert story.then(replace("b", "c")) == {unsubscribed("a")}


def test_who_widens_to_everything_gets_what_was_capped() -> None:
    story = Story(bound(quota=1), replace("*"), *map(created, "abc"))
    assert story.then(replace()) == {freed("b"), freed("c")}
    assert story.then(replace("c")) == {unsubscribed("a"), unsubscribed("b")}


# Quotas and exclusive groups.


@pytest.mark.rule("quota-and-exclusivity")
def test_a_topic_that_the_newest_client_may_not_hold_goes_to_nobody() -> None:
    story = Story(bound(exclusive=True, quota=1), replace("*"), replace("*", client="d"))
    assert story.then(created("a"), created("b")) == {added("a", "*", client="d")}
    assert "'g/d';" in story.problems[0].message
    assert "'g/c'" not in story.problems[0].message


def test_released_topics_are_held_as_far_as_there_is_room() -> None:
    story = Story(bound(exclusive=True, quota=2), replace("*"), replace("b", "c", "d", client="d"))
    story.then(*map(created, "abcd"))
    assert (story.held("c"), story.held("d")) == (["a"], ["b", "c"])
    assert story.then(leave(client="d")) == {
        unsubscribed("b", "b", client="d"), unsubscribed("c", "c", client="d"),
        added("b", "*", cause=Cause.RELEASED),
    }  # fmt: skip
    assert story.problems == []


def test_also_where_all_that_is_released_is_more_than_that() -> None:
    story = Story(bound(exclusive=True, quota=1), replace("*"), replace("*", client="d"), *map(created, "ab"))
    assert story.then(leave(client="d")) == {
        unsubscribed("a", "*", client="d"), added("a", "*", cause=Cause.RELEASED),
    }  # fmt: skip
    assert story.then(created("c")) == set()
    assert story.then(deleted("a")) == {removed("a", "*"), freed("b", "*")}


def test_also_while_topics_come() -> None:
    story = Story(bound(exclusive=True, quota=2), replace("*"), replace("b", client="d"), *map(created, "b"))
    assert story.then(leave(client="d"), created("a"), created("e")) == {
        unsubscribed("b", "b", client="d"), added("b", "*", cause=Cause.RELEASED), added("a", "*"),
    }  # fmt: skip
    assert reported(story) == [(Reason.QUOTA_EXCEEDED, 7)]


def test_an_eviction_makes_room() -> None:
    story = Story(bound(exclusive=True, quota=1), replace("*"), *map(created, "abc"))
    assert story.then(replace("a", client="d")) == {
        removed("a", "*", cause=Cause.EVICTED), subscribed("a", "a", client="d"), freed("b", "*"),
    }  # fmt: skip


# Rows of their own.


@pytest.mark.rule("quota-counts-topics")
def test_topics_count_not_rows() -> None:
    """All rows of a topic stand, or none."""
    story = Story(TWO, replace("+", "$share/s/+", "$share/t/b", notation=MQTT))
    story.then(*map(created, "abc"))
    assert story.held() == ["a", "b"]
    assert len(story.rows) == 5
    assert story.problems[0].message.count("'g/c'") == 1
    assert len(story.then(deleted("a"))) == 4
    assert (story.held(), len(story.rows)) == (["b", "c"], 5)


def test_rows_do_not_count_in_what_is_kept_from_batch_to_batch() -> None:
    story = Story(bound(quota=3), bound("h", quota=0), replace("*", "a*", notation=WAMP))
    for topic in ("a", "x", "y", "z"):
        story.then(created(topic))
    assert story.held() == ["a", "x", "y"]


def test_a_second_row_of_a_topic_needs_no_room() -> None:
    story = Story(bound(quota=1), replace("a", "b", notation=WAMP), *map(created, "ab"))
    assert story.then(add("a*", notation=WAMP)) == {
        added("a", "a*", cause=Cause.SUBSCRIBED, part="wamp::a*"),
    }  # fmt: skip
    assert story.then(drop("a", notation=WAMP)) == {removed("a", "a", cause=Cause.UNSUBSCRIBED, part="wamp::a")}
    assert story.held() == ["a"]


def test_a_topic_created_with_several_rows_takes_one_place() -> None:
    story = Story(bound(quota=3), replace("*", "a*", "b*", notation=WAMP))
    story.then(created("x"))
    assert len(story.then(created("a"), created("b"), created("c"))) == 4
    assert story.held() == ["x", "a", "b"]
    story = Story(TWO, replace("*", "a*", "b*", notation=WAMP))
    assert len(story.then(created("a"), created("b"), created("c"))) == 4
    assert story.held() == ["a", "b"]


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
    story = Story(bound(quota=4), replace("*"), *map(created, "abcd"), shard=shard)
    assert story.held() == ["a", "b"][:share]
    assert len(story.problems) == 4 - share
    story.then(deleted("a"))
    assert story.held() == ["b", "c"][:share]
    story.then(replace("*", client="d"))
    (problem,) = story.problems
    assert f"hold 3 topics, more than {share} on shard {number} of 3, whose share of 4 is {share};" in problem.message
    assert story.held("d") == ["b", "c"][:share]


@pytest.mark.rule("capped-request")
def test_of_several_shards_none_refuses_a_request() -> None:
    """So all of them know the same set and the same version of a client, whatever topics they have."""
    shards = [Shard("p", number, Routing({"p": 2})) for number in range(2)]
    topics = (ABC, [created("d")])
    stories = [Story(bound(quota=4), *own, shard=shard) for own, shard in zip(topics, shards, strict=True)]
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
    assert story.then(replace("*", version=3)) == {exceeded("c", "c"), subscribed("a", "*"), subscribed("b", "*")}
    assert reported(story) == [(Reason.QUOTA_CAPPED, 6)]
    assert "would hold 3 topics, more than 2; it receives the first ones" in story.problems[0].message
    assert story.then(replace("c", version=2)) == set()
    assert story.then(deleted("a")) == {removed("a", "*"), freed("c", "*")}


def test_a_request_that_is_capped_is_reported_as_all_others_are() -> None:
    story = Story(TWO, *ABC, shard=CAPPING)
    story.then(replace("*", "a*"))
    assert reported(story) == [(Reason.QUOTA_CAPPED, 5), (Reason.INVALID_PATTERN, 5)]
    story.then(replace("*"))
    assert reported(story) == []


@pytest.mark.rule("capped-request")
def test_capped_requests_leave_the_same_whatever_comes_first() -> None:
    events: list[Event] = [
        TWO,
        replace("*", "c"),
        add("b", client="d"),
        *ABC,
        replace("b", client="e"),
        deleted("b"),
        created("b"),
    ]
    together = Story(*sorted(events, key=lambda event: ORDER.index(type(event))), shard=CAPPING)
    orders: list[list[Event]] = [events, [*events[3:], *events[:3]], [*events[1:], TWO]]
    for order in orders:
        story = Story(shard=CAPPING)
        for event in order:
            story.then(event)
        assert story.rows.keys() == together.rows.keys()


# Counts that are kept from batch to batch follow what happens.


def test_counts_survive_times_in_which_no_quota_could_bite() -> None:
    story = Story(TWO, replace("*"), *map(created, "abc"))
    story.then(deleted("c"))
    story.then(deleted("b"))
    assert story.then(created("d"), created("e")) == {added("d", "*")}
    story.then(deleted("a"), deleted("d"))
    assert story.then(created("f"), created("h")) == {added("f", "*")}


def test_counts_go_up_and_down_with_what_comes_and_goes() -> None:
    """Also where another group's quota is so low that nothing is certain by the number of topics alone."""
    story = Story(bound("h", quota=0), TWO, replace("*"))
    for topic in "abc":
        story.then(created(topic))
    assert story.held() == ["a", "b"]
    for topic in "bca":
        story.then(deleted(topic))
    for topic in "xyz":
        story.then(created(topic))
    assert story.held() == ["x", "y"]


def test_of_several_events_that_free_room_the_first_is_the_source() -> None:
    """Whatever the order in which an index yields the topics."""
    story = Story(bound(exclusive=True, quota=2), replace("*"), *map(created, "abxy"))
    story.then(replace("a", "b", client="d"), replace("a", client="e"))
    sources = {update.lite_topic: update.source.offset for update in story.expansion.updates if update.op == "ADD"}
    assert sources == {"a": 8, "b": 7, "x": 7, "y": 7}


def test_a_client_that_leaves_without_a_quota_is_counted_again() -> None:
    """Topics are counted in all micro-batches, because those of the other group may exceed its quota."""
    story, key = Story(bound("h", quota=0), bound(quota=9), *map(created, "ab"), replace("a", "b")), ClientKey("g", "c")
    assert story.state.held(key, story.shard.client_share) == 2
    for event in bound(quota=-1), leave(), bound(quota=9), replace("a"):
        story.then(event)
    assert story.state.held(key, story.shard.client_share) == len(story.held()) == 1


steps = st.one_of(
    st.sampled_from("abcdef").map(created),
    st.sampled_from("abcdef").map(deleted),
    st.builds(
        request,
        st.sampled_from(Action),
        st.sampled_from(["*", "a", "b", "c", "**"]),
        st.sampled_from(["*", "d", "e"]),
        client=st.sampled_from("cde"),
        notation=st.sampled_from([MQTT._replace(dialect="lite"), WAMP]),
    ),
    st.builds(bound, quota=st.sampled_from([-1, 0, 1, 2, 3]), exclusive=st.booleans(), wildcard=st.booleans()),
)
ORDER = (GroupEvent, type(leave()), type(created("t")))


@pytest.mark.rule("first-topics")
@settings(max_examples=100)
@given(batches=st.lists(st.lists(steps, max_size=6), max_size=10))
def test_what_is_held_is_a_function_of_what_there_is(batches: list[list[Event]]) -> None:
    """A worker that begins anew says the same as one that has counted all the time, sources included.

    And no client with a quota holds more than that.
    """
    story, quota = Story(bound("h", quota=0)), DEFAULT_QUOTA
    for batch in batches:
        batch.sort(key=lambda event: ORDER.index(type(event)))
        cold = Story()
        cold.state, cold.offset, cold.rows = decode(encode(story.state)), story.offset, dict(story.rows)
        assert cold.then(*batch) == story.then(*batch)
        assert set(cold.expansion.updates) == set(story.expansion.updates)
        assert set(cold.problems) == set(story.problems)
        for event in batch:
            if isinstance(event, GroupEvent):
                quota = story.state.group("g").quota
        for client in "cde":
            everything = story.interest(client).everything is not None
            assert quota < 0 or everything or len(story.held(client)) <= quota
