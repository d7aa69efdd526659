"""Reader of the job's output: updates, dead letters, and the relation as the sum of all updates."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from streaming.client import Relation
from streaming.errors import ReexpandError
from streaming.kafka.clients import PARTITION_END
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
        seen_ms: time when it was read, likewise; an update is there to be read when its transaction is committed.
    """

    op: Op
    row: Effective
    patterns: tuple[str, ...]
    cause: Cause
    sent_ms: int
    seen_ms: int

    @property
    def path(self) -> str:
        """`lazy` if a topic came or went and met stored patterns; `eager` if a subscription changed and met topics."""
        return "lazy" if self.cause in _LAZY else "eager"

    @property
    def latency_ms(self) -> int:
        """Milliseconds from the causing event's record to the reading of the update."""
        return self.seen_ms - self.sent_ms


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter, as read from Kafka."""

    reason: str
    message: str
    source: Coordinates
    seen_ms: int


def effective_rows(relation: Relation) -> set[Effective]:
    """Return the rows of a relation in the oracle's form."""
    return {Effective(row.parent, row.group, row.client_id, row.lite_topic, row.part or "") for row in relation.rows()}


def parse_update(value: bytes, seen_ms: int) -> ReceivedUpdate:
    """Parse the value of an update."""
    record: dict[str, Any] = orjson.loads(value)
    return ReceivedUpdate(
        Op(record["op"]),
        Effective(record["parentTopic"], record["group"], record["clientId"], record["liteTopic"]),
        tuple(record["patterns"]),
        Cause(record["cause"]),
        record["source"]["timestamp"],
        seen_ms,
    )


def parse_dead_letter(value: bytes, seen_ms: int) -> DeadLetter:
    """Parse the value of a dead letter."""
    record: dict[str, Any] = orjson.loads(value)
    source = record["source"]
    coordinates = Coordinates(source["topic"], source["partition"], source["offset"])
    return DeadLetter(record["reason"], record["message"], coordinates, seen_ms)


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
                "isolation.level": "read_committed",
                "enable.partition.eof": True,  # the last offset may hold the marker of a transaction, not a record
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
        self._positions = {(part.topic, part.partition): 0 for part in self._partitions}

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
            error = message.error()
            if error is None or error.code() == PARTITION_END:
                reached = (message.offset() or 0) + (error is None)
                self._positions[message.topic() or "", message.partition() or 0] = reached
            if error is None:
                yield from self._read(message)
            message = self._consumer.poll(0)

    def read_to_end(self) -> None:
        """Read every record from before this call.

        Raises:
            ReexpandError: the broker does not return the records in time.
        """
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        ends = {
            (part.topic, part.partition): self._consumer.get_watermark_offsets(part, timeout=_TIMEOUT_SECONDS)[1]
            for part in self._partitions
        }
        while any(self._positions[place] < end for place, end in ends.items()):
            if time.monotonic() > deadline:
                raise ReexpandError(f"The updates cannot be read back within {_TIMEOUT_SECONDS:.0f} s.")
            for _ in self.poll(0.1):
                pass

    def _read(self, message: Message) -> Iterator[ReceivedUpdate | DeadLetter]:
        value, seen_ms = message.value(), int(time.time() * 1_000)
        if message.topic() == self._topics[0]:
            self._relation.apply(message.key(), value)
            if value is not None:
                yield parse_update(value, seen_ms)
        elif value is not None:
            yield parse_dead_letter(value, seen_ms)
