"""Exclusive groups: at most one client of the group holds a topic, the newest that asks for it."""

import pytest

from streaming.records.model import GroupEvent, Place, Source
from streaming.records.updates import Cause, Op
from streaming.state.client import Ignored
from tests.support.builders import (
    DELETED,
    EXCLUSIVE,
    MQTT,
    WAMP,
    WILD,
    add,
    bound,
    created,
    deleted,
    drop,
    ended,
    leave,
    replace,
    told,
)
from tests.support.states import decode, encode
from tests.support.story import Story, added, removed

GONE = GroupEvent("g", {}, "p", Place(0, 1_000, 0), "q")


def evicted(topic: str, *patterns: str, client: str = "c", part: str = "") -> object:
    return removed(topic, *patterns, cause=Cause.EVICTED, client=client, part=part)


def released(topic: str, *patterns: str, client: str = "c", part: str = "") -> object:
    return added(topic, *patterns, cause=Cause.RELEASED, client=client, part=part)


def subscribed(topic: str, *patterns: str, client: str = "c") -> object:
    return added(topic, *patterns, cause=Cause.SUBSCRIBED, client=client)


# Who comes last takes the topic.


@pytest.mark.rule("eviction")
@pytest.mark.rule("causes-of-exclusivity")
def test_a_newer_subscriber_evicts_the_former_one() -> None:
    """Of the topics that both ask for, and of no others; the source of both updates is the newer one's request."""
    story = Story(EXCLUSIVE, replace("a", "b"), created("a"), created("b"))
    assert story.then(replace("b", "c", client="d")) == {evicted("b", "b"), subscribed("b", "b", client="d")}
    assert {update.source.offset for update in story.expansion.updates} == {5}
    assert (story.held("c"), story.held("d")) == (["a"], ["b"])


def test_a_part_that_comes_with_another_one_names_the_request_for_that() -> None:
    """The client asks once more for the topic by another entry, and takes it with all that it had asked for before."""
    story = Story(EXCLUSIVE, add("t", notation=WAMP), replace("t", client="d"), created("t"))
    assert len(story.then(add("*"), add("u", notation=WAMP))) == 3
    assert {update.source.offset for update in story.expansion.updates} == {5}


def test_the_newer_of_two_subscribers_of_one_batch_holds_the_topic() -> None:
    story = Story(EXCLUSIVE, created("t"))
    assert story.then(replace("*"), replace("*", client="d")) == {subscribed("t", "*", client="d")}


@pytest.mark.rule("age-of-everything")
def test_also_by_receiving_everything() -> None:
    """And one that receives everything is evicted like others."""
    story = Story(EXCLUSIVE, replace("a"), created("a"), created("b"))
    assert story.then(replace(client="d")) == {
        evicted("a", "a"), subscribed("a", client="d"), subscribed("b", client="d"),
    }  # fmt: skip
    assert story.then(replace("b", client="e")) == {evicted("b", client="d"), subscribed("b", "b", client="e")}


@pytest.mark.rule("exclusive-new-topic")
def test_later_topics_go_to_the_newest_that_asks_for_them() -> None:
    story = Story(EXCLUSIVE, replace("*"), replace("a__*", client="d"), replace(client="b"), replace("x", client="e"))
    assert story.then(created("a__x")) == {added("a__x", client="b")}
    story.then(leave(client="b"))
    assert story.then(created("a__y")) == {added("a__y", "a__*", client="d")}
    assert story.then(created("t"), created("x")) == {added("t", "*"), added("x", "x", client="e")}


def test_a_topic_that_comes_with_a_new_subscriber_goes_to_that() -> None:
    """As does one that comes while its subscriber leaves to the next."""
    story = Story(EXCLUSIVE, replace("*"))
    assert story.then(replace("*", client="b"), created("t")) == {added("t", "*", client="b")}
    assert story.then(leave(client="b"), created("u")) == {
        removed("t", "*", client="b", cause=Cause.UNSUBSCRIBED), released("t", "*"), added("u", "*"),
    }  # fmt: skip


@pytest.mark.rule("exclusive")
def test_the_newest_entry_that_matches_counts_not_the_newest_client() -> None:
    """Each entry is as new as the request that brought it."""
    story = Story(EXCLUSIVE, replace("a"), replace("a", "b", client="d"), add("b"))
    assert story.then(created("a"), created("b")) == {added("a", "a", client="d"), added("b", "b")}


def test_an_older_entry_counts_as_long_as_it_is_the_newest_that_matches() -> None:
    """Of two patterns of one client the newer one decides; both are named."""
    story = Story(EXCLUSIVE, replace("t"), replace("*", client="d"), add("**"), created("t"))
    assert story.held("c") == ["t"]
    assert story.only_update.patterns == ("**", "t")
    assert story.then(drop("**")) == {evicted("t", "**", "t"), released("t", "*", client="d")}


@pytest.mark.rule("exclusive")
@pytest.mark.parametrize("clients", ["bcd", "dcb", "cdb"])
def test_the_order_of_requests_decides_not_that_of_names(clients: str) -> None:
    story = Story(EXCLUSIVE, *(replace("*", client=name) for name in clients), created("t"))
    assert story.held(clients[-1]) == ["t"]


def test_a_worker_that_begins_anew_goes_on_counting() -> None:
    """The next request is newer than all that are stored, everything included."""
    for former in (replace("t"), replace()):
        story = Story(EXCLUSIVE, replace("x", client="e"), replace("x", client="e"), former, created("t"))
        story.state = decode(encode(story.state))
        assert story.then(replace("t", client="d")) == {
            evicted("t", *former.entries), subscribed("t", "t", client="d"),
        }  # fmt: skip


# What makes a client the newest, and what does not.


@pytest.mark.rule("age-of-entries")
def test_a_resync_of_the_same_set_changes_nothing() -> None:
    """Whether it is one request's set, that of several, or everything."""
    story = Story(EXCLUSIVE, replace("*"), created("t"), replace("*", client="d"), add("a", client="d"))
    assert story.then(replace("*")) == set()
    assert story.then(replace("a", "*", client="d")) == set()
    assert story.held("d") == ["t"]
    story = Story(EXCLUSIVE, replace(), created("t"), replace("*", client="d"))
    assert story.then(replace()) == set()
    assert story.then(add()) == set()
    assert story.held("d") == ["t"]


@pytest.mark.rule("age-of-entries")
def test_what_stays_in_a_replaced_set_stays_as_old() -> None:
    story = Story(EXCLUSIVE, replace("t"), replace("t", client="d"), created("t"), created("u"))
    assert story.then(replace("t", "u")) == {subscribed("u", "u")}


@pytest.mark.rule("age-of-entries")
def test_a_partial_add_makes_its_entries_the_newest_again() -> None:
    story = Story(EXCLUSIVE, replace("a", "b"), replace("*", client="d"), created("a"), created("b"))
    assert story.then(add("b")) == {evicted("b", "*", client="d"), subscribed("b", "b")}
    assert (story.held("c"), story.held("d")) == (["b"], ["a"])


@pytest.mark.rule("age-of-everything")
def test_who_left_and_returns_is_new() -> None:
    story = Story(EXCLUSIVE, replace("t"), replace("t", client="d"), created("t"))
    story.then(leave())
    assert story.then(replace("t")) == {evicted("t", "t", client="d"), subscribed("t", "t")}


def test_who_left_and_returned_within_one_batch_is_new_as_well() -> None:
    for request in (replace("t"), replace()):
        story = Story(EXCLUSIVE, request, replace("t", client="d"), created("t"))
        assert story.then(leave(), request) == {evicted("t", "t", client="d"), subscribed("t", *request.entries)}


def test_a_refused_request_makes_nobody_newer() -> None:
    story = Story(EXCLUSIVE, replace("t", version=3), replace("t", client="d"), created("t"))
    assert story.then(add("t", "a*", version=2), add("a*")) == set()


# Who leaves gives the topic back to the next newest.


@pytest.mark.rule("eviction")
@pytest.mark.rule("causes-of-exclusivity")
@pytest.mark.parametrize("last", [leave(client="d"), drop("*", client="d"), replace("x", client="d")])
def test_a_topic_that_its_client_gives_up_is_released_to_the_next(last: object) -> None:
    story = Story(EXCLUSIVE, replace("t", client="b"), replace("**"), replace("*", client="d"), created("t"))
    assert story.then(last) == {  # type: ignore[arg-type]
        removed("t", "*", client="d", cause=Cause.UNSUBSCRIBED), released("t", "**"),
    }  # fmt: skip
    assert {update.source.offset for update in story.expansion.updates} == {6}


def test_the_source_is_the_request_that_gave_the_topic_up() -> None:
    """Or that took it: not any other of the group in the same batch."""
    story = Story(EXCLUSIVE, replace("*"), replace("*", client="d"), created("t"))
    story.then(replace("z", client="e"), leave(client="d"), replace("y", client="f"))
    assert {update.source.offset for update in story.expansion.updates} == {6}
    story.then(add("x", client="e"), replace("t", client="d"), replace("x", client="f"))
    assert {update.source.offset for update in story.expansion.updates} == {9}


def test_also_by_a_lease_that_ends() -> None:
    story = Story(EXCLUSIVE, replace("*"), replace("*", client="d"), created("t"))
    assert story.then(ended(3, client="d", expired=True)) == {
        removed("t", "*", client="d", cause=Cause.LEASE_EXPIRED), released("t", "*"),
    }  # fmt: skip


def test_what_a_narrower_set_no_longer_asks_for_is_released() -> None:
    story = Story(EXCLUSIVE, replace("*"), replace(client="d"), created("a"), created("b"))
    assert story.then(replace("b", client="d")) == {
        removed("a", client="d", cause=Cause.UNSUBSCRIBED), released("a", "*"),
    }  # fmt: skip


def test_who_leaves_without_holding_changes_nothing() -> None:
    story = Story(EXCLUSIVE, replace("*"), replace("*", client="d"), created("t"))
    assert story.then(leave()) == set()


def test_who_comes_while_the_newest_leaves_gets_the_topic_as_subscriber() -> None:
    story = Story(EXCLUSIVE, replace("*"), replace("*", client="d"), created("t"))
    assert story.then(leave(client="d"), replace("t", client="e")) == {
        removed("t", "*", client="d", cause=Cause.UNSUBSCRIBED), subscribed("t", "t", client="e"),
    }  # fmt: skip


def test_a_topic_that_is_deleted_while_its_client_leaves_is_released_to_nobody() -> None:
    story = Story(EXCLUSIVE, replace("*"), replace("*", client="d"), created("t"))
    assert story.then(leave(client="d"), deleted("t")) == {removed("t", "*", client="d")}


def test_a_topic_that_is_created_anew_while_a_newer_client_comes_changes_hands() -> None:
    """By the topic's own events: its deletion takes it from one client, its creation gives it to the other."""
    story = Story(EXCLUSIVE, replace("*"), created("t"))
    assert story.then(replace("*", client="d"), deleted("t"), created("t")) == {
        removed("t", "*", cause=Cause.TOPIC_DELETED), added("t", "*", client="d"),
    }  # fmt: skip


# Groups and their models.


def test_exclusive_is_a_matter_of_one_group() -> None:
    story = Story(EXCLUSIVE, bound("h", exclusive=True), bound("i"), created("t"))
    story.then(replace("*"), *(replace("*", client=name, group=group) for group in "ghi" for name in "de"))
    held = {(update.subscriber.group, update.subscriber.client_id) for update in story.expansion.updates}
    assert held == {("g", "e"), ("h", "e"), ("i", "d"), ("i", "e")}


def test_literal_groups_can_be_exclusive() -> None:
    story = Story(bound(wildcard=False, exclusive=True), replace("a", "b"), replace("b", "*", client="d"))
    assert story.then(created("a"), created("b")) == {added("a", "a"), added("b", "b", client="d")}
    assert story.then(leave(client="d")) == {
        removed("b", "b", client="d", cause=Cause.UNSUBSCRIBED), released("b", "b"),
    }  # fmt: skip


@pytest.mark.rule("current-attributes")
def test_a_group_that_becomes_exclusive_keeps_the_newest_client_of_each_topic() -> None:
    story = Story(WILD, replace("*"), replace("a", client="d"), created("a"), created("b"))
    assert story.then(EXCLUSIVE) == {evicted("a", "*")}
    assert story.only_update.source == Source("groups", 0, 6, 0, 1_006)
    assert story.then(WILD) == {added("a", "*", cause=Cause.GROUP_CHANGED)}
    assert story.then(EXCLUSIVE, WILD) == set()


def test_a_group_that_becomes_exclusive_while_a_client_comes() -> None:
    story = Story(WILD, replace("*"), created("t"))
    assert story.then(EXCLUSIVE, replace("t", client="d")) == {evicted("t", "*"), subscribed("t", "t", client="d")}


def test_a_group_that_becomes_exclusive_gives_new_topics_to_the_newest_client() -> None:
    story = Story(WILD, replace("*"), replace("*", client="d"))
    assert story.then(EXCLUSIVE, created("t")) == {added("t", "*", client="d")}
    assert story.then(WILD, deleted("t")) == {removed("t", "*", client="d")}


def test_a_group_that_is_forgotten_is_shared() -> None:
    story = Story(bound(wildcard=False, exclusive=True), replace("t"), replace("t", client="d"), created("t"))
    assert story.then(DELETED) == {added("t", "t", cause=Cause.GROUP_CHANGED)}


def test_another_reading_may_have_another_newest_client() -> None:
    """`a*` is no pattern, so as patterns the request of `d` was refused."""
    story = Story(EXCLUSIVE, replace("a*", "t"), created("a*"), created("t"), replace("a*", client="d"))
    assert story.held("c") == ["t"]
    assert story.then(bound(wildcard=False, exclusive=True)) == {
        added("a*", "a*", client="d", cause=Cause.GROUP_CHANGED)
    }


def test_a_group_bound_elsewhere_holds_nothing_and_remembers_the_order() -> None:
    story = Story(EXCLUSIVE, replace("*"), replace("*", client="d"), created("t"))
    assert story.then(GONE) == {removed("t", "*", client="d", cause=Cause.GROUP_CHANGED)}
    assert story.then(created("u"), replace("*", client="e")) == set()
    story.offset = 2_000
    assert story.then(EXCLUSIVE) == {
        added(topic, "*", client="e", cause=Cause.GROUP_CHANGED) for topic in ("t", "u")
    }  # fmt: skip


# Rows of their own, and offsets.


@pytest.mark.rule("rows-of-the-holder")
def test_all_rows_of_the_client_that_holds_a_topic_stand() -> None:
    """Its newest entry decides for all of them."""
    story = Story(EXCLUSIVE, replace("t", "$share/s/t", notation=MQTT), created("t"))
    assert len(story.rows) == 2
    assert story.then(replace("$share/s/+", notation=MQTT, client="d")) == {
        evicted("t", "t"),
        evicted("t", "t", part="share:s/t"),
        added("t", "+", part="share:s/+", client="d", cause=Cause.SUBSCRIBED),
    }
    assert story.then(add("t", notation=MQTT)) == {
        removed("t", "+", part="share:s/+", client="d", cause=Cause.EVICTED),
        subscribed("t", "t"),
        added("t", "t", part="share:s/t", cause=Cause.SUBSCRIBED),
    }


@pytest.mark.rule("resets")
@pytest.mark.parametrize(
    ("resets", "after_eviction", "after_leaving"),
    [("", False, False), ("exclusive", True, False), ("unsubscribe", False, True)],
)
def test_offsets_are_reset_as_the_group_says(resets: str, after_eviction: bool, after_leaving: bool) -> None:  # noqa: FBT001
    """On the REMOVE that it concerns, and on no ADD."""
    story = Story(bound(exclusive=True, resets=resets), replace("*"), created("t"))
    story.then(replace("*", client="d"))
    assert {update.op: update.reset for update in story.expansion.updates} == {Op.ADD: False, Op.REMOVE: after_eviction}
    story.then(leave(client="d"))
    assert {update.op: update.reset for update in story.expansion.updates} == {Op.ADD: False, Op.REMOVE: after_leaving}


@pytest.mark.rule("resets")
@pytest.mark.parametrize("resets", ["exclusive", "unsubscribe"])
def test_offsets_are_not_reset_by_what_happens_to_topics_and_groups(resets: str) -> None:
    group = bound(exclusive=True, resets=resets)
    story = Story(group, replace("*"), created("t"), created("u"))
    story.then(deleted("t"))
    assert not story.only_update.reset
    story.then(GONE)
    assert not story.only_update.reset


@pytest.mark.rule("resets")
def test_a_lease_that_ends_resets_like_leaving() -> None:
    story = Story(bound(resets="unsubscribe"), replace("*"), created("t"))
    story.then(ended(2, expired=True))
    assert story.only_update.reset


def test_the_attributes_after_the_batch_say_whether_offsets_are_reset() -> None:
    story = Story(WILD, replace("*"), created("t"))
    story.then(bound(resets="unsubscribe"), leave())
    assert story.only_update.reset


@pytest.mark.rule("offset-option")
def test_an_offset_option_goes_to_the_one_who_asked() -> None:
    """Not to whom a topic is released."""
    option = {"type": "TAIL_N", "value": 5}
    story = Story(EXCLUSIVE, replace("*"), created("t"))
    story.then(replace("*", client="d", option=option))
    assert {update.op: update.offset_option for update in story.expansion.updates} == {Op.ADD: option, Op.REMOVE: None}
    story.then(replace("x", client="d", option=option))
    assert {update.offset_option for update in story.expansion.updates} == {None}


def test_a_topic_is_released_to_who_asks_for_something_else_at_the_same_time() -> None:
    """The update names the request of who has left the topic."""
    option = {"type": "TAIL_N", "value": 5}
    story = Story(EXCLUSIVE, replace("*"), replace("t", client="d"), created("t"))
    story.then(replace("x", client="d"), add("y", option=option))
    gained = next(update for update in story.expansion.updates if update.op is Op.ADD)
    lost = next(update for update in story.expansion.updates if update.op is Op.REMOVE)
    assert (gained.cause, gained.subscriber.client_id, gained.offset_option) == (Cause.RELEASED, "c", None)
    assert gained.source == lost.source


@pytest.mark.rule("age-of-everything")
@pytest.mark.parametrize("entries", [("*",), ()])
def test_who_repeats_a_set_after_its_end_wins_it_back_when_the_end_arrives(entries: tuple[str, ...]) -> None:
    """Until then it is a mere re-sync, which takes nothing from who asked in between."""
    story = Story(EXCLUSIVE, replace(*entries), replace(*entries, client="d"), created("t"))
    assert story.held(client="d") == ["t"]
    story.offset = 10
    again = replace(*entries)
    assert story.then(again) == set()
    assert story.then(told(9, (11, again))) == {
        evicted("t", *entries, client="d"),
        added("t", *entries, cause=Cause.SUBSCRIBED),
    }
    assert story.ignored == {Ignored.ASKED_AGAIN: 1}


@pytest.mark.parametrize("entries", [("*",), ()])
def test_the_first_repetition_after_the_end_counts_not_the_last(entries: tuple[str, ...]) -> None:
    """Who asked between the two is newer."""
    story = Story(EXCLUSIVE, replace(*entries), created("t"))
    story.offset = 10
    again = replace(*entries)
    story.then(again, replace(*entries, client="d"), again)
    assert story.held(client="d") == ["t"]
    assert story.then(told(9, (11, again), (13, again))) == set()
    assert story.held(client="d") == ["t"]
