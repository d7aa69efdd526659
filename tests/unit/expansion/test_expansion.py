"""The rules of the relation, each as a short story of micro-batches."""

import pytest

from streaming.records.columns import Event
from streaming.records.model import LITE, GroupEvent, Place, Reason, Source
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey, SubscriberKey
from streaming.records.updates import Cause, Op
from streaming.state import Shard, ShardDelta, ShardState
from streaming.state.client import Ignored, LastRequest
from tests.support.builders import DELETED, LITERAL, WILD, add, bound, created, deleted, drop, leave, replace
from tests.support.states import decode, encode
from tests.support.story import Story, added, expanded, removed

CLIENT = SubscriberKey("g", "c")
KEY = ClientKey("g", "c")
ECHO_OF_4 = GroupEvent("g", {}, "p", Place(0, 4, 999))


# One update for each client and topic, however many patterns say so.


@pytest.mark.rule("one-update-per-row")
def test_two_patterns_that_match_one_topic_give_one_add() -> None:
    """The update names both, sorted."""
    story = Story(WILD, replace("b__*", "*__x", "a"))
    assert story.then(created("b__x")) == {added("b__x", "*__x", "b__*")}


@pytest.mark.rule("one-update-per-row")
def test_dropping_one_of_two_patterns_emits_nothing() -> None:
    story = Story(WILD, replace("b__*", "*__x"), created("b__x"))
    assert story.then(drop("b__*")) == set()


@pytest.mark.rule("one-update-per-row")
@pytest.mark.rule("matching-entries")
@pytest.mark.rule("causes-of-removes")
def test_dropping_both_emits_one_remove() -> None:
    """The update names those that matched before."""
    story = Story(WILD, replace("b__*", "*__x"), created("b__x"))
    both = removed("b__x", "*__x", "b__*", cause=Cause.UNSUBSCRIBED)
    assert story.then(drop("b__*", "*__x")) == {both}


def test_dropping_both_one_after_the_other_emits_one_remove() -> None:
    story = Story(WILD, replace("b__*", "*__x"), created("b__x"))
    assert story.then(drop("b__*")) == set()
    assert story.then(drop("*__x")) == {removed("b__x", "*__x", cause=Cause.UNSUBSCRIBED)}


def test_a_second_pattern_that_matches_emits_nothing() -> None:
    story = Story(WILD, replace("b__*"), created("b__x"), created("a__x"))
    assert story.then(add("*__x")) == {added("a__x", "*__x", cause=Cause.SUBSCRIBED)}


@pytest.mark.rule("matching-entries")
def test_an_eager_add_names_all_patterns_that_match() -> None:
    story = Story(WILD, created("b__x"))
    assert story.then(add("b__*", "*__x")) == {added("b__x", "*__x", "b__*", cause=Cause.SUBSCRIBED)}


@pytest.mark.rule("complete-add")
def test_replacing_a_pattern_by_an_overlapping_one_emits_the_difference() -> None:
    story = Story(WILD, replace("a__*"), created("a__x"), created("a__y"), created("b__x"))
    assert story.then(replace("*__x")) == {
        removed("a__y", "a__*", cause=Cause.UNSUBSCRIBED),
        added("b__x", "*__x", cause=Cause.SUBSCRIBED),
    }


def test_each_client_gets_its_own() -> None:
    """Clients of one name in two groups are two clients."""
    story = Story(WILD, replace("*"), replace("*", client="d"), replace("t", group="h"))
    story.then(created("t"))
    subscribers = {update.subscriber for update in story.expansion.updates}
    assert subscribers == {CLIENT, SubscriberKey("g", "d"), SubscriberKey("h", "c")}


# Topics: the lazy path.


@pytest.mark.rule("life-of-a-topic")
@pytest.mark.rule("causes-of-removes")
def test_deletion_removes_it_from_all_who_had_it() -> None:
    story = Story(WILD, replace("a__*", "*"), replace("b", client="d"), created("t"))
    assert story.then(deleted("t")) == {removed("t", "*")}


def test_a_topic_created_and_deleted_in_one_batch_never_was() -> None:
    story = Story(WILD, replace("*"))
    assert story.then(created("t"), deleted("t")) == set()
    assert not story.expansion.delta


@pytest.mark.rule("recreated-topic")
def test_a_topic_deleted_and_created_in_one_batch_emits_nothing_and_comes_last() -> None:
    """It is another topic of that name: in order of creation it stands behind the others."""
    story = Story(WILD, replace("*"), created("t"), created("u"))
    assert story.then(deleted("t"), created("t")) == set()
    assert list(story.state.topics) == ["u", "t"]


def test_the_last_event_of_a_batch_decides_and_is_the_source() -> None:
    story = Story(WILD, replace("*"))
    story.then(created("t"), deleted("t"), created("t"))
    assert story.only_update.source.offset == story.offset


@pytest.mark.rule("repeated-topic-events")
def test_creation_of_what_exists_and_deletion_of_what_does_not_are_counted() -> None:
    story = Story(WILD, replace("*"), created("t"))
    assert story.then(created("t"), created("t"), deleted("u")) == set()
    assert story.ignored == {Ignored.TOPIC_EXISTS: 2, Ignored.TOPIC_UNKNOWN: 1}
    assert not story.expansion.delta


@pytest.mark.rule("unchecked-names")
def test_topics_may_have_empty_segments() -> None:
    story = Story(WILD, replace("pay__*"))
    assert story.then(created("pay__")) == {added("pay__", "pay__*")}


# Subscriptions: the eager path.


@pytest.mark.rule("eager")
def test_a_pattern_is_expanded_over_the_topics_that_exist() -> None:
    story = Story(WILD, created("a__x"), created("a__y"), created("b"))
    assert story.then(replace("a__*")) == {
        added("a__x", "a__*", cause=Cause.SUBSCRIBED),
        added("a__y", "a__*", cause=Cause.SUBSCRIBED),
    }


@pytest.mark.rule("matching-entries")
def test_an_empty_set_is_everything_and_names_no_pattern() -> None:
    story = Story(WILD, created("a"))
    assert story.then(replace()) == {added("a", cause=Cause.SUBSCRIBED)}
    assert story.then(created("b__c")) == {added("b__c")}


@pytest.mark.rule("narrowing")
def test_everything_narrowed_by_partial_add_loses_what_it_does_not_name() -> None:
    story = Story(WILD, replace(), created("a"), created("b"))
    assert story.then(add("a")) == {removed("b", cause=Cause.UNSUBSCRIBED)}


def test_widening_to_everything_adds_what_was_missing() -> None:
    story = Story(WILD, replace("a"), created("a"), created("b"))
    assert story.then(replace()) == {added("b", cause=Cause.SUBSCRIBED)}


def test_the_last_pattern_dropped_leaves_nothing() -> None:
    story = Story(WILD, replace("*"), created("a"))
    assert story.then(drop("*")) == {removed("a", "*", cause=Cause.UNSUBSCRIBED)}
    assert story.then(created("b")) == set()


@pytest.mark.rule("complete-remove")
def test_the_end_of_a_session_removes_all() -> None:
    story = Story(WILD, replace("*", "a__*", version=3), created("t"), created("a__b"))
    assert story.then(leave(version=4)) == {
        removed("t", "*", cause=Cause.UNSUBSCRIBED),
        removed("a__b", "a__*", cause=Cause.UNSUBSCRIBED),
    }
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
    """Only where it stands is stored, since a removal on all parents may still be on its way."""
    story = Story(WILD, replace("a", "*"), created("t"))
    assert story.then(replace("*", "a")) == set()
    assert story.ignored == {Ignored.UNCHANGED: 1}
    at = Place(0, 4, 0).position
    assert story.expansion.delta == ShardDelta(last_requests={KEY: LastRequest(0, at, at, at, 2, 2)}, latest_order=2)


@pytest.mark.rule("once-per-micro-batch")
def test_there_and_back_in_one_batch_emits_nothing() -> None:
    story = Story(WILD, replace("*"), created("t"))
    assert story.then(leave(), replace("*")) == set()


def test_several_requests_of_a_batch_are_applied_in_order() -> None:
    story = Story(created("a"), created("b"))
    assert story.then(replace("a"), replace("b")) == {added("b", "b", cause=Cause.SUBSCRIBED)}


@pytest.mark.rule("mode")
def test_literal_names_are_no_patterns() -> None:
    """In a group without the wildcard attribute `*` is a name like others."""
    story = Story(LITERAL, replace("*", "a"), created("a"), created("b"))
    assert story.then(created("*")) == {added("*", "*")}


@pytest.mark.parametrize("group", [LITERAL, WILD])
def test_entries_that_are_gone_are_gone_from_the_index(group: GroupEvent) -> None:
    """Each of them, and of this client only; names and patterns alike."""
    story = Story(group, replace("a", "b", "c"), replace("a", "b", client="d"), created("x"))
    story.then(drop("a", "b"))
    assert story.then(*map(created, "abc")) == {
        added("a", "a", client="d"),
        added("b", "b", client="d"),
        added("c", "c"),
    }


@pytest.mark.rule("unknown-group")
def test_a_group_of_which_nothing_is_known_is_literal() -> None:
    story = Story(replace("*"))
    assert story.then(created("t")) == set()


def test_both_readings_share_what_is_equal_in_them() -> None:
    """So that a client costs one set, not two."""
    client = Story(replace("a", "*")).state.clients[KEY]
    assert client.literal is client.wildcard


# Subscriptions and topics that meet in one micro-batch.


@pytest.mark.rule("once-per-micro-batch")
def test_a_new_topic_and_a_new_subscription_give_one_add() -> None:
    assert Story().then(WILD, replace("*"), created("t")) == {added("t", "*")}


def test_a_topic_deleted_while_its_client_leaves_gives_one_remove() -> None:
    story = Story(WILD, replace("*"), created("t"))
    assert story.then(leave(), deleted("t")) == {removed("t", "*")}


def test_a_client_that_comes_while_the_topic_goes_gets_nothing() -> None:
    story = Story(WILD, created("t"))
    assert story.then(replace("*"), deleted("t")) == set()


def test_a_client_that_leaves_while_the_topic_comes_gets_nothing() -> None:
    story = Story(WILD, replace("*"))
    assert story.then(leave(), created("t")) == set()


def test_new_patterns_are_used_for_new_topics_and_old_ones_for_deleted() -> None:
    story = Story(WILD, replace("a__*"), created("a__x"))
    said = story.then(replace("*__*"), created("b__x"), deleted("a__x"))
    assert said == {added("b__x", "*__*"), removed("a__x", "a__*")}


def test_other_clients_keep_theirs() -> None:
    story = Story(WILD, replace("*", client="d"), created("t"))
    said = story.then(replace("*"), created("u"))
    assert said == {added("t", "*", cause=Cause.SUBSCRIBED), added("u", "*"), added("u", "*", client="d")}


# Groups: the attributes in force decide, whenever they come.


@pytest.mark.rule("order-of-inputs")
@pytest.mark.parametrize(
    "batches",
    [
        [[WILD], [replace("*")], [created("t")]],
        [[replace("*")], [WILD], [created("t")]],
        [[replace("*")], [created("t")], [WILD]],
        [[created("t")], [replace("*")], [WILD]],
        [[created("t")], [WILD], [replace("*")]],
        [[WILD, replace("*"), created("t")]],
        [[created("t")], [WILD, replace("*")]],
    ],
)
def test_the_order_of_the_streams_does_not_matter(batches: list[list[Event]]) -> None:
    story = Story()
    updates = [said for batch in batches for said in story.then(*batch)]
    assert [(said.op, said.topic, said.patterns) for said in updates] == [(Op.ADD, "t", ("*",))]


@pytest.mark.rule("current-attributes")
def test_from_wildcard_to_literal_and_back() -> None:
    """A name stays with its client in both readings; `*` is a pattern in one and a name in the other."""
    story = Story(WILD, replace("*", "t"), created("t"), created("u"), created("*"))
    to_literal = {removed("u", "*", cause=Cause.GROUP_CHANGED)}
    to_wildcard = {added("u", "*", cause=Cause.GROUP_CHANGED)}
    assert story.then(LITERAL) == to_literal
    assert story.then(WILD) == to_wildcard
    assert story.then(DELETED) == to_literal
    assert story.then(WILD) == to_wildcard


def test_to_literal_and_back_in_one_batch_emits_nothing() -> None:
    story = Story(WILD, replace("*"), created("t"))
    assert story.then(LITERAL, WILD) == set()


@pytest.mark.rule("empty-complete-add")
def test_an_empty_set_is_everything_or_nothing() -> None:
    story = Story(WILD, replace(), created("t"))
    assert story.then(LITERAL) == {removed("t", cause=Cause.GROUP_CHANGED)}
    assert story.then(WILD) == {added("t", cause=Cause.GROUP_CHANGED)}


@pytest.mark.rule("both-modes")
def test_a_request_is_kept_in_both_readings() -> None:
    """What no pattern can be is a name as soon as the group is literal."""
    story = Story(WILD, replace("a*", "*"), created("a*"))
    assert story.then(LITERAL) == set()
    client = story.state.clients[KEY]
    assert [block.entries for subscription in client for block in subscription.blocks] == [("a*", "*"), ("*",)]


@pytest.mark.rule("both-modes")
def test_a_request_refused_as_patterns_still_counts_as_names() -> None:
    story = Story(WILD, replace("a*"))
    assert [problem.reason for problem in story.expansion.problems] == [Reason.INVALID_PATTERN]
    assert story.then(created("a*")) == set()
    assert story.then(LITERAL) == {added("a*", "a*", cause=Cause.GROUP_CHANGED)}


def test_other_groups_are_not_touched() -> None:
    story = Story(WILD, replace("*", group="h"), replace("*"), created("t"))
    assert story.then(LITERAL) == {removed("t", "*", cause=Cause.GROUP_CHANGED)}


@pytest.mark.rule("cause")
def test_a_request_in_the_batch_of_a_group_event_causes_what_it_changes_itself() -> None:
    """The group event is read first: `*` matches `t` from then on, and nothing matches `u__v` yet."""
    story = Story(replace("*"), created("t"), created("u__v"))
    option = {"type": "TAIL_N", "value": 3}
    assert story.then(WILD, replace("**", option=option)) == {
        added("t", "**", cause=Cause.GROUP_CHANGED),
        added("u__v", "**", cause=Cause.SUBSCRIBED),
    }
    options = {update.lite_topic: (update.offset_option, update.source.topic) for update in story.expansion.updates}
    assert options == {"t": (None, "groups"), "u__v": (option, "subscriptions")}


@pytest.mark.rule("cause")
def test_what_a_group_event_takes_is_not_unsubscribed_by_an_unrelated_request() -> None:
    story = Story(bound(resets="unsubscribe"), replace("*"), created("t"), created("u"))
    literal = bound(wildcard=False, resets="unsubscribe")
    assert story.then(literal, add("u")) == {removed("t", "*", cause=Cause.GROUP_CHANGED)}
    assert (story.only_update.source.topic, story.only_update.reset) == ("groups", False)
    assert story.then(drop("u")) == {removed("u", "u", cause=Cause.UNSUBSCRIBED)}
    assert story.only_update.reset


@pytest.mark.rule("deleted-attributes")
def test_an_unknown_group_that_is_deleted_is_counted() -> None:
    story = Story()
    assert story.then(DELETED) == set()
    assert story.ignored == {Ignored.GROUP_UNKNOWN: 1}
    assert not story.expansion.delta


@pytest.mark.rule("late-move")
def test_the_echo_of_a_move_ends_what_was_set_before_it() -> None:
    """Its source is the event that moved the group, not the echo."""
    story = Story(WILD, replace("*"), created("t"))
    assert story.then(ECHO_OF_4) == {removed("t", "*", cause=Cause.GROUP_CHANGED)}
    assert story.only_update.source == Source("groups", 0, 4, 0, 999)
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


def test_an_echo_from_another_partition_cannot_be_compared() -> None:
    """Offsets of two partitions say nothing about each other, so the group leaves."""
    story = Story(*map(created, "abcd"), WILD)
    story.then(GroupEvent("g", {}, "p", Place(1, 4, 999)))
    assert story.state.groups == {}


def test_the_echo_of_a_group_that_is_gone_is_counted() -> None:
    story = Story()
    assert story.then(ECHO_OF_4) == set()
    assert story.ignored == {Ignored.GROUP_SUPERSEDED: 1}


# What updates carry: source, version and offset option.


@pytest.mark.rule("lazy")
@pytest.mark.rule("causes-of-adds")
def test_a_lazy_add_comes_from_the_topic_event() -> None:
    story = Story(WILD, replace("*", version=7))
    story.then(created("t"))
    update = story.only_update
    assert update.source == Source("topics", 0, 3, 0, 1_003)
    assert (update.version, update.offset_option) == (7, None)


@pytest.mark.rule("causes-of-adds")
def test_an_eager_add_comes_from_the_request() -> None:
    story = Story(WILD, created("t"))
    story.then(replace("*", version=7))
    assert story.only_update.source == Source("subscriptions", 0, 3, 0, 1_003)
    assert story.only_update.version == 7


@pytest.mark.rule("causes-of-policies")
def test_a_change_of_reading_comes_from_the_group_event() -> None:
    story = Story(replace("*", version=7), created("t"))
    story.then(WILD)
    assert story.only_update.source == Source("groups", 0, 3, 0, 1_003)
    assert story.only_update.version == 7


def test_of_several_requests_the_last_that_made_a_difference_to_the_topic_is_the_source() -> None:
    """Each ADD has the offset option of that request, whatever others follow."""
    options = [{"type": "TAIL_N", "value": number} for number in range(4)]
    story = Story(WILD, created("t"), created("u"))
    story.then(
        add("t", version=1)._replace(offset_option=options[0]),
        add("u", "t", version=2)._replace(offset_option=options[1]),
        drop("v", version=2)._replace(offset_option=options[2]),
        add("x", version=3),
    )
    found = {update.lite_topic: (update.source.offset, update.offset_option) for update in story.expansion.updates}
    assert found == {"t": (4, options[0]), "u": (5, options[1])}
    assert {update.version for update in story.expansion.updates} == {3}


def test_who_drops_and_asks_again_gets_it_by_the_second_request() -> None:
    story = Story(WILD, created("t"))
    first, second = ({"type": "TAIL_N", "value": number} for number in (1, 2))
    story.then(add("t")._replace(offset_option=first), drop("t"), add("t")._replace(offset_option=second))
    assert (story.only_update.source.offset, story.only_update.offset_option) == (5, second)


def test_of_several_requests_the_last_that_took_the_topic_is_the_source_of_its_loss() -> None:
    story = Story(WILD, created("t"), created("u"), replace("t", "u"))
    story.then(drop("t"), drop("u"), add("x"))
    assert {update.lite_topic: update.source.offset for update in story.expansion.updates} == {"t": 5, "u": 6}


@pytest.mark.rule("versions")
def test_the_version_is_the_one_of_the_reading_in_force() -> None:
    """A request that was refused under one reading has not moved the version there."""
    story = Story(WILD, replace("*", version=1), replace("a*", version=2), created("a*"))
    story.then(created("t"))
    assert story.only_update.version == 1
    story.then(LITERAL)
    assert {update.version for update in story.expansion.updates} == {2}


def test_topics_of_one_batch_carry_the_versions_of_their_own_clients() -> None:
    story = Story(WILD, replace("*", version=1), replace("*", client="d", version=2))
    story.then(created("t"), created("u"))
    versions = {(update.subscriber.client_id, update.lite_topic): update.version for update in story.expansion.updates}
    assert versions == {("c", "t"): 1, ("d", "t"): 2, ("c", "u"): 1, ("d", "u"): 2}


@pytest.mark.rule("offset-option")
def test_an_offset_option_is_on_the_eager_add_only() -> None:
    """Neither on a REMOVE of the same request nor on what comes later."""
    option = {"type": "TAIL_N", "value": 5}
    story = Story(WILD, replace("a"), created("a"), created("b"))
    story.then(replace("b", "c", option=option))
    found = {update.op: update.offset_option for update in story.expansion.updates}
    assert found == {Op.ADD: option, Op.REMOVE: None}
    story.then(created("c"))
    assert story.only_update.offset_option is None


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


@pytest.mark.rule("no-valid-entry")
def test_a_set_without_a_valid_entry_is_refused() -> None:
    """It never widens to everything, and the former set stands."""
    story = Story(WILD, replace("t", version=1), created("t"), created("u"))
    assert story.then(replace("a*", "", version=2)) == set()
    (problem,) = story.expansion.problems
    assert problem.message.startswith("the request is refused, since no entry is valid: ")
    assert story.interest().entries == {(LITE, "t")}
    assert story.ignored == {}


def test_many_invalid_entries_are_summed_up() -> None:
    story = Story(WILD)
    story.then(replace("t", *(f"{number}*" for number in range(12))))
    (problem,) = story.expansion.problems
    assert problem.message.endswith("; and 7 more")
    assert problem.message.count("invalid pattern") == 5


@pytest.mark.rule("inner-multi")
def test_an_inner_multi_segment_wildcard_is_an_option() -> None:
    """Without it the pattern is invalid; with it both paths understand it."""
    assert len(Story(WILD, replace("**__c")).expansion.problems) == 1
    story = Story(WILD, replace("**__c"), shard=Shard("p", inner_multi=True))
    assert story.expansion.problems == []
    assert story.then(created("a__b__c")) == {added("a__b__c", "**__c")}
    eager = added("a__b__c", "**__c", client="d", cause=Cause.SUBSCRIBED)
    assert story.then(replace("**__c", client="d")) == {eager}


@pytest.mark.parametrize("number", range(3))
def test_of_the_shards_of_a_parent_the_first_reports(number: int) -> None:
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


def test_expand_is_the_same_with_and_without_indexes() -> None:
    """Indexes that earlier batches built give what freshly built ones give."""
    story = Story(WILD, replace("*", "a__*", "a"), replace(client="d"), *map(created, ["a", "a__b", "t"]))
    cold = decode(encode(story.state))
    batches: list[list[Event]] = [
        [add("*__b"), leave(client="d"), deleted("a"), created("u")],
        [replace("**"), created("v__b"), deleted("t")],
        [LITERAL, replace("u", client="d")],
        [WILD, drop("**"), created("w")],
    ]
    for number, events in enumerate(batches):
        sourced = [(Source("s", 0, number, at, 0), event) for at, event in enumerate(events)]
        warm = expanded(story.state, sourced, story.shard)
        fresh = expanded(cold, sourced, story.shard)
        assert (fresh.delta, set(fresh.updates)) == (warm.delta, set(warm.updates))
        story.state.apply(warm.delta)
        cold.apply(warm.delta)
        cold = decode(encode(cold))


@pytest.mark.rule("recreated-topic")
def test_a_topic_that_was_deleted_and_created_again_is_taken_from_who_left_by_its_deletion() -> None:
    """Not by its creation, which gives it to others."""
    story = Story(WILD, replace("*"), created("t"))
    deletion = deleted("t")
    assert story.then(leave(), deletion, created("t")) == {removed("t", "*", cause=Cause.TOPIC_DELETED)}
    assert story.only_update.source[2] == story.offset - 1
