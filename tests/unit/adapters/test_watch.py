"""Announcements of a watcher: properties of every history of answers, and each rule on its own."""

from __future__ import annotations

import math
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.adapters.watch import (
    ALL_DELETED_AFTER,
    DELETED_AFTER,
    Listing,
    Presence,
    RoundRobin,
    TopicChange,
    Watch,
    decode,
    encode,
    listing,
    topic_filter,
)
from streaming.errors import ConfigInvalid
from streaming.records.model import TopicEvent
from streaming.records.parsing import parse_topic_event

NAMES = ["a", "b", "c", "d"]
ids = st.sampled_from(["1", "2", "3"])
unknown_ids = st.none() | ids


def listings(topic_ids: st.SearchStrategy[str | None]) -> st.SearchStrategy[Listing]:
    named = st.dictionaries(st.sampled_from(NAMES), topic_ids)
    unclear = st.sets(st.sampled_from(NAMES), max_size=2)
    return st.builds(
        lambda topics, doubts: Listing({name: found for name, found in topics.items() if name not in doubts}, doubts),
        named,
        st.just(set()) | unclear,
    )


def answers(topic_ids: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[Listing | None]]:
    """Draw answers in a row; None is a missing answer."""
    return st.lists(st.none() | listings(topic_ids), max_size=30)


def tell(watch: Watch, answer: Listing | None) -> list[TopicChange]:
    """Return the announcements after an answer, all of them written."""
    if answer is None:
        watch.unanswered()
        return []
    changes = watch.compare(answer)
    for change in changes:
        watch.fold(change)
    return changes


def restarted(changes: list[TopicChange]) -> Watch:
    watch = Watch()
    for change in changes:
        watch.fold(change)
    return watch


@given(answers(ids))
def test_a_restarted_watcher_knows_what_it_knew(history: list[Listing | None]) -> None:
    watch, log = Watch(), []
    for answer in history:
        log += tell(watch, answer)
        assert restarted(log).announced == watch.announced


@given(history=answers(unknown_ids), last=listings(ids), restart=st.booleans())
def test_a_cluster_that_stays_as_it_is_gets_announced_exactly(
    history: list[Listing | None], last: Listing, *, restart: bool
) -> None:
    """After any answers before; and then nothing more is announced."""
    watch, log = Watch(), []
    for answer in history:
        log += tell(watch, answer)
    if restart:
        watch = restarted(log)
    final = Listing(last.topics)
    for _ in range(ALL_DELETED_AFTER):
        log += tell(watch, final)
    assert watch.announced == final.topics
    assert tell(watch, final) == []
    assert restarted(log).announced.keys() == final.topics.keys()
    assert not watch.doubtful


@given(answers(unknown_ids))
def test_events_of_a_topic_alternate(history: list[Listing | None]) -> None:
    watch, log = Watch(), []
    for answer in history:
        log += tell(watch, answer)
    for name in NAMES:
        mine = [change.created for change in log if change.topic == name]
        assert mine[:1] in ([], [True])
        assert all(before != after for before, after in pairwise(mine))


@given(answers(unknown_ids))
def test_a_deletion_has_two_answers_in_a_row_behind_it(history: list[Listing | None]) -> None:
    """Both answers lack the topic as announced, and neither is unclear about it."""
    watch = Watch()
    for number, answer in enumerate(history):
        before = dict(watch.announced)
        for change in tell(watch, answer):
            if change.created:
                continue
            # A topic that is there, but nobody says which one, makes neither a row nor its end.
            row = [
                found
                for found in history[: number + 1]
                if found is None or found.topics.get(change.topic, "") is not None
            ]
            for found in row[-DELETED_AFTER:]:
                assert found is not None
                assert change.topic not in found.unclear
                assert found.topics.get(change.topic, "none") != before[change.topic]


@given(answers(unknown_ids))
def test_creations_are_announced_at_once(history: list[Listing | None]) -> None:
    watch = Watch()
    for answer in history:
        tell(watch, answer)
        if answer is not None:
            assert answer.topics.keys() <= watch.announced.keys()


def known(*names: str) -> list[TopicChange]:
    return [TopicChange(True, name, f"id of {name}") for name in names]


def seen(*names: str) -> Listing:
    return Listing({name: f"id of {name}" for name in names})


def gone(*names: str) -> list[TopicChange]:
    return [TopicChange(False, name) for name in names]


ANEW = Listing({"a": "other", "b": "id of b"})
STORIES: dict[str, tuple[list[TopicChange], list[tuple[Listing | None, list[TopicChange]]]]] = {
    "one answer that lacks a topic is not enough": (
        known("a", "b"), [(seen("a"), []), (seen("a", "b"), []), (seen("a"), []), (seen("a"), gone("b"))]
    ),
    "no answer may come between the two": (known("a", "b"), [(seen("a"), []), (None, []), (seen("a"), [])]),
    "an unclear answer between the two resets the count": (
        known("a", "b"), [(seen("a"), []), (Listing({"a": "id of a"}, {"b"}), []), (seen("a"), [])]
    ),
    "an answer without any topic may come from a broker that starts": (
        known("a", "b"), [*[(seen(), [])] * (ALL_DELETED_AFTER - 1), (seen(), gone("a", "b"))]
    ),
    "a new topic does not make such an answer believable": (
        known("a", "b"), [(seen("c"), known("c")), (seen(), [])]
    ),
    "a topic made anew is both deleted and created": (
        known("a", "b"), [(ANEW, []), (ANEW, [*gone("a"), TopicChange(True, "a", "other")]), (ANEW, [])]
    ),
    "an unknown id decides nothing": (
        [TopicChange(True, "a"), TopicChange(True, "b", "1")], [(Listing({"a": "7", "b": None}), [])]
    ),
    "deletions come before creations": (
        known("b", "c"), [(seen("c"), []), (seen("a", "c", "d"), [*gone("b"), *known("a", "d")])]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "steps"), STORIES.values(), ids=STORIES)
def test_stories(before: list[TopicChange], steps: list[tuple[Listing | None, list[TopicChange]]]) -> None:
    watch = restarted(before)
    assert [tell(watch, answer) for answer, _ in steps] == [changes for _, changes in steps]


def test_ids_and_doubts_are_remembered() -> None:
    watch = restarted([TopicChange(True, "a", "1"), TopicChange(True, "a"), TopicChange(False, "b")])
    assert watch.announced == {"a": "1"}
    watch = restarted([TopicChange(True, "a"), TopicChange(True, "b", "1")])
    tell(watch, Listing({"a": "7"}))
    assert watch.announced == {"a": "7", "b": "1"}
    assert list(watch.doubtful) == ["b"]


def test_an_answer_is_sorted_by_the_presence_of_each_topic() -> None:
    """An answer without the events' own topic is not believed, and a second answer adds the ids."""
    listed = {
        "there": Presence.PRESENT,
        "gone": Presence.ABSENT,
        "unclear": Presence.UNCLEAR,
        "other": Presence.PRESENT,
        "events": Presence.PRESENT,
    }
    selected = {"there", "gone", "unclear"}.__contains__
    assert listing(listed, selected, "events") == Listing({"there": None}, {"unclear"})
    assert listing({**listed, "events": Presence.UNCLEAR}, selected, "events") is None
    assert listing({}, selected, "events") is None
    second = Listing(dict.fromkeys(NAMES), {"u"}).identified({"a": "1", "b": Presence.ABSENT, "c": Presence.PRESENT})
    assert second == Listing({"a": "1", "c": None, "d": None}, {"u", "b"})


names = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
parents = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40).filter(lambda text: text.strip())


@given(names, parents, unknown_ids, st.integers(0, 1 << 60))
def test_events_are_topic_events_and_can_be_read_back(
    name: str, parent: str, topic_id: str | None, timestamp: int
) -> None:
    for change in (TopicChange(True, name, topic_id), TopicChange(False, name)):
        value = encode(change, parent, timestamp)
        event = parse_topic_event(value)
        assert (event.parent, event.lite_topic, event.created) == (parent, name, change.created)
        assert isinstance(event, TopicEvent)
        assert orjson.loads(value)["timestamp"] == timestamp
        assert decode(value, parent) == change
        assert decode(value, f"not {parent}") is None


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (b'{"event":"CREATED","lmqName":"%LMQ%$kafka$t"}', TopicChange(True, "t")),
        (b'{"event":"CREATED","parentTopic":"kafka","liteTopic":"t","topicId":7}', TopicChange(True, "t")),
        (b'{"event":"DELETED","parentTopic":"kafka","liteTopic":"t","topicId":"x"}', TopicChange(False, "t")),
        (b'{"event":"CREATED","parentTopic":"kafka"}', None),
        (b"not json", None),
        (None, None),
    ],
)
def test_events_of_others_are_read_as_the_job_reads_them(value: bytes | None, change: TopicChange | None) -> None:
    assert decode(value, "kafka") == change


@given(st.sets(names, max_size=30), st.integers(1, 7), st.sets(names, max_size=3))
def test_everybodys_turn_comes(known: set[str], count: int, first: set[str]) -> None:
    turns = RoundRobin(count)
    rounds = [turns.next(known, first) for _ in range(math.ceil(len(known) / count))]
    assert set().union(*rounds) == known
    for each in rounds:
        assert len(each) <= count + len(first)
        assert len(each) == len(set(each))
        assert first & known <= set(each)


def test_the_turn_survives_that_topics_come_and_go() -> None:
    turns = RoundRobin(2)
    assert turns.next(["d", "a", "b"], []) == ["a", "b"]
    assert turns.next(["a", "c", "d"], []) == ["c", "d"]
    assert turns.next([], ["x"]) == []
    assert turns.next(["a"], []) == ["a"]


INTERNAL = ["__consumer_offsets", "__transaction_state", "__share_group_state", "lite-topic-events"]
ODD = ["orders..created", ".x", "x.", "__debezium-heartbeat.inventory", "_x", "..."]
USUAL = ["orders", "orders.eu", "orders.eu.test", "users.eu", "a..b"]


@pytest.mark.parametrize(
    ("dialect", "include", "exclude", "selected"),
    [
        ("nats", [], [], [*ODD, *USUAL]),
        ("nats", [">"], [], [*ODD, *USUAL]),
        ("nats", ["*", ">"], [], [*ODD, *USUAL]),
        ("nats", [], [">"], []),
        ("nats", ["orders.>"], [], ["orders.eu", "orders.eu.test"]),
        ("nats", ["orders.>", "*.eu"], ["*.*.test"], ["orders.eu", "users.eu"]),
        ("nats", [], ["orders"], [*ODD, *USUAL[1:]]),
        ("wamp", ["orders*"], [], ["orders..created", "orders", "orders.eu", "orders.eu.test"]),
    ],
)
def test_patterns_let_topics_in_and_keep_them_out(
    dialect: str, include: list[str], exclude: list[str], selected: list[str]
) -> None:
    """Internal topics and topics of reexpand stay out.

    An empty token fits no wildcard of `nats` but `>`, which stands for every topic here.
    """
    selection = topic_filter(["lite-topic-events"], include, exclude, dialect)
    assert [name for name in [*INTERNAL, *ODD, *USUAL] if selection(name)] == selected


@pytest.mark.parametrize(
    ("dialect", "pattern", "said"),
    [
        ("nats", "orders-*", r"put it between dots, as in 'orders\.\*'"),
        ("nats", "orders.>>", "put it after a dot"),
        ("mqtt", "orders/#", "Use the dialect nats"),
        ("nats", "a..b", r"^invalid pattern 'a\..*--dialect"),
        ("nats", "a.>.b", r"^invalid pattern 'a\..*--dialect"),
    ],
)
def test_a_pattern_that_no_topic_can_match_is_refused(dialect: str, pattern: str, said: str) -> None:
    for include, exclude in (([pattern], []), ([], [pattern])):
        with pytest.raises(ConfigInvalid, match=said):
            topic_filter([], include, exclude, dialect)
