"""Repeated reading of Kafka topics up to their current ends."""

import time
from collections.abc import Sequence
from typing import Self
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

TIMEOUT_SECONDS = 120
_PASSING = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
"""Errors from which a client recovers: the first after the broker was silent, the last two after a topic is created."""


class Tail:
    """Reader of topics from their beginning, including new partitions."""

    def __init__(self, bootstrap_servers: str, topics: Sequence[str], *, committed: bool = True) -> None:
        self._topics = topics
        self._next: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": uuid4().hex,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> list[Message]:
        """Return the records since the last call, in order within each partition."""
        left = {place: end for place, end in self._ends().items() if end > self._next[place]}
        found: list[Message] = []
        while left:
            message = self._consumer.poll(TIMEOUT_SECONDS)
            assert message is not None, f"{', '.join(self._topics)}: no record for {TIMEOUT_SECONDS} s before the end"
            error = message.error()
            if error is not None and error.code() in _PASSING:
                continue
            place = str(message.topic()), message.partition() or 0
            if error is None:
                found.append(message)
                self._next[place] = (message.offset() or 0) + 1
            else:  # the last offset may hold the marker of a transaction, which is no message
                assert error.code() == KafkaError._PARTITION_EOF, error
                self._next[place] = max(self._next[place], message.offset() or 0)
            if place in left and self._next[place] >= left[place]:
                del left[place]
        return found

    def _ends(self) -> dict[tuple[str, int], int]:
        deadline = time.monotonic() + 2 * TIMEOUT_SECONDS  # a request may take half of it
        while True:
            try:
                bounds = self._bounds()
                break
            except KafkaException as error:  # the first call after a restart of the broker uses the old connection
                if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                    raise
        if bounds.keys() - self._next.keys():
            self._next = {place: self._next.get(place, low) for place, (low, _) in bounds.items()}
            self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._next.items()])
        return {place: high for place, (_, high) in bounds.items()}

    def _bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {
            (topic, number): self._consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=TIMEOUT_SECONDS
            )
            for topic in self._topics
            for number in self._consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
        }
