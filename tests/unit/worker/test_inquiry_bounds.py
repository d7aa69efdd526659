"""Bounds of questions: whoever may write to the clock topic can ask, so an answer does a bounded amount of work."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

import matcher
from streaming.records.model import NO_METADATA, Stream, TopicMetadata
from streaming.records.subscribers import ClientKey
from streaming.state import Shard, ShardDelta, ShardState, holdings, settle, snapshot_content
from streaming.state.client import Client, Mode
from streaming.worker.inquiry import answering, entries, listing
from streaming.worker.inquiry.model import Page
from streaming.worker.inquiry.names import likeness
from streaming.worker.inquiry.pair import explain_pair
from streaming.worker.inquiry.questions import Ask, Question
from streaming.worker.rows import InputRow
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import WILD, created, quota, replace
from tests.support.simulator import NUMBER, TOPICS
from tests.support.states import as_read, work
from tests.support.story import Story

CONFIG = WorkerConfig(TOPICS)
C = ClientKey("g", "c")
LONG = "x" * 16_000


def answers_to(*questions: Question) -> dict[str, dict[str, Any]]:
    """Return the answers of one micro-batch by the id of the question."""
    now = time.time_ns() // 1_000_000
    rows = [
        InputRow(NUMBER[Stream.CLOCK], 0, offset, 0, now, question.for_shard("p", 0).value)
        for offset, question in enumerate(questions)
    ]
    _, written = work("p", 0, rows, None, Worker(CONFIG))
    return {value["id"]: value for value in map(json.loads, filter(None, written.payloads))}


@pytest.mark.rule("bounded-questions")
@pytest.mark.parametrize(("ask", "work_of_one"), [(Ask.TOPICS, 1), (Ask.EXPLAIN, 4), (Ask.TOPIC, 4), (Ask.PLAN, 16)])
def test_a_micro_batch_answers_a_bounded_number_of_questions(ask: Ask, work_of_one: int) -> None:
    """The first ones are answered, and all others are told to ask again."""
    count = answering.WORK // work_of_one
    asked = [
        Question(f"{number:03}", ask, client="c", topic="t", stream="topics", record={}) for number in range(count + 5)
    ]
    found = answers_to(*asked)
    assert sorted(found) == [question.id for question in asked]
    refused = [name for name, value in sorted(found.items()) if "ask again" in value.get("error", "")]
    assert refused == [question.id for question in asked[count:]]


def test_a_question_with_an_overlong_name_is_refused() -> None:
    found = answers_to(Question("q", Ask.TOPICS, pattern="x" * 20_000))
    assert "longer than 16,384" in found["q"]["error"]


def a_shard(topics: dict[str, TopicMetadata], *requests: Any) -> ShardState:
    shard = Story(WILD, *requests).state
    shard.apply(ShardDelta(added=topics))
    return shard


def test_a_page_is_bounded_by_its_length() -> None:
    """Pages of long things have few of them, and together they have all."""
    long = {f"{number}": TopicMetadata(None, {"a": LONG}) for number in range(100)}
    shard, found, cursor = a_shard(long), [], 0
    while True:
        page = listing.topics(shard, Question("q", Ask.TOPICS, limit=10_000, cursor=cursor))
        assert len(page.items) <= 1 + listing.PAGE_CHARACTERS // len(LONG)
        found += [each.topic for each in page.items]
        if page.cursor is None:
            break
        cursor = page.cursor
    assert found == list(long)


@pytest.mark.parametrize("length", [1_000, 2_000])
def test_long_things_count_several_times(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the same number of characters ends at the same place."""
    monkeypatch.setattr(listing, "SCANNED", 100)
    shard = a_shard({f"{number:0{length}}": NO_METADATA for number in range(100)})
    page = listing.topics(shard, Question("q", Ask.TOPICS, pattern="nothing"))
    assert page.cursor is not None
    assert page.cursor * length <= (100 + 1 + length // 100) * 100


def test_entries_of_former_pages_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients before the cursor are skipped whole."""
    shard = a_shard({}, *(replace("a", "b", client=f"c{number:02}") for number in range(50)))
    made: list[Mode] = []
    original = entries.held

    def noting(blocks: Any, mode: Mode) -> Any:
        made.append(mode)
        return original(blocks, mode)

    monkeypatch.setattr(listing, "held", noting)
    page = listing.subscriptions(shard, Question("q", Ask.SUBSCRIPTIONS, cursor=91, limit=3))
    assert [(each.client, each.entry) for each in page.items] == [("c45", "b"), ("c46", "a"), ("c46", "b")]
    assert (page.cursor, page.total, len(made)) == (94, 100, 3)  # the third one ends the page


@pytest.mark.parametrize("ask", [listing.clients, listing.subscriptions, listing.groups])
def test_pages_show_each_item_once_though_clients_renew(ask: Callable[[ShardState, Question], Page[Any]]) -> None:
    """Also if the clients are in tables, where one that changes is the last."""
    shard = a_shard({}, *(replace("a", client=f"c{number:02}", group=f"g{number:02}") for number in range(20)))
    settle(shard, as_read(snapshot_content(shard)))
    first = ask(shard, Question("q", Ask.CLIENTS, limit=10))
    for number in (2, 15):
        key = ClientKey(f"g{number:02}", f"c{number:02}")
        shard.apply(ShardDelta(clients={key: Client(*(each._replace(version=7) for each in shard.client(key)))}))
    second = ask(shard, Question("q", Ask.CLIENTS, limit=11, cursor=first.cursor or 0))
    found = [each.group for each in (*first.items, *second.items) if each.group != "g"]
    assert sorted(found) == [f"g{number:02}" for number in range(20)]


def test_comparisons_with_long_entries_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints and verdicts about a client with hundreds of long entries look at some of them."""
    patterns = [f"{LONG}{number}__*" for number in range(300)]
    shard = a_shard({}, replace(*patterns))
    calls: list[int] = []
    original = matcher.matches

    def counting(*given: Any, **options: Any) -> bool:
        calls.append(1)
        return original(*given, **options)

    monkeypatch.setattr(matcher, "matches", counting)
    found = explain_pair(shard, Shard("p"), C, f"{LONG}__y")
    assert 0 < len(found.entries) <= entries._SUSPECT_CHARACTERS // len(LONG)
    assert len(calls) < 50 * entries._SUSPECT_CHARACTERS // len(LONG)


def test_a_deep_name_is_explained_by_its_first_segments() -> None:
    """The reason is exact, and the steps end after some segments."""
    deep = "__".join(["a"] * 5_000)
    found = explain_pair(a_shard({}, replace(f"{deep}__*")), Shard("p"), C, deep)
    (entry,) = found.entries
    assert len(entry.steps) == 100
    assert "the topic ends after segment 5000" in entry.reason
    assert len(found.reason) < 1_000


def test_likeness_is_the_length_of_the_common_beginning() -> None:
    for one, other, length in (("abc", "abd", 2), ("", "a", 0), ("a", "a", 1), ("AB", "abc", 2), ("x", "y", 0)):
        assert likeness(one, other) == likeness(other, one) == length


def test_a_quota_that_takes_too_long_to_judge_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is far behind those that the client may hold, all of which would be looked at."""
    monkeypatch.setattr(holdings, "_WORK", 10)
    story = Story(quota(5), replace("z", "x__*"), *(created(f"t{number}") for number in range(20)), created("z"))
    with pytest.raises(holdings.TooWide, match="too many topics"):
        explain_pair(story.state, Shard("p"), C, "z")
    details = listing.topic(story.state, Shard("p"), "z")
    assert (details.subscribers, details.count) == ((), 1)
