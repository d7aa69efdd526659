"""When a consumer acts upon changes: soon, together with those that follow, and not again and again."""

import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import call, create_autospec

import pytest

from streaming.client import Relation
from streaming.client.assignment import KafkaAssignment, KafkaTiming, _UnknownTopics
from streaming.client.offsets import CommittedOffset, KafkaOffsets
from streaming.client.requests import KafkaSubscription
from streaming.kafka.reader import Partition
from tests.support.update_records import add

TIMING = KafkaTiming(settle_seconds=1, unsettled_seconds=3, refresh_seconds=100)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test sets."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def assignment(clock: list[float]) -> KafkaAssignment:
    assert clock == [0.0]
    offsets: Any = create_autospec(KafkaOffsets, instance=True)
    offsets.describe.return_value = {}
    return KafkaAssignment(KafkaSubscription("kafka", "g", "c", ("a.*",)), offsets, TIMING)


def test_a_change_is_acted_upon_when_nothing_follows_it(assignment: KafkaAssignment, clock: list[float]) -> None:
    assert not assignment.is_due(0.5)
    assignment.has_changed("a.1")
    assert not assignment.is_due(0.5)
    clock[0] = 0.6
    assignment.has_changed("a.2")
    assert not assignment.is_due(1.2)
    assert assignment.is_due(1.6)
    assignment.follow(Relation(), 1.6)
    assert not assignment.is_due(10)


def test_changes_without_a_pause_are_acted_upon_too(assignment: KafkaAssignment, clock: list[float]) -> None:
    """Without any change, partitions are counted again from time to time."""
    assert not assignment.is_due(99)
    assert assignment.is_due(100)
    for step in range(30):
        clock[0] = step / 10
        assignment.has_changed(f"a.{step}")
    assert not assignment.is_due(2.9)
    clock[0] = 3.0
    assignment.has_changed("a.last")
    assert assignment.is_due(3.0)


def test_a_topic_that_kafka_does_not_know_is_looked_for_ever_more_rarely() -> None:
    unknown, now, looks = _UnknownTopics(), 0.0, []
    for _ in range(12):
        unknown.put("a.1", now)
        assert unknown.take(unknown.due_at - 0.001) == set()
        now = unknown.due_at
        looks.append(now)
        assert unknown.take(now) == {"a.1"}
    pauses = [round(behind - before, 3) for before, behind in zip([0.0, *looks], looks, strict=False)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * 5]
    unknown.forget("a.1")
    unknown.put("a.1", now)
    assert unknown.due_at == now + 0.05
    unknown.forget("a.1")
    assert unknown.take(now + 1_000) == set()
    assert unknown.due_at > now + 1_000


def test_a_deleted_topic_is_given_up_without_a_commit(clock: list[float]) -> None:
    """A topic that is created again under its name meanwhile keeps its own offsets, and is taken over anew."""
    offsets: Any = create_autospec(KafkaOffsets, instance=True)
    part = Partition("a.1", 0)
    offsets.describe.return_value = {"a.1": SimpleNamespace(error=None, partitions={0: None})}
    offsets.find.return_value = {part: CommittedOffset(7, None)}
    offsets.parts = set()
    assignment = KafkaAssignment(KafkaSubscription("kafka", "g", "c", ("a.*",)), offsets, TIMING)
    relation = Relation()
    relation.apply(*add("a.1", client="c", parent="kafka"))
    assignment.has_changed("a.1")
    assignment.follow(relation, clock[0])
    offsets.begin.assert_called_once_with({part: 7})
    offsets.parts, offsets.find.return_value = {part}, {part: CommittedOffset(0, None)}
    offsets.end.reset_mock()
    assignment.has_changed("a.1", deleted=True)
    assignment.has_changed("a.1")
    assignment.follow(relation, clock[0])
    assert offsets.end.call_args_list[0] == call({part}, commit=False)
    offsets.begin.assert_called_with({part: 0})
