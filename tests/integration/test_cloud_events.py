"""`reexpand cloudevents` on a real broker: exactly once, with restarts in between."""

import json
from typing import Any
from uuid import uuid4

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka import Producer

from streaming.adapters.cloudevents import BridgeOptions, accept, emit
from streaming.errors import BridgeFailed
from streaming.kafka.topics import TopicSpec, create_topics
from tests.support.running_job import Streams
from tests.support.update_records import add, gone


def test_events_become_inputs_and_outputs_become_events(streams: Streams, caplog: pytest.LogCaptureFixture) -> None:
    """In either mode; what is none is passed over; a second run converts only what is new."""
    settings, events = streams.settings, f"{streams.prefix}-events"
    changes = f"{streams.prefix}-changes"
    create_topics(streams.bootstrap_servers, [TopicSpec(events, 2), TopicSpec(changes)])
    producer = Producer({"bootstrap.servers": streams.bootstrap_servers})

    def send(data: dict[str, Any], mode: Any) -> None:
        attributes = {"type": "reexpand.topic-event", "source": "/test", "datacontenttype": "application/json"}
        event = mode(CloudEvent(attributes, data), JSONFormat())
        producer.produce(events, event.value, headers=list(event.headers.items()))
        assert producer.flush(60) == 0

    created = [{"event": "CREATED", "parentTopic": "orders", "liteTopic": f"t{number}"} for number in range(3)]
    send(created[0], to_structured)
    send(created[1], to_binary)
    producer.produce(events, b"nonsense")
    options = BridgeOptions(events, once=True)
    assert accept(settings, options) == 2
    assert "nonsense" not in caplog.text
    assert f"{events}[" in caplog.text
    send(created[2], to_binary)
    assert accept(settings, options) == 1
    found = streams.read(settings.topic_events)
    assert sorted(json.loads(message.value() or b"")["liteTopic"] for message in found) == ["t0", "t1", "t2"]
    assert {message.key() for message in found} == {b"orders"}

    update = add("t1", changes={"liteTopic": "t1", "source": {"topic": "x", "timestamp": 0}})
    streams.write(settings.updates, update, gone("t1"))
    for written in (2, 0):
        assert emit(settings, BridgeOptions(changes, once=True)) == written
    first, last = streams.read(changes)
    headers: Any = first.headers()
    event = from_kafka(KafkaMessage(dict(headers), None, first.value() or b""), JSONFormat())
    assert (event.get_type(), event.get_subject()) == ("reexpand.update", "t1")
    assert first.value() == update[1]
    assert (last.key(), last.value()) == (update[0], None)


def test_a_topic_that_is_not_there_is_said(streams: Streams) -> None:
    with pytest.raises(BridgeFailed, match="does not exist"):
        emit(streams.settings, BridgeOptions(uuid4().hex, once=True))


@pytest.mark.parametrize("size", [1_010_000, 1_048_480])
def test_a_record_that_an_input_cannot_take_is_passed_over(
    streams: Streams, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    """Others follow it. The limit of librdkafka is lower than that of Java's producers and of the broker."""
    events = f"{streams.prefix}-events"
    create_topics(streams.bootstrap_servers, [TopicSpec(events, config={"max.message.bytes": "3000000"})])
    producer = Producer({"bootstrap.servers": streams.bootstrap_servers, "message.max.bytes": 3_000_000})
    attributes = {"type": "reexpand.topic-event", "source": "/test", "datacontenttype": "application/json"}
    for number, pad in enumerate((0, 2_000_000, size, 0)):
        data = {"event": "CREATED", "parentTopic": "orders", "liteTopic": f"t{number}", "pad": "x" * pad}
        event = to_binary(CloudEvent(attributes, data), JSONFormat())
        producer.produce(events, event.value, headers=list(event.headers.items()))
    assert producer.flush(60) == 0
    options = BridgeOptions(events, once=True)
    fits = size < 1_040_000
    assert accept(streams.settings, options) == 2 + fits
    assert f"{events}[0]@1: it is too large" in caplog.text
    assert accept(streams.settings, options) == 0
