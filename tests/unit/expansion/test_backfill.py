"""Backfills: a change of many topics is carried out in slices, and delays nothing else."""

import json
from typing import Any

import pytest

from streaming.records.model import BIND_TOPIC, QUOTA, WILDCARD, GroupEvent, Place
from streaming.records.parsing import parse_clock
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Cause
from streaming.state import replay
from streaming.tuning import Tuning
from streaming.worker.rows import InputRow, OutputKind
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import (
    Event,
    add,
    attributes,
    created,
    deleted,
    drop,
    encoded,
    exclusive,
    leave,
    parsed,
    quota,
    replace,
    wake,
    wildcard,
    with_attributes,
)
from tests.support.simulator import TOPICS
from tests.support.states import decode, encode, work
from tests.support.story import Said, added, degrouped, exceeded, regrouped, removed, subscribed, unsubscribed
from tests.support.story import Story as AnyStory

UNLIMITED = quota(-1)
KEY = ClientKey("g", "")


TWO_AT_A_TIME = Tuning(backfill_topics=2)


class Story(AnyStory):
    """A shard that goes through two topics of a backfill at once."""

    tuning = TWO_AT_A_TIME

    def finish(self) -> set[Said]:
        """Run micro-batches until no backfill is left, and return their updates."""
        said: set[Said] = set()
        while self.state.backfills:
            said |= self.then(wake(0))
        return said


@pytest.fixture
def story() -> Story:
    """Five topics, and a client that has asked for all and has two of them so far."""
    story = Story(UNLIMITED, *map(created, "abcde"))
    assert story.then(replace("*")) == {subscribed("a", "*"), subscribed("b", "*")}
    return story


@pytest.mark.rule("backfill")
def test_a_backfill_continues_with_each_batch_in_order_of_creation(story: Story) -> None:
    assert story.then(wake(0)) == {subscribed("c", "*"), subscribed("d", "*")}
    assert list(story.state.backfills) == [KEY]
    assert story.then(wake(0)) == {subscribed("e", "*")}
    assert story.state.backfills == {}
    assert story.then(wake(0)) == set()


def test_topics_that_a_backfill_has_still_to_remove_count_for_a_new_quota() -> None:
    """The group had no quota, so the client's topics were never counted."""
    story = Story(UNLIMITED, *map(created, "abcde"), replace("a", "b", "c"))
    story.finish()
    elsewhere = GroupEvent("g", {}, "p", Place(0, 500, 999), "q")
    assert story.then(elsewhere) == {degrouped("a", "a"), degrouped("b", "b")}
    assert story.then(quota(2)) == {regrouped("a", "a"), regrouped("b", "b"), exceeded("c", "c")}
    assert story.held() == ["a", "b"]


def test_a_backfill_completes_when_few_topics_are_left(story: Story) -> None:
    """Fewer than a step, by a release with larger steps."""
    story.tuning = Tuning()
    assert story.then(deleted("a")) == {removed("a", "*"), *(subscribed(topic, "*") for topic in "cde")}
    assert story.state.backfills == {}


def test_version_and_offset_option_are_in_all_updates_of_a_backfill() -> None:
    """Its version and where to start; and what the group says of offsets of who leaves."""
    option = {"type": "TAIL_N", "value": 3}
    story = Story(quota(-1, reset_unsubscribed="true"), *map(created, "abc"))
    for events in ([replace("*", version=7, offsetOption=option)], [wake(0)]):
        story.then(*events)
        assert {(said.version, said.reset) for said in story.expansion.updates} == {(7, False)}
        assert all(said.offset_option == option for said in story.expansion.updates)
    for events in ([leave(version=8)], [wake(0)]):
        story.then(*events)
        assert {(said.op, said.version, said.reset) for said in story.expansion.updates} == {("REMOVE", 8, True)}
        assert all(said.offset_option is None for said in story.expansion.updates)
    assert story.rows == {}


def test_topics_have_the_bitmap_of_other_groups() -> None:
    selecting = wildcard(group="h")
    story = Story(
        UNLIMITED,
        selecting,
        replace("z", group="h", sql="a = 'b'"),
        *(created(each, properties={"a": "b"}) for each in "xyz"),
    )
    for events in ([replace("*")], [wake(0)]):
        assert story.then(*events)
        assert all(said.bitmap for said in story.expansion.updates)


@pytest.mark.rule("backfill")
@pytest.mark.parametrize(
    ("events", "said", "rest"),
    [
        ([created("f")], {added("f", "*"), subscribed("c", "*"), subscribed("d", "*")}, {subscribed("e", "*")}),
        ([deleted("a"), deleted("e")], {removed("a", "*"), subscribed("c", "*"), subscribed("d", "*")}, set()),
        ([deleted("d"), created("d")], {added("d", "*"), subscribed("c", "*"), subscribed("e", "*")}, set()),
        ([replace("*")], {subscribed("c", "*"), subscribed("d", "*")}, {subscribed("e", "*")}),
        (
            [replace("d", "e")],
            {unsubscribed("a", "*"), unsubscribed("b", "*"), subscribed("d", "d")},
            {subscribed("e", "e")},
        ),
    ],
    ids=["new topic", "deleted topics", "recreated topic", "same request", "another request"],
)
def test_events_meanwhile_are_applied_at_once(
    story: Story, events: list[Event], said: set[Said], rest: set[Said]
) -> None:
    """A topic is removed only if it was added. A request that joins goes from the first to the last request."""
    assert story.then(*events) == said
    assert story.finish() == rest


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("topic", [*"cdefg"])
def test_any_topic_that_a_backfill_has_not_reached_may_be_deleted(topic: str, anew: bool) -> None:  # noqa: FBT001
    """Another worker finds the same ones left."""
    story = Story(UNLIMITED, *map(created, "abcdefg"))
    story.then(replace("*"))
    story.then(deleted(topic))
    if anew:
        story.state = decode(encode(story.state))
    story.then(wake(0))
    story.then(wake(0))
    assert ({row for _, row in story.rows}, story.state.backfills) == ({*"abcdefg"} - {topic}, {})


@pytest.mark.rule("backfill")
def test_topics_that_a_backfill_has_not_reached_follow_the_former_request() -> None:
    story = Story(UNLIMITED, *map(created, ["a__1", "a__2", "b__1", "b__2", "a__3", "b__3"]))
    story.then(replace("a__*"))
    story.then(wake(0))
    story.then(wake(0))
    assert story.state.backfills == {}
    assert story.then(replace("b__*")) == {unsubscribed("a__1", "a__*"), unsubscribed("a__2", "a__*")}
    assert story.then(deleted("a__3"), deleted("b__3")) == {
        removed("a__3", "a__*"), subscribed("b__1", "b__*"), subscribed("b__2", "b__*")
    }  # fmt: skip
    assert story.state.backfills == {}


def test_leaving_is_carried_out_in_slices_too() -> None:
    story = Story(UNLIMITED, replace("*"), *map(created, "abcde"))
    assert story.then(leave()) == {unsubscribed("a", "*"), unsubscribed("b", "*")}
    story.then(wake(0))
    story.then(wake(0))
    assert (story.held(), story.state.backfills) == ([], {})


@pytest.mark.rule("backfill")
def test_a_client_that_left_gives_up_the_rest_when_its_group_becomes_exclusive() -> None:
    """Such a client is no client of the group any more, and still holds topics."""
    story = Story(UNLIMITED, replace("*"), *map(created, "abcde"))
    story.then(leave())
    story.then(exclusive(quota=-1))
    story.finish()
    assert story.held() == []


@pytest.mark.parametrize("others", [[add("x")], [add("x"), drop("y")]], ids=["one", "several"])
def test_the_rest_is_that_of_the_request_that_asked_for_it(others: list[Event]) -> None:
    """With its place and its offset option, although the client has sent other requests since."""
    options = [{"type": "TAIL_N", "value": 1}, {"type": "TAIL_N", "value": 2}]
    story = Story(UNLIMITED, *map(created, "abcdex"))
    story.then(replace(*"abcde", offsetOption=options[0]))
    asked = story.expansion.updates[0].source
    story.then(deleted("x"), created("x"), *({**other, "offsetOption": options[1]} for other in others))
    story.then(wake(0))
    (found,) = story.expansion.updates
    assert (found.lite_topic, found.source, found.offset_option) == ("e", asked, options[0])


@pytest.mark.parametrize(
    ("group", "held"),
    [
        (UNLIMITED, "abcde"),
        (quota(3), "abc"),
        (quota(1), "a"),
        (exclusive(quota=-1), "abcde"),
        (attributes(quota=-1), ""),
    ],
)
def test_an_event_of_the_group_joins_the_backfill(story: Story, group: Event, held: str) -> None:
    """With a quota, all is carried out at once."""
    story.then(group)
    assert bool(story.state.backfills) is (group["attributes"][QUOTA] in (-1, "-1"))
    story.finish()
    assert "".join(story.held()) == held


def test_the_rest_follows_the_former_request_when_a_quota_comes() -> None:
    story = Story(UNLIMITED, replace("a__*"), *map(created, ["a__1", "a__2", "b__1", "b__2", "a__3", "b__3"]))
    story.then(replace("b__*"))
    assert story.held() == ["a__3"]
    story.then(quota(2))
    assert story.held() == ["b__1", "b__2"]


@pytest.mark.parametrize(
    ("group", "event"), [(quota(4), replace("a", "b", "c")), (UNLIMITED, replace("a", "b"))], ids=["quota", "few"]
)
def test_small_changes_and_quotas_need_no_backfill(group: Event, event: Event) -> None:
    story = Story(group, *map(created, "abcde"))
    story.then(event)
    assert story.state.backfills == {}


def test_an_exclusive_group_goes_in_slices() -> None:
    """Of request, attributes and selector: each topic has one holder at any time."""
    story = Story(exclusive(quota=-1), replace("*", client="d"), *map(created, "abcde"))
    for events, holder in (
        ([replace("*")], "c"),
        ([leave()], "d"),
        ([UNLIMITED], "cd"),
        ([exclusive(quota=-1), add("*", client="d"), add("*")], "c"),
        ([add("*", client="d", tag="x")], ""),
    ):
        if holder == "cd":
            story.then(add("*"))
            story.finish()
        story.then(*events)
        assert story.state.backfills != {}
        assert story.finish() != set()
        assert {name for name in "cd" for _ in story.held(name)} == set(holder)
        assert all(story.held(name) == [*"abcde"] for name in holder)


@pytest.mark.rule("backfill")
def test_two_wide_events_of_a_group_share_one_backfill_or_two() -> None:
    """However many follow, since each joins those under way."""
    story = Story(UNLIMITED, *map(created, "abcdefghij"))
    for number in range(6):
        story.then(
            replace("*" if number % 2 else "**"), *([replace("*", client="d")] if number % 3 else [leave(client="d")])
        )
        assert len(story.state.backfills) <= 2
        assert len({update.lite_topic for update in story.expansion.updates}) <= 4
    story.finish()
    assert story.held() == story.held("d") == [*"abcdefghij"]


def test_a_former_release_wrote_one_backfill_for_each_client(story: Story) -> None:
    """Each with the interest that was in force before, and the place of the request."""
    before, source = [False, [], None], ["subscriptions", 0, 7, 0, 9]
    fields = [before, "c", "e", source, Cause.SUBSCRIBED, Cause.UNSUBSCRIBED, None]
    body: list[Any] = [[], [], [], [], [], [], [], [[["g", ""], None], [["g", "c"], fields]], [], 0]
    replay(story.state, [body])
    assert list(story.state.backfills) == [ClientKey("g", "c")]
    assert story.finish() == {subscribed("c", "*"), subscribed("d", "*"), subscribed("e", "*")}


def test_receive_all_goes_in_slices_whatever_the_quota() -> None:
    """It holds no references, so no quota concerns it."""
    story = Story(quota(1), *map(created, "abcde"))
    story.then(replace())
    assert story.held() == ["a", "b"]


def test_another_worker_counts_topics_that_a_client_has_not_yet_given_up() -> None:
    """A quota may hold as soon as it asks for something else."""
    story = Story(quota(2), replace(), *map(created, "abcde"))
    other, client = decode(encode(story.state)), ClientKey("g", "c")
    assert other.held(client, story.shard.client_share) == 5
    story.then(leave())
    other.replay(story.expansion.delta)
    assert (other.held(client, story.shard.client_share), story.held()) == (3, [*"cde"])


def test_the_shard_asks_to_be_woken_as_long_as_something_is_left() -> None:
    """Also when the batch that goes on was about something else."""
    worker = Worker(WorkerConfig(TOPICS), TWO_AT_A_TIME)
    group = encoded(with_attributes({BIND_TOPIC: "p", WILDCARD: "", QUOTA: -1}))
    rows = [InputRow(0, 0, 0, 0, 0, group)]
    rows += [InputRow(2, 0, number, 0, 0, encoded(created(f"t{number}"))) for number in range(5)]
    data, _ = work("p", 0, rows, None, worker)
    batches = [InputRow(1, 0, 1, 0, 0, encoded(replace("*"))), InputRow(2, 0, 9, 0, 0, encoded(created("u")))]
    written = []
    for row in batches:
        data, output = work("p", 0, [row], data, worker)
        (at,) = [number for number, kind in enumerate(output.kinds) if kind == OutputKind.INPUT + "clock"]
        written.append(output.payloads[at])
    assert [parse_clock(payload) for payload in written] == [parsed(wake(0))] * 2
    data, output = work("p", 0, [InputRow(3, 0, 0, 0, 0, written[0])], data, worker)
    assert [json.loads(key or b"")[3] for key in output.keys] == ["t4"]
    worker = Worker(WorkerConfig(TOPICS), TWO_AT_A_TIME)
    again, output = work("p", 0, [InputRow(3, 0, 1, 0, 0, written[1])], data, worker)
    assert (again, output.kinds) == (data, [])
