"""Manually sent events, first checked by the job's parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from confluent_kafka import KafkaError, Message, Producer

from streaming.errors import NotWritten, QuestionRefused
from streaming.inspect.reading import bounds_of, read, text_of
from streaming.kafka.clients import create, reason, writing
from streaming.kafka.options import for_librdkafka
from streaming.kafka.permissions import writable
from streaming.records.model import Stream
from streaming.records.parsing import parse_topic_event
from streaming.worker.inquiry.model import EventPlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.config import Settings

_KAFKA_SECONDS: Final = 20.0


def send(settings: Settings, stream: Stream, record: Mapping[str, Any] | bytes) -> EventPlace:
    """Write an event, and return its place.

    Args:
        settings: addresses, topics, client options, and bounds of records.
        stream: input stream of the event.
        record: the event, as the bytes of its value or as a Python object.

    Raises:
        QuestionRefused: the event, or an entry of it, would become a dead letter.
        NotWritten: Kafka rejected the record, or does not answer.
    """
    text = record if isinstance(record, bytes) else text_of(record)
    _, problems, ignored = read(stream, text, bounds_of(settings))
    reasons = [*(f"{each.message} ({each.reason})" for each in problems), *ignored]
    if reasons:
        raise QuestionRefused("nothing was sent: " + "; ".join(reasons))
    topics = {
        Stream.TOPICS: settings.topic_events,
        Stream.SUBSCRIPTIONS: settings.subscription_events,
        Stream.GROUPS: settings.group_events,
    }
    topic, taken = topics[stream], _Taken()
    given: dict[str, Any] = {
        "log_level": 0,
        **for_librdkafka(settings),
        "bootstrap.servers": settings.bootstrap_servers,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",  # as Java's clients: all producers send a key to the same partition
        "linger.ms": 0,
        "error_cb": taken.remember,
    }
    producer = create(Producer, given)
    with writing(producer, topic, lambda why: _not_written(topic, settings, why)):
        producer.produce(topic, text, _key(stream, orjson.loads(text)), on_delivery=taken.note)
        producer.flush(_KAFKA_SECONDS)
    if taken.place is None:
        why = taken.trouble if taken.error is None else reason(taken.error, writable(topic))
        raise _not_written(topic, settings, why or "no broker answers")
    return taken.place


class _Taken:
    """Kafka's response to a record."""

    def __init__(self) -> None:
        self.place: EventPlace | None = None
        self.error: KafkaError | None = None
        self.trouble = ""

    def note(self, error: KafkaError | None, message: Message) -> None:
        """Store the place of the record."""
        self.error = error
        if error is None:
            self.place = EventPlace(message.topic() or "", message.partition() or 0, message.offset() or 0)

    def remember(self, error: KafkaError) -> None:
        """Store an error of the client."""
        self.trouble = error.str()


def _key(stream: Stream, record: Mapping[str, Any]) -> bytes:
    """Return the key, which preserves the order: the parent of a topic, or the group."""
    if stream is Stream.TOPICS:
        return parse_topic_event(orjson.dumps(record)).parent.encode()
    entries = record.get("subscriptionSet")
    return str((entries[0] if isinstance(entries, list) and entries else record)["group"]).encode()


def _not_written(topic: str, settings: Settings, why: str) -> NotWritten:
    return NotWritten(f"the topic {topic} at {settings.bootstrap_servers} did not take the record: {why.rstrip('.')}.")
