"""Questions to a key: what is answered, what is not, and what stays as it was."""

import dataclasses
import json
import time
from typing import Any

import orjson
import pytest

from matcher import InvalidPattern
from streaming.coordinator import COORDINATOR, bucket_of
from streaming.records.model import NO_METADATA, GroupEvent, Place, Stream
from streaming.records.routing import placed
from streaming.records.subscribers import ClientKey
from streaming.state import Shard, ShardDelta, ShardState, counts
from streaming.tuning import Tuning
from streaming.worker.bounds import Bounds
from streaming.worker.inquiry import listing
from streaming.worker.inquiry.model import EventPlace, PairFacts, PairVerdict
from streaming.worker.inquiry.pair import explain_pair
from streaming.worker.inquiry.planning import plan_shard, read
from streaming.worker.inquiry.questions import ANSWERABLE_MS, MAX_ITEMS, Ask, Question
from streaming.worker.rows import InputRow, InputRows, OutputKind
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import (
    EXCLUSIVE,
    LITERAL,
    WILD,
    Event,
    add,
    attributes,
    created,
    encoded,
    leave,
    quota,
    replace,
    wildcard,
)
from tests.support.simulator import NUMBER, TOPICS
from tests.support.states import Written, encode, work
from tests.support.story import Story

CONFIG = WorkerConfig(TOPICS)
C = ClientKey("g", "c")


def now() -> int:
    """The time: a question that has waited for long is not answered."""
    return int(time.time() * 1_000)


def explained(topic: str, *events: Event, key: ClientKey = C) -> PairFacts:
    """What a shard says of a client and a topic after one micro-batch."""
    return explain_pair(Story(*events).state, Shard("p"), key, topic)


def hints(found: PairFacts) -> list[str]:
    return [hint.code for hint in found.hints]


# Why a client does or does not receive a topic; that the answer is right is a property test.


WITH_QUOTA = attributes(quota="7")
WAY_OUT = '{"group": "g", "attributes": {"lite.bind.topic": "p", "lite.sub.wildcard": "true"}}'


@pytest.mark.parametrize(
    ("group", "said"),
    [([], ["has no group event", WAY_OUT]), ([WITH_QUOTA], ["has no attribute lite.sub.wildcard", '.quota": "7"'])],
)
def test_a_pattern_in_a_literal_group_is_named_with_the_way_out(group: list[Event], said: list[str]) -> None:
    """It keeps the other attributes of the group."""
    found = explained("a__1", *group, replace("a__*"), created("a__1"))
    assert (found.verdict, hints(found)) == (PairVerdict.NO_MATCH, ["pattern-in-literal-group"])
    assert [text for text in said if text not in found.hints[0].text] == []
    assert found.decided_by == EventPlace(Stream.SUBSCRIPTIONS, 0, 1 + len(group))


@pytest.mark.parametrize(
    ("group", "entry", "topic", "code"),
    [
        (WILD, "a__*", "a/b", "separator"),
        (WILD, "a/+/c", "a/b/c", "dialect"),
        (WILD, "a/+/c", "a__b__c", "dialect"),
        (WILD, "a.>", "a.b.c", "dialect"),
        (WILD, "A__*", "a__b", "case-or-blanks"),
        (LITERAL, "A__b ", "a__b", "case-or-blanks"),
        (LITERAL, "a/b", "a__b", "separator"),
        (WILD, "a__*", "b__1", None),
    ],
)
def test_a_likely_mistake_is_a_hint_and_none_is_invented(
    group: Event, entry: str, topic: str, code: str | None
) -> None:
    found = explained(topic, group, replace(entry), created(topic))
    assert found.verdict is PairVerdict.NO_MATCH
    assert code in hints(found) if code else not found.hints


def test_the_first_segment_that_differs_is_shown() -> None:
    found = explained("a__b__c", WILD, replace("a__*__d", "x__**"), created("a__b__c"))
    assert found.reason == "none of its 2 patterns matches"
    nearest = found.entries[0]
    assert (nearest.entry, nearest.reason) == ("a__*__d", "segment 3 of the topic, 'c', is not 'd'")
    assert [step.fits for step in nearest.steps] == [True, True, False]


def test_a_shared_filter_is_held_against_the_topic_without_its_share() -> None:
    found = explained("a/b", WILD, replace("$share/x/a/+", dialect="mqtt"), created("a/b"))
    assert found.received
    assert [(row.part, row.entries) for row in found.rows] == [("share:x/a/+", ("a/+",))]
    assert [(entry.entry, entry.matches) for entry in found.entries] == [("$share/x/a/+", True)]


@pytest.mark.parametrize(
    ("text", "topic", "fits", "other"),
    [
        ("*", "a__b", {"dialect": "nats"}, {"dialect": "lite"}),
        ("a", "a.b", {"dialect": "wamp", "policy": "prefix"}, {"dialect": "wamp", "policy": "exact"}),
    ],
)
def test_an_entry_is_no_reason_where_its_text_does_not_match(text: str, topic: str, fits: Any, other: Any) -> None:
    """The later request has the same text in another dialect or with another policy."""
    found = explained(topic, WILD, add(text, **fits), add(text, **other), created(topic))
    assert [(entry.dialect, entry.policy) for entry in found.entries] == [(fits["dialect"], fits.get("policy"))]
    assert found.decided_by == found.entries[0].place


@pytest.mark.parametrize("entries", [("*", "a"), ("a", "*"), ("**",), ()], ids=str)
def test_the_newest_request_that_asks_for_a_topic_is_its_cause(entries: tuple[str, ...]) -> None:
    """Or the request for everything, where entries are no longer held."""
    requests = [replace("z"), *map(add, entries)] if entries else [replace("a"), replace()]
    found = explained("a", WILD, *requests, created("a"))
    assert found.received
    assert found.decided_by == EventPlace(Stream.SUBSCRIPTIONS, 0, 1 + len(requests))


def test_the_holder_of_an_exclusive_topic_is_named_with_its_request() -> None:
    found = explained("a", EXCLUSIVE, replace("*"), replace("*", client="d"), created("a"))
    assert (found.verdict, found.holder) == (PairVerdict.EXCLUSIVE, "d")
    assert found.decided_by == EventPlace(Stream.SUBSCRIPTIONS, 0, 3)


def test_a_quota_keeps_later_topics_away() -> None:
    events = quota(1), created("a"), replace("*"), created("b")
    assert explained("a", *events).received
    found = explained("b", *events)
    assert found.verdict is PairVerdict.QUOTA
    assert found.quota is not None
    assert found.quota.share == 1
    assert found.decided_by == EventPlace(Stream.GROUPS, 0, 1)


@pytest.mark.parametrize("look", [0, 3, 50_000])
def test_the_first_topics_are_those_that_a_client_holds_however_far_one_looks(
    look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own entries, or by the index of the shard's topics."""
    monkeypatch.setattr(counts, "_LOOKS", look)
    names = ["a__1", "b__1", "a__2", "b__2", "a__3", "a__4"]
    story = Story(quota(2), replace("a__*"), *map(created, names))
    held = [name for name in names if explain_pair(story.state, Shard("p"), C, name).received]
    assert held == story.held() == ["a__1", "a__2"]


def test_a_selector_is_quoted_with_what_it_does_not_agree_with() -> None:
    found = explained("a", WILD, replace("*", sql="size > 1"), created("a", properties={"size": "1"}))
    assert found.verdict is PairVerdict.SELECTOR
    assert "SQL92 selector 'size > 1'" in found.reason
    assert "size='1'" in found.reason


def test_a_group_that_is_bound_elsewhere() -> None:
    story = Story(WILD, replace("*"), created("a"))
    story.then(GroupEvent("g", {}, "p", Place(0, 9, 9), "q"))
    found = explain_pair(story.state, Shard("p"), C, "a")
    assert found.verdict is PairVerdict.BOUND_ELSEWHERE
    assert "bound to 'q'" in found.reason
    assert found.decided_by == EventPlace(Stream.GROUPS, 0, 9)


def test_an_entry_that_is_no_pattern_is_named_although_its_request_was_refused() -> None:
    found = explained("a__b__c", WILD, replace("a/*/c"), created("a__b__c"))
    assert (found.verdict, hints(found)) == (PairVerdict.NOT_IN_SESSION, ["no-pattern", "separator"])
    assert "'*' is next to other characters" in found.hints[0].text
    assert "'a__*__c' would match" in found.hints[1].text
    found = explained("a__b", WILD, replace("a*", "x__*"), created("a__b"))
    assert (found.verdict, hints(found)[0]) == (PairVerdict.NO_MATCH, "no-pattern")


def test_a_topic_that_is_to_come() -> None:
    found = explained("a__b", WILD, replace("a__*"), created("a/b"))
    assert found.verdict is PairVerdict.TOPIC_UNKNOWN
    assert "will match it as soon as it is created" in found.reason
    assert hints(found) == ["topic-spelling"]


def test_a_client_that_left_and_one_in_another_group() -> None:
    story = Story(WILD, wildcard(group="h"), replace("*", version=3), replace("*", group="h"), created("a"))
    story.then(leave(version=4))
    found = explain_pair(story.state, Shard("p"), C, "a")
    assert (found.verdict, hints(found)) == (PairVerdict.NOT_IN_SESSION, ["other-group"])
    assert found.decided_by is not None
    found = explain_pair(story.state, Shard("p"), ClientKey("h", "C"), "a")
    assert (found.verdict, hints(found)) == (PairVerdict.CLIENT_UNKNOWN, ["client-spelling"])


@pytest.mark.rule("explanation")
def test_a_wide_change_that_has_not_come_to_the_topic_yet() -> None:
    class Sliced(Story):
        tuning = Tuning(backfill_topics=2)

    story = Sliced(quota(-1), *(created(f"t{number}") for number in range(5)))
    story.then(replace("*"))
    verdicts = [explain_pair(story.state, Shard("p"), C, f"t{number}").verdict for number in range(5)]
    assert verdicts == [PairVerdict.RECEIVED] * 2 + [PairVerdict.UNDER_WAY] * 3


# Lists.


def a_shard(topics: int = 7) -> ShardState:
    """A shard with topics and two clients."""
    story = Story(WILD, replace("a__*", "b__1"), replace("*", client="d"), replace("x", group="h"))
    story.then(*(created(f"{'ab'[number % 2]}__{number}") for number in range(topics)))
    return story.state


def test_topics_come_in_pages_in_order_of_creation() -> None:
    shard, cursor, found = a_shard(), 0, []
    for _ in range(3):
        page = listing.topics(shard, Question("q", Ask.TOPICS, limit=3, cursor=cursor))
        found += [each.topic for each in page.items]
        assert page.total == 7
        cursor = page.cursor or 0
    assert found == list(shard.topics)
    assert page.cursor is None


@pytest.mark.rule("bounded-answer")
def test_one_answer_looks_at_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SCANNED", 4)
    page = listing.topics(a_shard(), Question("q", Ask.TOPICS, pattern="b__*"))
    assert ([each.topic for each in page.items], page.cursor) == (["b__1", "b__3"], 4)


def test_clients_groups_and_entries_are_filtered() -> None:
    shard = a_shard()
    clients = listing.clients(shard, Question("q", Ask.CLIENTS, group="g")).items
    assert [(each.client, each.entries, each.live) for each in clients] == [("c", 2, True), ("d", 1, True)]
    groups = listing.groups(shard, Question("q", Ask.GROUPS)).items
    assert [(each.group, each.mode, each.clients) for each in groups] == [("g", "wildcard", 2), ("h", "literal", 1)]
    entries = listing.subscriptions(shard, Question("q", Ask.SUBSCRIPTIONS, client="c", group="g", pattern="b__*"))
    assert [(each.entry, each.dialect) for each in entries.items] == [("b__1", "lite")]
    assert entries.total == 2
    with pytest.raises(InvalidPattern):
        listing.topics(shard, Question("q", Ask.TOPICS, pattern="a*"))


def test_a_topic_is_shown_with_those_who_receive_it() -> None:
    story = Story(quota(1), created("a"), created("b"), replace("*"), replace("b", client="d"))
    found = listing.topic(story.state, Shard("p"), "b")
    assert [each.client for each in found.subscribers] == ["d"]
    assert listing.topic(story.state, Shard("p"), "z").topic is None


# Dry runs; that they say what happens is a property test.


@pytest.mark.rule("plan")
def test_a_wide_change_is_counted_in_slices() -> None:
    count = 130_000
    shard = Story(quota(-1), replace("t__1", client="new")).state
    shard.apply(ShardDelta(added=dict.fromkeys((f"t__{number}" for number in range(count)), NO_METADATA)))
    former = encode(shard)
    question = Question("q", Ask.PLAN, stream="subscriptions", record=replace("t__*", client="new"))
    planned = read(question, "s", now())
    first = plan_shard(shard, Shard("p"), planned, question)
    assert (first.adds, first.removes, first.cursor, first.wide) == (19_999, 0, 20_000, (("g", "new"),))
    assert orjson.loads(orjson.dumps(first))["wide"] == [["g", "new"]]
    again = dataclasses.replace(question, group="g", client="new")
    second, third = (
        plan_shard(shard, Shard("p"), planned, dataclasses.replace(again, cursor=cursor))
        for cursor in (20_000, 120_000)
    )
    assert (second.cursor, third.cursor) == (120_000, None)
    assert first.adds + second.adds + third.adds == count - 1
    assert {each.cause for each in (*second.shown, *third.shown)} == {"SUBSCRIBED"}
    assert encode(shard) == former


def test_a_plan_knows_the_bounds_of_the_job() -> None:
    bounds = Bounds(1_000_000, 10, 2, 100, 10_000)
    record = replace("a", "b", "c")
    question = Question("q", Ask.PLAN, stream="subscriptions", record=record)
    value = question.for_shard("p", 0).value
    rows = [InputRow(NUMBER[Stream.CLOCK], 0, 9, 0, now(), value)]
    _, written = work("p", 0, rows, None, Worker(dataclasses.replace(CONFIG, bounds=bounds)))
    (problem,) = said(written)["answer"]["problems"]
    assert problem["reason"] == "out-of-range"
    assert "at most 2 are allowed" in problem["message"]


# The worker.


def asked(
    question: Question, *, to: tuple[str, int] = ("p", 0), at: int | None = None, after: bytes | None = None
) -> Written:
    """What a worker says to a question, sent at a time, to a key with these state bytes."""
    record = question.for_coordinator() if to[0] == COORDINATOR else question.for_shard(*to)
    entries = [each for each in placed(Stream.CLOCK, record.value, CONFIG.routing) if (each.parent, each.shard) == to]
    rows = [InputRow(NUMBER[Stream.CLOCK], 0, 9, each.entry, at or now(), each.payload) for each in entries]
    data, written = work(*to, rows, after, Worker(CONFIG))
    assert data == after
    assert written.counts == {}
    assert written.ignored == {}
    return written


def state_after(*values: tuple[Stream, bytes], key: tuple[str, int] = ("p", 0)) -> bytes | None:
    rows = [InputRow(NUMBER[stream], 0, offset, 0, now(), value) for offset, (stream, value) in enumerate(values)]
    return work(*key, rows, None, Worker(CONFIG))[0]


def said(written: Written) -> dict[str, Any]:
    (kind,) = written.kinds
    assert kind == OutputKind.ANSWER
    value: dict[str, Any] = json.loads(written.payloads[0] or b"")
    return value


EXPLAIN = Question("q1", Ask.EXPLAIN, client="c", topic="t", group="g")


@pytest.mark.rule("question")
def test_a_shard_answers_and_stays_as_it_was() -> None:
    former = state_after((Stream.SUBSCRIPTIONS, encoded(replace("t"))), (Stream.TOPICS, encoded(created())))
    answer = said(asked(EXPLAIN, after=former))
    assert (answer["id"], answer["parent"], answer["shard"], answer["shards"]) == ("q1", "p", 0, 1)
    assert answer["topics"]["subscriptions"] == "lite-subscription-events"
    assert [pair["verdict"] for pair in answer["answer"]] == ["received"]


def test_a_shard_without_state_answers_too() -> None:
    assert [pair["verdict"] for pair in said(asked(EXPLAIN))["answer"]] == ["client-unknown"]


def test_the_coordinator_tells_bindings_and_leases() -> None:
    key = COORDINATOR, bucket_of("g")
    former = state_after((Stream.SUBSCRIPTIONS, encoded(replace("t"))), key=key)
    answer = said(asked(EXPLAIN, to=key, after=former))["answer"]
    assert [(lease["client"], lease["parents"]) for lease in answer["leases"]] == [("c", ["p"])]
    assert answer["bindings"] == []


@pytest.mark.rule("question")
def test_nobody_answers_who_replays_an_old_clock() -> None:
    assert asked(EXPLAIN, at=now() - ANSWERABLE_MS - 60_000).kinds == []


@pytest.mark.rule("question")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"id": "q", "ask": "secrets"}, "kind that is known"),
        ({"id": "q"}, "kind that is known"),
        ({"id": "q", "ask": "topics", "limit": MAX_ITEMS + 1}, "limit must be"),
        ({"id": "q", "ask": "topics", "cursor": -1}, "limit must be"),
        ({"id": "q", "ask": "topics", "pattern": "a*b"}, "is next to other characters"),
        ({"id": "q", "ask": "topics", "dialect": "klingon"}, "klingon"),
        ({"id": "q", "ask": "topics", "pattern": 7}, "no such field"),
        ({"id": "q", "ask": "plan", "stream": "rivers"}, "rivers"),
    ],
)
def test_a_question_that_makes_no_sense_is_told_so_and_stops_nobody(fields: dict[str, Any], why: str) -> None:
    value = json.dumps({"wake": 0, "parentTopic": "p", "shard": 0, "inquiry": {**fields}}).encode()
    if "dialect" in fields:
        value = value.replace(b'"dialect"', b'"pattern": "a", "dialect"')
    row = InputRow(NUMBER[Stream.CLOCK], 0, 9, 0, now(), value)
    _, written = work("p", 0, [row], None, Worker(CONFIG))
    assert why in said(written)["error"]


@pytest.mark.rule("bounded-answer")
def test_a_long_answer_is_cut_to_what_kafka_takes() -> None:
    values = [(Stream.TOPICS, encoded(created(f"{number}{'x' * 2_000}"))) for number in range(900)]
    answer = said(asked(Question("q", Ask.TOPICS, limit=900), after=state_after(*values)))["answer"]
    assert answer["cursor"] == len(answer["items"]) == 249


@pytest.mark.rule("suspicious-names")
def test_a_group_that_is_sent_patterns_as_names_is_noted() -> None:
    """In the counts, by which the driver warns; not after its group event."""

    def suspects(*values: tuple[Stream, bytes]) -> list[tuple[str, str, str]]:
        rows = [InputRow(NUMBER[stream], 0, offset, 0, now(), value) for offset, (stream, value) in enumerate(values)]
        (output,) = list(Worker(CONFIG).work("p", 0, InputRows.of(rows), None))
        return output.suspects

    pattern = Stream.SUBSCRIPTIONS, encoded(replace("a__*"))
    group = encoded(WILD)
    assert suspects(pattern) == [("p", "g", "a__*")]
    assert suspects(pattern, (Stream.GROUPS, group)) == []
    assert suspects((Stream.SUBSCRIPTIONS, encoded(replace("a__b")))) == []
    assert suspects((Stream.SUBSCRIPTIONS, encoded(replace("a/+")))) == []
    assert suspects((Stream.SUBSCRIPTIONS, encoded(replace("a/+", dialect="mqtt")))) == [("p", "g", "a/+")]
    assert suspects((Stream.SUBSCRIPTIONS, encoded(replace("a__*" * 300)))) == []  # counts stay small
