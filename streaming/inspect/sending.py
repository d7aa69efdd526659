"""Manually sent events, first checked by the job's parsers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from streaming.errors import NotWritten, QuestionRefused
from streaming.inspect.planning import read, text_of
from streaming.kafka.options import for_librdkafka
from streaming.kafka.writer import Writer
from streaming.records.model import Stream
from streaming.records.parsing import parse_topic_event
from streaming.worker.bounds import bounds_of
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
    topic = {
        Stream.TOPICS: settings.topic_events,
        Stream.SUBSCRIPTIONS: settings.subscription_events,
        Stream.GROUPS: settings.group_events,
    }[stream]
    writer = Writer(settings.bootstrap_servers, for_librdkafka(settings), NotWritten, {"linger.ms": 0})
    writer.send(topic, text, _key(stream, orjson.loads(text)))
    [(partition, offset)] = writer.flush(_KAFKA_SECONDS)
    return EventPlace(*partition, offset)


def _key(stream: Stream, record: Mapping[str, Any]) -> bytes:
    """Return the key, which preserves the order: the parent of a topic, or the group."""
    if stream is Stream.TOPICS:
        return parse_topic_event(orjson.dumps(record)).parent.encode()
    entries = record.get("subscriptionSet")
    return str((entries[0] if isinstance(entries, list) and entries else record)["group"]).encode()
