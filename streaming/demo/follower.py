"""Reader of the job's output: updates, dead letters, and the relation as the sum of all updates."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from streaming.client import Relation
from streaming.errors import ReexpandError
from streaming.oracle import Effective
from streaming.updates.model import Cause, Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from streaming.config import Settings

_TIMEOUT_SECONDS = 15.0
_LAZY = frozenset({Cause.TOPIC_CREATED, Cause.TOPIC_DELETED, Cause.TOPIC_EXPIRED, Cause.QUOTA_FREED})


class Coordinates(NamedTuple):
    """Place of a record in Kafka."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ReceivedUpdate:
    """One update, as read from Kafka.

    Attributes:
        sent_ms: time of the causing event's record, in milliseconds since the epoch.
        written_ms: time of the update's own record, likewise.
    """

    op: Op
    row: Effective
    patterns: tuple[str, ...]
    cause: Cause
    sent_ms: int
    written_ms: int

    @property
    def path(self) -> str:
        """`lazy` if a topic came or went and met stored patterns; `eager` if a subscription changed and met topics."""
        return "lazy" if self.cause in _LAZY else "eager"

    @property
    def latency_ms(self) -> int:
        """Milliseconds from the causing event's record to the update's."""
        return self.written_ms - self.sent_ms


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter, as read from Kafka."""

    reason: str
    message: str
    source: Coordinates
    written_ms: int


def effective_rows(relation: Relation) -> set[Effective]:
    """Return the rows of a relation in the oracle's form."""
    return {Effective(row.parent, row.group, row.client_id, row.lite_topic, row.part or "") for row in relation.rows()}


def parse_update(value: bytes, written_ms: int) -> ReceivedUpdate:
    """Parse the value of an update."""
    record: dict[str, Any] = orjson.loads(value)
    return ReceivedUpdate(
        Op(record["op"]),
        Effective(record["parentTopic"], record["group"], record["clientId"], record["liteTopic"]),
        tuple(record["patterns"]),
        Cause(record["cause"]),
        record["source"]["timestamp"],
        written_ms,
    )


def parse_dead_letter(value: bytes, written_ms: int) -> DeadLetter:
    """Parse the value of a dead letter."""
    record: dict[str, Any] = orjson.loads(value)
    source = record["source"]
    coordinates = Coordinates(source["topic"], source["partition"], source["offset"])
    return DeadLetter(record["reason"], record["message"], coordinates, written_ms)


class Follower:
    """Reader of the output topics from their beginning, with the fold of the updates read so far."""

    def __init__(self, settings: Settings) -> None:
        self._topics = settings.updates, settings.dead_letters
        self._relation = Relation()
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.bootstrap_servers,
                "group.id": "reexpand-demo",  # required, but unused: partitions are assigned by hand
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        cluster = self._consumer.list_topics(timeout=_TIMEOUT_SECONDS)
        self._partitions = [
            TopicPartition(topic, number, OFFSET_BEGINNING)
            for topic in self._topics
            for number in cluster.topics[topic].partitions
        ]
        self._consumer.assign(self._partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def relation(self) -> set[Effective]:
        """Relation after the updates read so far."""
        return effective_rows(self._relation)

    def poll(self, seconds: float) -> Iterator[ReceivedUpdate | DeadLetter]:
        """Yield the records at hand, after at most `seconds` of waiting for the first."""
        message = self._consumer.poll(seconds)
        while message is not None:
            if message.error() is None:
                yield from self._read(message)
            message = self._consumer.poll(0)

    def read_to_end(self) -> None:
        """Read every record from before this call.

        Raises:
            ReexpandError: the broker does not return the records in time.
        """
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        ends = [
            self._consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_SECONDS)[1]
            for partition in self._partitions
        ]
        while any(
            max(position.offset, 0) < end
            for position, end in zip(self._consumer.position(self._partitions), ends, strict=True)
        ):
            if time.monotonic() > deadline:
                raise ReexpandError(f"The updates cannot be read back within {_TIMEOUT_SECONDS:.0f} s.")
            for _ in self.poll(0.1):
                pass

    def _read(self, message: Message) -> Iterator[ReceivedUpdate | DeadLetter]:
        value, written_ms = message.value(), message.timestamp()[1]
        if message.topic() == self._topics[0]:
            self._relation.apply(message.key(), value)
            if value is not None:
                yield parse_update(value, written_ms)
        elif value is not None:
            yield parse_dead_letter(value, written_ms)
