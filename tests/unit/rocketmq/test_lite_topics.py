"""Lives of lite topics on several brokers, and what is announced of them."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from streaming.adapters.watch import TopicChange, Watch
from streaming.rocketmq.brokers import Message
from streaming.rocketmq.lite_topics import Life, LiteTopics

STEPS = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("ab"), st.sampled_from(["birth", "end", "again"])))
"""Steps of random histories: broker, topic, and what happens there."""


def birth(topic: str, at: int, tags: str | None = None) -> Message:
    return Message(topic, True, at, tags, {})


@given(STEPS)
def test_what_is_announced_exists_on_some_broker(steps: list[tuple[str, str, str]]) -> None:
    """After each step; ends and births may come in any order, and births may be told twice."""
    topics, watch, alive = LiteTopics({}), Watch(), dict[tuple[str, str], int]()
    for at, (broker, topic, step) in enumerate(steps, 1):
        known = alive.get((broker, topic))
        if step == "end":
            changes = topics.ended(Life(broker, topic, known or 0))
            alive.pop((broker, topic), None)
        else:
            if step == "birth" or known is None:
                alive[broker, topic] = at
            changes = topics.born(broker, birth(topic, alive[broker, topic]))
        for change in changes:
            assert change.created is (change.topic not in watch.announced)
            watch.fold(change)
        assert watch.announced.keys() == {name for _, name in alive} == set(iter_topics(topics))
        assert all(topics.count(each) == len([1 for where, _ in alive if where == each]) for each in "xy")


def iter_topics(topics: LiteTopics) -> set[str]:
    return {life.topic for broker in "xy" for life in topics.lives(broker)}


def test_a_topic_that_is_born_again_unseen_is_announced_as_both() -> None:
    topics = LiteTopics({})
    assert list(topics.born("x", birth("a", 1, "old"))) == [TopicChange(True, "a", "1", "old")]
    assert list(topics.born("x", birth("a", 1, "old"))) == []
    assert list(topics.born("x", birth("a", 5, "new"))) == [TopicChange(False, "a"), TopicChange(True, "a", "5", "new")]
    assert list(topics.ended(Life("x", "a", 1))) == []  # an answer that was under way


def test_the_start_announces_what_differs() -> None:
    topics = LiteTopics({"gone": "1", "stays": "2", "anew": "3", "unknown": None, "later": "9"})
    lives = {"stays": 2, "anew": 7, "unknown": 5, "later": 0, "new": 8}
    changes = topics.found((Life("x", name, at), birth(name, at) if at else None) for name, at in lives.items())
    assert list(changes) == [
        TopicChange(False, "anew"),
        TopicChange(True, "anew", "7"),
        TopicChange(True, "new", "8"),
    ]
    assert len(topics) == 5
    assert set(topics.missing) == {"gone"}
    assert list(topics.give_up()) == [TopicChange(False, "gone")]
    assert not topics.missing


def test_a_missing_topic_that_comes_back_is_announced_if_it_has_another_life() -> None:
    """Its broker may have registered late, or it was born again."""
    topics = LiteTopics({"same": "3", "unknown": None, "anew": "3", "silent": "3"})
    assert list(topics.found(())) == []
    assert list(topics.born("x", birth("same", 3))) == []
    assert list(topics.born("x", birth("unknown", 4))) == []
    assert list(topics.born("x", birth("anew", 5))) == [TopicChange(False, "anew"), TopicChange(True, "anew", "5")]
    assert list(topics.back(Life("x", "silent", 0), None)) == []
    assert not topics.missing
    assert list(topics.ended(Life("x", "same", 3))) == [TopicChange(False, "same")]


def test_a_life_is_due_at_its_time_and_then_at_growing_distances() -> None:
    """A time that becomes shorter counts at once."""
    topics, life = LiteTopics({}), Life("x", "a", 1)
    list(topics.born("x", birth("a", 1)))
    topics.expect(life, now_ms=0, last_ms=0, lasts_ms=60_000)
    assert topics.due("x", 59_999, 60_000) == topics.overdue("x") == []
    assert topics.due("x", 59_999, inf) == []
    assert topics.due("x", 60_000, 60_000) == [life]
    topics.expect(life, now_ms=60_000, last_ms=0, lasts_ms=60_000)
    assert topics.due("x", 60_999, 60_000) == []
    assert topics.due("x", 61_000, 60_000) == [life]
    topics.expect(life, now_ms=140_000, last_ms=0, lasts_ms=60_000)
    assert topics.due("x", 149_999, 60_000) == []
    assert topics.overdue("y") == topics.due("y", 150_000, 60_000) == []
    assert topics.overdue("x") == [life]
    topics.expect(life, now_ms=140_000, last_ms=0, lasts_ms=60_000)
    list(topics.ended(life))
    assert topics.due("x", 150_000, 60_000) == []

    list(topics.born("x", birth("a", 1)))
    topics.expect(life, now_ms=0, last_ms=0, lasts_ms=inf)
    assert topics.due("x", 60_000, inf) == []
    assert topics.due("x", 60_000, 60_000) == [life]
