"""Conversion of CloudEvents, held against the official SDK."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from streaming.adapters.cloudevents import to_event, to_input
from streaming.errors import NotConverted, Rejected
from streaming.records.parsing import parse_group_event
from tests.support.update_records import key, value

INPUTS = [
    ("topic-event", "topic_events", "orders", {"event": "CREATED", "parentTopic": "orders", "liteTopic": "eu__ü"}),
    ("topic-event", "topic_events", "orders", {"event": "DELETED", "lmqName": "%LMQ%$orders$x"}),
    ("topic-event", "topic_events", "", {"event": "DELETED", "lmqName": "nonsense"}),
    ("subscription-event", "subscription_events", "g", {"action": "COMPLETE_REMOVE", "clientId": "c", "group": "g"}),
    ("subscription-event", "subscription_events", "g", {"subscriptionSet": [{"group": "g", "topic": "orders"}]}),
    ("group-event", "group_events", "g", {"group": "g", "attributes": {}, "parentTopic": "orders"}),
]


def message(kind: str, data: Any, *, structured: bool) -> KafkaMessage:
    """An event as others write it."""
    attributes = {"type": f"reexpand.{kind}", "source": "/test", "datacontenttype": "application/json"}
    return (to_structured if structured else to_binary)(CloudEvent(attributes, data), JSONFormat())


@pytest.mark.parametrize("structured", [True, False])
@pytest.mark.parametrize(("kind", "setting", "input_key", "data"), INPUTS)
def test_inputs_come_out_of_events(
    kind: str, setting: str, input_key: str, data: dict[str, Any], *, structured: bool
) -> None:
    event = message(kind, data, structured=structured)
    found = to_input(event.headers, event.value)
    assert (found.setting, found.key, json.loads(found.value)) == (setting, input_key, data)


@pytest.mark.parametrize(
    "content_type",
    ["application/cloudevents+json; charset=UTF-8", "Application/CloudEvents+JSON", "application/cloudevents"],
)
def test_a_whole_event_may_have_the_headers_of_binary_mode(content_type: str) -> None:
    """The content type decides about the mode."""
    data = {"group": "g", "attributes": {"a": "b"}}
    whole, headers = (message("group-event", data, structured=structured) for structured in (True, False))
    found = to_input({**headers.headers, "content-type": content_type.encode()}, whole.value)
    assert (found.setting, found.key, json.loads(found.value)) == ("group_events", "g", data)


@pytest.mark.parametrize("content_type", [b"application/json", b"text/json; charset=utf-8", None])
def test_any_other_content_type_is_binary_mode(content_type: bytes | None) -> None:
    """The value stays as it is: a field that stands twice is still there, for the job to refuse."""
    twice = b'{"group": "a",  "group":"b"}'
    made = message("group-event", {"group": "g"}, structured=False)
    headers = {name: value for name, value in made.headers.items() if name != "content-type"}
    found = to_input(headers if content_type is None else {**headers, "content-type": content_type}, twice)
    assert (found.key, found.value) == ("b", twice)


@pytest.mark.parametrize("structured", [True, False])
def test_a_name_that_is_no_text_is_left_to_the_job(*, structured: bool) -> None:
    """JSON may escape half a character, which no key can hold."""
    event = message("group-event", {"group": "\ud800", "attributes": {}}, structured=structured)
    found = to_input(event.headers, event.value)
    assert found.key == "?"
    with pytest.raises(Rejected):
        parse_group_event(found.value)


def test_data_may_be_base64() -> None:
    whole = {"specversion": "1.0", "type": "reexpand.group-event", "source": "/t", "id": "1"}
    data = b'{"group": "g",  "attributes": {}}'
    value = json.dumps({**whole, "data_base64": b64encode(data).decode()}).encode()
    assert to_input({"content-type": b"application/cloudevents+json"}, value) == ("group_events", "g", data)


def test_headers_of_others_may_hold_any_bytes() -> None:
    made = message("group-event", {"group": "g"}, structured=False)
    assert to_input({**made.headers, "trace": b"\xff"}, made.value).key == "g"


def test_a_structured_event_does_not_grow() -> None:
    made = message("group-event", {"group": "ü" * 1_000, "attributes": {}}, structured=True)
    assert len(to_input(made.headers, made.value).value) < 2_100


BINARY = message("group-event", {}, structured=False).headers
FORMATS = ("application/cloudevents-batch+json", "application/cloudevents+avro")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        *(
            (
                KafkaMessage({**BINARY, "content-type": each.encode()}, None, b"[]"),
                r"expected application/cloudevents\+json",
            )
            for each in FORMATS
        ),
        (KafkaMessage({}, None, b"no JSON"), "invalid CloudEvent"),
        (KafkaMessage({}, None, b'{"specversion": "1.0", "type": "reexpand.topic-event"}'), "invalid CloudEvent"),
        (KafkaMessage({}, None, b"[]"), "invalid CloudEvent"),
        (KafkaMessage({**BINARY, "ce_time": b"9999-12-31T24:00:00Z"}, None, b"{}"), "invalid CloudEvent"),
        (KafkaMessage({}, None, b"[" * 5_000 + b"]" * 5_000), "its JSON nests deeper than 32 levels"),
        (KafkaMessage({"ce_specversion": b"1.0"}, None, b"[" * 5_000 + b"]" * 5_000), "its JSON nests deeper"),
        (
            message("update", {}, structured=True),
            "its type is 'reexpand.update'; expected reexpand.topic-event",
        ),
        (message("topic-event", ["x"], structured=True), "its data is not a JSON object"),
        (message("topic-event", "text", structured=False), "its data is no"),
    ],
)
def test_what_is_no_input_is_told(event: KafkaMessage, said: str) -> None:
    with pytest.raises(NotConverted, match=said):
        to_input(event.headers, event.value)


@pytest.mark.parametrize("structured", [True, False])
def test_updates_and_dead_letters_become_events_that_the_sdk_reads(*, structured: bool) -> None:
    record = value(op="ADD", liteTopic="eu__1", source={"topic": "lite-topic-events", "timestamp": 1_760_000_000_000})
    made = to_event(key("eu__1"), record, is_update=True, structured=structured)
    event = from_kafka(KafkaMessage(made.headers, None, made.value), JSONFormat())
    assert event.get_id() == json.loads(record)["eventId"]
    assert (event.get_type(), event.get_source()) == ("reexpand.update", "/reexpand/lite-topic-events")
    assert (event.get_subject(), event.get_dataschema()) == ("eu__1", "urn:reexpand:update")
    assert event.get_time().isoformat() == "2025-10-09T08:53:20+00:00"  # type: ignore[union-attr]
    data: Any = event.get_data()
    assert data == json.loads(record)
    assert made.key == key("eu__1")
    assert structured or made.value == record


def test_each_dead_letter_of_an_entry_has_an_id_of_its_own() -> None:
    """Several shards may report one entry; a repetition has the same id."""

    def letter(message: str) -> KafkaMessage:
        record = {"reason": "quota-capped", "message": message, "source": {"topic": "t", "timestamp": 0}}
        return to_event(b'["t",0,1,0]', json.dumps(record).encode(), is_update=False)

    one, other = letter("on shard 1"), letter("on shard 2")
    assert (one.headers["ce_type"], one.headers["ce_subject"]) == (b"reexpand.dead-letter", b"quota-capped")
    assert one.headers["ce_id"].startswith(b'["t",0,1,0]-')
    assert one.headers["ce_id"] != other.headers["ce_id"]
    assert one.headers["ce_id"] == letter("on shard 1").headers["ce_id"]
