"""Offsets of a consumer by pattern, beside a group that answers as Kafka does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from streaming.client.offsets import KafkaOffsets
from streaming.errors import NotCommitted
from streaming.kafka.reader import Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer

PART, OTHER = Partition("gone", 0), Partition("kept", 0)


class Group:
    """A consumer group of which some topics are deleted; if all are, librdkafka raises instead of answering."""

    def __init__(self, code: int, *gone: str) -> None:
        self.committed_offsets: list[tuple[str, int]] = []
        self._error = KafkaError(code)
        self._gone = gone

    def incremental_assign(self, _: Sequence[TopicPartition]) -> None:
        """Take the partitions."""

    def incremental_unassign(self, _: Sequence[TopicPartition]) -> None:
        """Drop the partitions."""

    def committed(self, parts: Sequence[TopicPartition], **_: Any) -> Sequence[TopicPartition]:
        """Know of no offset."""
        return parts

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> Sequence[TopicPartition]:
        """Take what is of a topic that exists."""
        kept = [part for part in offsets if part.topic not in self._gone]
        self.committed_offsets += [(part.topic, part.offset) for part in kept]
        if not kept and not asynchronous:
            raise KafkaException(self._error)
        return kept


def offsets(code: int, *gone: str) -> tuple[KafkaOffsets, Group]:
    """Offsets of a client that has processed a record of two topics."""
    group = Group(code, *gone)
    found = KafkaOffsets(cast("Consumer", group), cast("Any", None), "group", "client")
    found.begin({PART: 0, OTHER: 0})
    group.committed_offsets.clear()
    for part in (PART, OTHER):
        found.returned(part, 4)
    found.all_processed()
    return found, group


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID])
def test_offsets_of_deleted_topics_are_dropped(code: int) -> None:
    """When they are committed, and when their partitions are given up. Offsets of other topics are committed."""
    found, _ = offsets(code, "gone", "kept")
    found.commit(wait=True)
    found.returned(PART, 5)
    found.end({PART})
    assert found.parts == {OTHER}
    found, group = offsets(code, "gone")
    found.end({PART, OTHER})
    assert group.committed_offsets == [("kept", 5)]


def test_any_other_refusal_is_an_error() -> None:
    found, _ = offsets(KafkaError.GROUP_AUTHORIZATION_FAILED, "gone", "kept")
    with pytest.raises(NotCommitted, match="group"):
        found.commit(wait=True)


def test_offsets_are_committed_again_so_that_kafka_does_not_forget_them() -> None:
    found, group = offsets(KafkaError.UNKNOWN_TOPIC_OR_PART)
    found.commit(wait=True)
    group.committed_offsets.clear()
    found.keep()
    assert sorted(group.committed_offsets) == [("gone", 5), ("kept", 5)]


@pytest.mark.parametrize("lenient", [True, False])
def test_a_partition_can_be_given_up_while_kafka_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, *, lenient: bool
) -> None:
    found, group = offsets(KafkaError.UNKNOWN_TOPIC_OR_PART)

    def committed(*_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(group, "committed", committed)
    if lenient:
        found.end({PART}, lenient=True)
    else:
        with pytest.raises(NotCommitted, match="Timed out"):
            found.end({PART})
    assert found.parts == {OTHER}
