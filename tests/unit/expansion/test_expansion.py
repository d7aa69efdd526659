"""Updates of micro-batches: one per row, with patterns, cause and source, and what is left out or ignored."""

import pytest

from streaming.records.model import LITE, Place, Reason, Source
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Op
from streaming.state import Shard, ShardDelta, ShardState
from streaming.state.client import Ignored, LastRequest
from tests.support.events import (
    DELETED,
    LITERAL,
    WILD,
    Event,
    add,
    attributes,
    created,
    deleted,
    drop,
    leave,
    replace,
    superseded,
    wildcard,
)
from tests.support.story import (
    Said,
    Story,
    added,
    degrouped,
    expanded,
    regrouped,
    removed,
    subscribed,
    unsubscribed,
)

KEY = ClientKey("g", "c")
ECHO_OF_4 = superseded(4)


@pytest.mark.rule("one-update-per-row", "matching-entries", "causes-of-removes")
def test_several_matching_entries_give_one_update() -> None:
    """An ADD names the entries that match afterwards, a REMOVE the entries that matched before, sorted."""
    story = Story(WILD, replace("b__*", "*__x", "a"), created("a__x"))
    assert story.then(created("b__x")) == {added("b__x", "*__x", "b__*")}
    assert story.then(drop("b__*")) == set()
    assert story.then(drop("*__x")) == {unsubscribed("a__x", "*__x"), unsubscribed("b__x", "*__x")}
    assert story.then(add("b__*", "*__x")) == {subscribed("a__x", "*__x"), subscribed("b__x", "*__x", "b__*")}
    assert story.then(drop("*__x")) == {unsubscribed("a__x", "*__x")}
    assert story.then(add("*__x")) == {subscribed("a__x", "*__x")}
    assert story.then(drop("b__*", "*__x")) == {unsubscribed("a__x", "*__x"), unsubscribed("b__x", "*__x", "b__*")}


# Topics: the lazy path.


@pytest.mark.rule("life-of-a-topic", "recreated-topic", "repeated-topic-events")
def test_a_topic_exists_from_its_creation_to_its_deletion() -> None:
    """Repeated events are counted. The last event of a micro-batch decides, and is the source."""
    story = Story(WILD, replace("a__*", "*"), replace("b", client="d"), created("t"), created("u"))
    assert story.then(created("t"), created("t"), deleted("v")) == set()
    assert story.ignored == {Ignored.TOPIC_EXISTS: 2, Ignored.TOPIC_UNKNOWN: 1}
    assert not story.expansion.delta
    assert story.then(deleted("t"), created("t")) == set()
    assert list(story.state.topics) == ["u", "t"], "a recreated topic is the newest"
    assert story.then(deleted("t")) == {removed("t", "*")}
    assert story.then(created("t"), deleted("t")) == set()
    assert not story.expansion.delta
    assert story.then(created("t"), deleted("t"), created("t")) == {added("t", "*")}
    assert story.only_update.source.offset == story.offset


# Subscriptions: the eager path.


@pytest.mark.rule("eager", "matching-entries", "narrowing", "complete-add")
def test_a_changed_set_is_expanded_over_the_existing_topics() -> None:
    """A subscription to every topic names no entries."""
    story = Story(WILD, *map(created, ["a__x", "a__y", "b__x"]))
    assert story.then(replace("a__*")) == {subscribed("a__x", "a__*"), subscribed("a__y", "a__*")}
    assert story.then(replace("*__x")) == {unsubscribed("a__y", "a__*"), subscribed("b__x", "*__x")}
    assert story.then(replace()) == {subscribed("a__y")}
    assert story.then(created("b__c")) == {added("b__c")}
    assert story.then(add("a__*")) == {unsubscribed("b__x"), unsubscribed("b__c")}
    assert story.then(drop("a__*")) == {unsubscribed("a__x", "a__*"), unsubscribed("a__y", "a__*")}
    assert story.then(created("a__z")) == set()


@pytest.mark.rule("complete-remove")
def test_the_end_of_a_session_removes_all() -> None:
    story = Story(WILD, replace("*", "a__*", version=3), created("t"), created("a__b"))
    assert story.then(leave(version=4)) == {unsubscribed("t", "*"), unsubscribed("a__b", "a__*")}
    assert {update.version for update in story.expansion.updates} == {4}
    assert story.then(created("u")) == set()


@pytest.mark.rule("versions")
def test_a_client_that_leaves_without_a_version_is_forgotten() -> None:
    """One with a version is kept, so that older requests stay stale."""
    story = Story(WILD, replace("*"), replace("*", client="d", version=1))
    story.then(leave(), leave(client="d"))
    assert set(story.state.clients) == {ClientKey("g", "d")}
    assert story.then(replace("*", client="d", version=0)) == set()
    assert story.ignored == {Ignored.STALE_VERSION: 1}


@pytest.mark.rule("resync")
def test_a_resync_of_the_same_set_emits_nothing_and_is_counted() -> None:
    """Only its place is stored, since a removal on all parents may still be on its way."""
    story = Story(WILD, replace("a", "*"), created("t"))
    assert story.then(replace("*", "a")) == set()
    assert story.ignored == {Ignored.UNCHANGED: 1}
    at = Place(0, 4, 0).position
    assert story.expansion.delta == ShardDelta(last_requests={KEY: LastRequest(0, at, at, at, 2, 2)}, latest_order=2)


@pytest.mark.parametrize("group", [LITERAL, WILD])
def test_entries_that_are_gone_are_gone_from_the_index(group: Event) -> None:
    """Each of them, and of this client only; names and patterns alike."""
    story = Story(group, replace("a", "b", "c"), replace("a", "b", client="d"), created("x"))
    story.then(drop("a", "b"))
    assert story.then(*map(created, "abc")) == {
        added("a", "a", client="d"),
        added("b", "b", client="d"),
        added("c", "c"),
    }


# Events that meet in one micro-batch.


@pytest.mark.rule("once-per-micro-batch")
@pytest.mark.parametrize(
    ("before", "events", "said"),
    [
        ([], [WILD, replace("*"), created("t")], {added("t", "*")}),
        ([WILD, created("t")], [replace("*"), deleted("t")], set()),
        ([WILD, replace("*")], [leave(), created("t")], set()),
        ([WILD, replace("*"), created("t")], [leave(), deleted("t")], {removed("t", "*")}),
        ([WILD, replace("*"), created("t")], [leave(), replace("*")], set()),
        ([WILD, replace("*"), created("t")], [LITERAL, WILD], set()),
        ([created("a"), created("b")], [replace("a"), replace("b")], {subscribed("b", "b")}),
        (
            [WILD, replace("a__*"), created("a__x")],
            [replace("*__*"), created("b__x"), deleted("a__x")],
            {added("b__x", "*__*"), removed("a__x", "a__*")},
        ),
        (
            [WILD, replace("*", client="d"), created("t")],
            [replace("*"), created("u")],
            {subscribed("t", "*"), added("u", "*"), added("u", "*", client="d")},
        ),
    ],
)
def test_a_pair_is_compared_before_and_after_all_events(
    before: list[Event], events: list[Event], said: set[Said]
) -> None:
    """New topics meet the new entries, deleted topics the former ones."""
    assert Story(*before).then(*events) == said


# Groups: the attributes in force decide, whenever they come.


@pytest.mark.rule("current-attributes", "empty-complete-add")
def test_from_wildcard_to_literal_and_back() -> None:
    """A name stays with its client in both modes. `*` is a pattern in one and a name in the other.

    An empty set is everything in a wildcard group, and nothing in a literal group.
    """
    others = [replace(client="e"), replace("t", group="h")]
    story = Story(WILD, replace("*", "t"), *others, created("t"), created("u"), created("*"))
    everything = {degrouped(topic, client="e") for topic in "tu*"}
    to_literal = {degrouped("u", "*"), *everything}
    to_wildcard = {regrouped("u", "*"), *(regrouped(topic, client="e") for topic in "tu*")}
    assert story.then(LITERAL) == to_literal
    assert story.then(WILD) == to_wildcard
    assert story.then(DELETED) == to_literal
    assert story.then(WILD) == to_wildcard


@pytest.mark.rule("both-modes")
def test_a_request_is_kept_for_both_modes() -> None:
    """What is invalid as a pattern is a name as soon as the group is literal. Equal sets are stored once."""
    story = Story(WILD, replace("a*", "*"), created("a*"))
    assert story.then(LITERAL) == set()
    client = story.state.clients[KEY]
    assert [block.entries for subscription in client for block in subscription.blocks] == [("a*", "*"), ("*",)]
    client = Story(replace("a", "*")).state.clients[KEY]
    assert client.literal is client.wildcard


@pytest.mark.rule("cause")
def test_a_request_in_the_batch_of_a_group_event_causes_what_it_changes_itself() -> None:
    """The group event is read first: `*` matches `t` from then on, and nothing matches `u__v` yet."""
    story = Story(replace("*"), created("t"), created("u__v"))
    option = {"type": "TAIL_N", "value": 3}
    assert story.then(WILD, replace("**", offsetOption=option)) == {regrouped("t", "**"), subscribed("u__v", "**")}
    options = {update.lite_topic: (update.offset_option, update.source.topic) for update in story.expansion.updates}
    assert options == {"t": (None, "groups"), "u__v": (option, "subscriptions")}


@pytest.mark.rule("cause")
def test_what_a_group_event_takes_is_not_unsubscribed_by_an_unrelated_request() -> None:
    story = Story(wildcard(reset_unsubscribed="true"), replace("*"), created("t"), created("u"))
    literal = attributes(reset_unsubscribed="true")
    assert story.then(literal, add("u")) == {degrouped("t", "*")}
    assert (story.only_update.source.topic, story.only_update.reset) == ("groups", False)
    assert story.then(drop("u")) == {unsubscribed("u", "u")}
    assert story.only_update.reset


@pytest.mark.rule("deleted-attributes")
@pytest.mark.parametrize(("event", "reason"), [(DELETED, Ignored.GROUP_UNKNOWN), (ECHO_OF_4, Ignored.GROUP_SUPERSEDED)])
def test_the_deletion_of_an_unknown_group_is_counted(event: Event, reason: Ignored) -> None:
    story = Story()
    assert story.then(event) == set()
    assert story.ignored == {reason: 1}
    assert not story.expansion.delta


@pytest.mark.rule("late-move")
def test_the_echo_of_a_move_ends_what_was_set_before_it() -> None:
    """Its source is the event that moved the group, not the echo. Offsets of two partitions cannot be compared."""
    story = Story(WILD, replace("*"), created("t"))
    assert story.then(ECHO_OF_4) == {degrouped("t", "*")}
    assert story.only_update.source == Source("groups", 0, 4, 0, 999)
    assert story.state.groups == {}
    story = Story(*map(created, "abcd"), WILD)
    story.then(superseded(4, partition=1))
    assert story.state.groups == {}


@pytest.mark.parametrize("former", [(), (WILD,)], ids=["new", "equal attributes before"])
def test_the_echo_of_a_move_does_not_touch_what_was_set_after_it(former: tuple[Event, ...]) -> None:
    """The group came back before the echo did, at offset 5; equal attributes count from there as well."""
    story = Story(*former)
    story.then(*map(created, "abcd"[len(former) :]))
    story.then(WILD)
    assert story.offset == 5
    story.then(replace("*"))
    assert story.then(ECHO_OF_4) == set()
    assert story.ignored == {Ignored.GROUP_SUPERSEDED: 1}
    assert not story.expansion.delta


# What updates carry: source, version and offset option.


@pytest.mark.rule("lazy", "causes-of-adds", "causes-of-policies", "offset-option")
@pytest.mark.parametrize("last", ["topics", "subscriptions", "groups"])
def test_an_add_comes_from_the_event_that_completes_it(last: str) -> None:
    """It has the version of the request, and its offset option if the request is that event."""
    option = {"type": "TAIL_N", "value": 5}
    events: dict[str, Event] = {
        "topics": created("t"),
        "subscriptions": replace("*", version=7, offsetOption=option),
        "groups": WILD,
    }
    story = Story(*(event for stream, event in events.items() if stream != last))
    story.then(events[last])
    update = story.only_update
    assert (update.source, update.version) == (Source(last, 0, 3, 0, 1_003), 7)
    assert update.offset_option == (option if last == "subscriptions" else None)
    story.then(replace("x", offsetOption=option))
    assert (story.only_update.op, story.only_update.offset_option) == (Op.REMOVE, None)


def test_the_last_request_that_makes_a_difference_to_a_topic_is_the_source() -> None:
    """Each ADD has the offset option of that request, whatever others follow."""
    options = [{"type": "TAIL_N", "value": number} for number in range(4)]
    story = Story(WILD, created("t"), created("u"))
    story.then(
        add("t", version=1, offsetOption=options[0]),
        add("u", "t", version=2, offsetOption=options[1]),
        drop("v", version=2, offsetOption=options[2]),
        add("x", version=3),
    )
    found = {update.lite_topic: (update.source.offset, update.offset_option) for update in story.expansion.updates}
    assert found == {"t": (4, options[0]), "u": (5, options[1])}
    assert {update.version for update in story.expansion.updates} == {3}


@pytest.mark.rule("versions")
def test_the_version_is_that_of_the_client_and_the_mode_in_force() -> None:
    """A request that was refused under one mode has not moved the version there."""
    story = Story(WILD, replace("*", version=1), replace("a*", version=2), replace("*", client="d", version=3))
    story.then(created("t"), created("a*"))
    assert {(update.subscriber.client_id, update.version) for update in story.expansion.updates} == {("c", 1), ("d", 3)}
    story.then(LITERAL)
    versions = {(update.subscriber.client_id, update.lite_topic): update.version for update in story.expansion.updates}
    assert versions == {("c", "t"): 2, ("d", "t"): 3, ("d", "a*"): 3}


# What is refused, left out or ignored is said once.


@pytest.mark.rule("some-valid-entries")
def test_invalid_patterns_are_left_out_and_reported() -> None:
    story = Story()
    story.then(WILD, replace("a*", "b", "**__c"))
    (problem,) = story.expansion.problems
    assert (problem.reason, problem.source.offset) == (Reason.INVALID_PATTERN, 2)
    assert problem.message.startswith("left out: invalid pattern 'a*'")
    assert "'**__c'" in problem.message
    assert "'**' is not the last segment" in problem.message
    story.then(replace("t", *(f"{number}*" for number in range(12))))
    (problem,) = story.expansion.problems
    assert problem.message.endswith("; and 7 more")
    assert problem.message.count("invalid pattern") == 5


@pytest.mark.rule("no-valid-entry")
def test_a_set_without_a_valid_entry_is_refused() -> None:
    """It never widens to everything, and the former set stands."""
    story = Story(WILD, replace("t", version=1), created("t"), created("u"))
    assert story.then(replace("a*", "", version=2)) == set()
    (problem,) = story.expansion.problems
    assert problem.message.startswith("the request is refused, since no entry is valid: ")
    assert story.interest().entries == {(LITE, "t")}
    assert story.ignored == {}


@pytest.mark.parametrize("number", range(3))
def test_the_first_shard_of_a_parent_reports(number: int) -> None:
    """All of them see requests and group events; topics are seen by one, which counts them itself."""
    story = Story(WILD, replace("t", "a*", version=2), shard=Shard("p", number, Routing({"p": 3})))
    assert len(story.expansion.problems) == (1 if number == 0 else 0)
    story.then(DELETED, DELETED, replace("t", version=1), leave(client="d"), created("x"), created("x"))
    counted = {Ignored.GROUP_UNKNOWN: 1, Ignored.STALE_VERSION: 1, Ignored.NO_SUBSCRIPTION: 1}
    assert story.ignored == {Ignored.TOPIC_EXISTS: 1, **(counted if number == 0 else {})}


@pytest.mark.rule("shards")
def test_a_shard_keeps_only_what_can_touch_it() -> None:
    """Versions and sessions are kept by all; each entry without a wildcard in front by one."""
    kept: list[str] = []
    for number in range(4):
        shard = Shard("p", number, Routing({"p": 4}))
        subscription = Story(WILD, replace("*__x", *"abcdef", version=3), shard=shard).state.clients[KEY].wildcard
        entries = [entry for block in subscription.blocks for entry in block.entries]
        assert (subscription.live, subscription.version, "*__x" in entries) == (True, 3, True)
        kept += entries
    assert sorted(kept) == sorted(["*__x"] * 4 + [*"abcdef"])


def test_an_empty_batch_changes_nothing() -> None:
    expansion = expanded(ShardState(), [], Shard("p"))
    assert not expansion.delta
    assert (expansion.updates, expansion.problems, dict(expansion.ignored)) == ([], [], {})
