"""Exclusive groups: at most one client of the group holds a topic, the newest that asks for it."""

import pytest

from streaming.records.model import Source
from streaming.records.updates import Op
from streaming.state.client import Ignored
from tests.support.events import (
    EXCLUSIVE,
    WILD,
    Event,
    add,
    attributes,
    created,
    deleted,
    drop,
    ended,
    exclusive,
    leave,
    replace,
    superseded,
    told,
)
from tests.support.story import (
    Said,
    Story,
    added,
    degrouped,
    evicted,
    lapsed,
    regrouped,
    released,
    removed,
    subscribed,
    unsubscribed,
)

GONE = superseded(1_000, "q")
AB, T = [created("a"), created("b")], created("t")
TWO_CLIENTS: list[Event] = [EXCLUSIVE, replace("*"), replace("*", client="d")]
OPTION = {"type": "TAIL_N", "value": 5}


# The client that comes last takes the topic.


@pytest.mark.rule("eviction", "causes-of-exclusivity")
def test_a_newer_subscriber_evicts_the_former_one() -> None:
    """Of the topics that both ask for, and of no others; the source of both updates is the newer one's request."""
    story = Story(EXCLUSIVE, replace("a", "b"), *AB)
    assert story.then(replace("b", "c", client="d", offsetOption=OPTION)) == {
        evicted("b", "b"), subscribed("b", "b", client="d"),
    }  # fmt: skip
    assert {update.source.offset for update in story.expansion.updates} == {5}
    assert {update.op: update.offset_option for update in story.expansion.updates} == {Op.ADD: OPTION, Op.REMOVE: None}
    assert (story.held("c"), story.held("d")) == (["a"], ["b"])


@pytest.mark.rule("age-of-everything", "age-of-entries", "exclusive", "exclusive-new-topic")
@pytest.mark.parametrize(
    ("before", "events", "said"),
    [
        # The newer of two subscribers of one micro-batch, of whatever name.
        ([EXCLUSIVE, T], [replace("*", client="d"), replace("*")], {subscribed("t", "*")}),
        # A client that receives every topic evicts others, and is evicted like others.
        (
            [EXCLUSIVE, replace("a"), *AB],
            [replace(client="d")],
            {evicted("a", "a"), subscribed("a", client="d"), subscribed("b", client="d")},
        ),
        (
            [EXCLUSIVE, replace(client="d"), *AB],
            [replace("b", client="e")],
            {evicted("b", client="d"), subscribed("b", "b", client="e")},
        ),
        # New topics go to the newest client that asks for them, also if it comes or leaves at the same time.
        (
            [EXCLUSIVE, replace("*"), replace("a__*", client="d"), replace(client="b"), leave(client="b")],
            [created("a__y"), created("t")],
            {added("a__y", "a__*", client="d"), added("t", "*")},
        ),
        ([EXCLUSIVE, replace("*")], [replace("*", client="b"), T], {added("t", "*", client="b")}),
        (
            [*TWO_CLIENTS, T],
            [leave(client="d"), created("u")],
            {unsubscribed("t", "*", client="d"), released("t", "*"), added("u", "*")},
        ),
        # Each entry is as new as the request that brought it. Of two entries of one client the newer decides.
        (
            [EXCLUSIVE, replace("a"), replace("a", "b", client="d"), add("b")],
            AB,
            {added("a", "a", client="d"), added("b", "b")},
        ),
        (
            [EXCLUSIVE, replace("t"), replace("*", client="d"), add("**"), T],
            [drop("**")],
            {evicted("t", "**", "t"), released("t", "*", client="d")},
        ),
        # A repeated set keeps its age: of one request, of several requests, or of every topic.
        ([EXCLUSIVE, replace("*"), T, replace("*", client="d"), add("a", client="d")], [replace("*")], set()),
        ([*TWO_CLIENTS, add("a", client="d"), T], [replace("a", "*", client="d"), replace("*")], set()),
        ([EXCLUSIVE, replace(), T, replace("*", client="d")], [replace(), add()], set()),
        # So do entries that stay in a replaced set. A PARTIAL_ADD makes its entries the newest.
        ([EXCLUSIVE, replace("t"), replace("t", client="d"), T, created("u")], [replace("t", "u")],
         {subscribed("u", "u")}),
        ([EXCLUSIVE, replace("a", "b"), replace("*", client="d"), *AB], [add("b")],
         {evicted("b", "*", client="d"), subscribed("b", "b")}),
        # A client that left and returns is new, also within one micro-batch.
        ([EXCLUSIVE, replace("t"), replace("t", client="d"), T], [leave(), replace("t")],
         {evicted("t", "t", client="d"), subscribed("t", "t")}),
        ([EXCLUSIVE, replace(), replace("t", client="d"), T], [leave(), replace()],
         {evicted("t", "t", client="d"), subscribed("t")}),
        # A refused request does not make its client newer.
        ([EXCLUSIVE, replace("t", version=3), replace("t", client="d"), T], [add("t", "a*", version=2), add("a*")],
         set()),
    ],
)  # fmt: skip
def test_the_newest_entry_that_matches_holds_the_topic(
    before: list[Event], events: list[Event], said: set[Said]
) -> None:
    assert Story(*before).then(*events) == said


def test_a_part_that_comes_with_another_one_names_the_request_for_that() -> None:
    """The client asks once more for the topic by another entry, and takes it with all that it had asked for before."""
    story = Story(EXCLUSIVE, add("t", dialect="wamp"), replace("t", client="d"), T)
    assert len(story.then(add("*"), add("u", dialect="wamp"))) == 3
    assert {update.source.offset for update in story.expansion.updates} == {5}


# A client that leaves gives the topic back to the next newest.


@pytest.mark.rule("eviction", "causes-of-exclusivity")
@pytest.mark.parametrize(
    "last", [leave(client="d"), drop("*", client="d"), replace("x", client="d", offsetOption=OPTION)]
)
def test_a_topic_that_its_client_gives_up_is_released_to_the_next(last: Event) -> None:
    """The source of both updates is the request that gave it up, without its offset option."""
    story = Story(EXCLUSIVE, replace("t", client="b"), replace("**"), replace("*", client="d"), T)
    assert story.then(replace("z", client="e"), last, replace("y", client="f"), add("y", offsetOption=OPTION)) == {
        unsubscribed("t", "*", client="d"), released("t", "**"),
    }  # fmt: skip
    assert {(update.source.offset, update.offset_option) for update in story.expansion.updates} == {(7, None)}


@pytest.mark.parametrize(
    ("before", "events", "said"),
    [
        ([*TWO_CLIENTS, T], [ended(3, client="d", expired=True)], {lapsed("t", "*", client="d"), released("t", "*")}),
        (
            [EXCLUSIVE, replace("*"), replace(client="d"), *AB],
            [replace("b", client="d")],
            {unsubscribed("a", client="d"), released("a", "*")},
        ),
        ([*TWO_CLIENTS, T], [leave()], set()),
        (
            [*TWO_CLIENTS, T],
            [leave(client="d"), replace("t", client="e")],
            {unsubscribed("t", "*", client="d"), subscribed("t", "t", client="e")},
        ),
        ([*TWO_CLIENTS, T], [leave(client="d"), deleted("t")], {removed("t", "*", client="d")}),
        (
            [EXCLUSIVE, replace("*"), T],
            [replace("*", client="d"), deleted("t"), T],
            {removed("t", "*"), added("t", "*", client="d")},
        ),
        (
            [EXCLUSIVE, replace("*"), T],
            [replace("t", client="d"), replace("x"), leave(client="d")],
            {evicted("t", "*")},
        ),
        ([EXCLUSIVE, T], [add("t"), replace("t", client="d"), leave(client="d")], {released("t", "t")}),
    ],
    ids=[
        *("lease", "narrower set", "not the holder", "new subscriber", "deleted topic", "recreated topic"),
        *("eviction by a client that leaves", "release by a client that leaves"),
    ],
)
def test_the_cause_is_the_event_of_the_holder(before: list[Event], events: list[Event], said: set[Said]) -> None:
    assert Story(*before).then(*events) == said


# Groups and their models.


@pytest.mark.rule("current-attributes")
def test_a_group_that_becomes_exclusive_keeps_the_newest_client_of_each_topic() -> None:
    story = Story(WILD, replace("*"), replace("a", client="d"), *AB)
    assert story.then(EXCLUSIVE) == {evicted("a", "*")}
    assert story.only_update.source == Source("groups", 0, 6, 0, 1_006)
    assert story.then(WILD) == {regrouped("a", "*")}
    assert story.then(EXCLUSIVE, WILD) == set()
    assert story.then(EXCLUSIVE, replace("b", client="e"), created("c")) == {
        evicted("a", "*"), evicted("b", "*"), subscribed("b", "b", client="e"), added("c", "*"),
    }  # fmt: skip


def test_another_mode_may_have_another_newest_client() -> None:
    """`a*` is no pattern, so as patterns the request of `d` was refused."""
    story = Story(EXCLUSIVE, replace("a*", "t"), created("a*"), T, replace("a*", client="d"))
    assert story.held("c") == ["t"]
    assert story.then(attributes(model="Exclusive")) == {regrouped("a*", "a*", client="d")}


def test_a_group_bound_elsewhere_holds_nothing_and_remembers_the_order() -> None:
    story = Story(*TWO_CLIENTS, T)
    assert story.then(GONE) == {degrouped("t", "*", client="d")}
    assert story.then(created("u"), replace("*", client="e")) == set()
    story.offset = 2_000
    assert story.then(EXCLUSIVE) == {regrouped(topic, "*", client="e") for topic in ("t", "u")}


# Rows of their own, and offsets.


@pytest.mark.rule("resets")
@pytest.mark.parametrize("resets", ["", "reset", "reset_unsubscribed"])
def test_offsets_are_reset_as_the_attributes_after_the_batch_require(resets: str) -> None:
    """On the REMOVE of an eviction, or of a client that leaves or ends, and on no other update."""
    attributes = exclusive(**dict.fromkeys([resets] if resets else [], "true"))
    story = Story(EXCLUSIVE, replace("*"), replace("*", client="b"), T)
    steps: list[tuple[list[Event], str]] = [
        ([attributes, replace("*", client="d")], "reset"),
        ([leave(client="d")], "reset_unsubscribed"),
        ([ended(3, client="b", expired=True)], "reset_unsubscribed"),
        ([created("u"), deleted("t")], "never"),
        ([GONE], "never"),
    ]
    for events, reset_by in steps:
        story.then(*events)
        resetting = {update.op: update.reset for update in story.expansion.updates}
        assert resetting[Op.REMOVE] is (resets == reset_by), events
        assert not resetting.get(Op.ADD)


# A client that ends everywhere and asks again.


@pytest.mark.rule("age-of-everything")
@pytest.mark.parametrize("entries", [("*",), ()])
def test_a_client_that_repeats_a_set_after_its_end_wins_it_back_when_the_end_arrives(entries: tuple[str, ...]) -> None:
    """Until then it is a mere re-sync, which takes nothing from a client that asked in between."""
    story = Story(EXCLUSIVE, replace(*entries), replace(*entries, client="d"), T)
    assert story.held(client="d") == ["t"]
    story.offset = 10
    again = replace(*entries)
    assert story.then(again) == set()
    assert story.then(told(9, (11, again))) == {evicted("t", *entries, client="d"), subscribed("t", *entries)}
    assert story.ignored == {Ignored.ASKED_AGAIN: 1}


@pytest.mark.parametrize("entries", [("*",), ()])
def test_the_first_repetition_after_the_end_counts_not_the_last(entries: tuple[str, ...]) -> None:
    """A client that asked between the two is newer."""
    story = Story(EXCLUSIVE, replace(*entries), T)
    story.offset = 10
    again = replace(*entries)
    story.then(again, replace(*entries, client="d"), again)
    assert story.held(client="d") == ["t"]
    assert story.then(told(9, (11, again), (13, again))) == set()
    assert story.held(client="d") == ["t"]
