"""The schemas agree with the job's parsers, with the records that it writes, and with records of earlier releases."""

from __future__ import annotations

import io
import json
import lzma
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from streaming.cli import main
from streaming.errors import Rejected
from streaming.records import schemas
from streaming.records.json_fields import OWN_FIELDS
from streaming.records.model import BIND_TOPIC, QUOTA, Reason, Source
from streaming.records.parsing import PARSERS, parse_clock, parse_group_event, parse_subscription, parse_topic_event
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.records.writing import UpdateWriter, dead_letter
from streaming.worker.signature import own_fields
from tests.support.mutations import VICTIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.records.model import Stream
    from tests.support.events import Event

RECORDED = sorted((Path(__file__).parents[2] / "fixtures").glob("checkpoint-format-*"))
INPUTS = {
    "groups": ("group-event", parse_group_event),
    "subscriptions": ("subscription-event", parse_subscription),
    "topics": ("topic-event", parse_topic_event),
    "clock": ("clock-record", parse_clock),
}
TOPICS = {
    "topic_events": "topics",
    "subscription_events": "subscriptions",
    "group_events": "groups",
    "clock": "clock",
}
SOURCE = Source("lite-topic-events", 0, 12, 0, 1_760_000_000_000)


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(schemas.content(name)))


def problems(name: str, value: Any) -> list[str]:
    return [error.message for error in validator(name).iter_errors(value)]


def is_accepted(parse: Callable[[bytes], Any], value: Any) -> bool:
    """Whether the job takes it from anybody: each request of a set, and nothing with fields for the job alone."""
    if isinstance(value, dict) and parse is parse_subscription and "subscriptionSet" in value:
        requests = value["subscriptionSet"]
        return (
            isinstance(requests, list)
            and bool(requests)
            and all(
                isinstance(each, dict) and "subscriptionSet" not in each and is_accepted(parse, each)
                for each in requests
            )
        )
    try:
        parse(json.dumps(value).encode())
        return not any(own_fields(stream, value) for stream, parser in PARSERS.items() if parser is parse)
    except Rejected:
        return False


@pytest.mark.parametrize("name", schemas.names("avro"))
def test_each_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(json.loads(schemas.content(name)))
    fastavro.parse_schema(json.loads(schemas.content(name, "avro")))


ODD = st.sampled_from(
    [
        *(None, True, False, 0, 7, -1, 1 << 63, 1.5, [], ["a"], [1], {}, {"a": "b"}),
        *("", " ", "x", "wamp", "prefix", "CREATED"),
    ]
)
FIELDS = [
    *("event", "parentTopic", "liteTopic", "lmqName", "timestamp", "tags", "properties", "ttlMs"),
    *(
        "action",
        "clientId",
        "group",
        "topic",
        "liteTopicSet",
        "version",
        "dialect",
        "policy",
        "delivery",
        "offsetOption",
    ),
    *("attributes", "tick", "alarm", "wake", "shard", "subscriptionSet", "further"),
    *sorted(frozenset[str]().union(*OWN_FIELDS.values())),
]


USERS = [(stream, value) for stream, value in VICTIMS if "inquiry" not in value and not own_fields(stream, value)]
"""Valid records without fields for the job alone."""


@given(st.sampled_from(USERS), st.lists(st.tuples(st.sampled_from(FIELDS), ODD | st.just(...)), max_size=3))
def test_a_schema_accepts_what_the_job_accepts(victim: tuple[Stream, Event], changes: list[tuple[str, Any]]) -> None:
    """Valid records with fields replaced, added or removed."""
    stream, value = deepcopy(victim)
    target = value["subscriptionSet"][0] if "subscriptionSet" in value else value
    for field, changed in changes:
        if changed is ...:
            target.pop(field, None)
        else:
            target[field] = changed
    assume(not (target.get("lmqName") and {"parentTopic", "liteTopic"} & target.keys()))  # they may contradict
    assume(sum(target.get(kind) is not None for kind in ("tick", "alarm", "wake")) < 2)  # the first one counts
    assume(stream != "clock" or target.get("tick") is None or len(target) == 1)  # it has no other field
    assume(stream != "subscriptions" or "subscriptionSet" not in target)
    assume(stream != "groups" or not target.get("attributes") or not {"parentTopic", "boundTo"} & target.keys())
    name, parse = INPUTS[stream]
    found = problems(name, value)
    assert (not found) == is_accepted(parse, value), (found, value)


@pytest.mark.parametrize("value", [None, True, False, 0, [], {}, "x"])
@pytest.mark.parametrize(("stream", "field"), [(stream, each) for stream in OWN_FIELDS for each in OWN_FIELDS[stream]])
def test_a_schema_refuses_fields_for_the_job_alone(stream: Stream, field: str, value: Any) -> None:
    """Unless they set nothing."""
    name, parse = INPUTS[stream]
    for of, event in USERS:
        if of == stream and "subscriptionSet" not in event:
            changed = {**event, field: value}
            assert (not problems(name, changed)) == is_accepted(parse, changed), changed


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {BIND_TOPIC: "orders"},
        {BIND_TOPIC: "orders", QUOTA: 5, "lite.sub.wildcard": True, "foreign": 1.5},
        {BIND_TOPIC: "orders", "lite.sub.model": "eXclusive", QUOTA: "-1"},
        {QUOTA: "5"},
        {BIND_TOPIC: " "},
        {BIND_TOPIC: 5},
        {BIND_TOPIC: "orders", QUOTA: "many"},
        {BIND_TOPIC: "orders", QUOTA: -2},
        {BIND_TOPIC: "orders", "lite.sub.model": "Lonely"},
        {BIND_TOPIC: "orders", "foreign": None},
    ],
)
def test_the_schema_accepts_the_attributes_that_the_job_accepts(attributes: dict[str, Any]) -> None:
    value = {"group": "g", "attributes": attributes}
    assert (not problems("group-event", value)) == is_accepted(parse_group_event, value)


def written() -> Iterator[tuple[str, bytes | None]]:
    """Records as the job writes them, each with the name of its schema."""
    writer = UpdateWriter("orders")
    for op in Op:
        for cause in Cause:
            for part in ("", "share:s/eu/#", "wamp:prefix:eu"):
                subscriber = SubscriberKey("billing", "c1", part)
                option = {"type": "TAIL_N", "value": 3} if op is Op.ADD else None
                update = Update(
                    op, subscriber, "eu__1", ("eu__*",), cause, None, SOURCE, option, op is Op.REMOVE, b"\x00\xff"
                )
                key, value = writer.record(update)
                yield from (("update-key", key), ("update", value))
    for reason in Reason:
        for original in (b"{", None, b"\xff", b"x" * 100_000):
            key, value = dead_letter(SOURCE, reason, "a sentence", original)
            yield from (("dead-letter-key", key), ("dead-letter", value))


def test_what_the_job_writes_is_valid() -> None:
    for name, value in written():
        assert problems(name, json.loads(value or b"")) == []


def test_the_repair_of_a_row_without_a_record_is_valid() -> None:
    source = Source("lite-subscription-updates", -1, -1, 0, 0)  # as `verify --repair` writes it
    update = Update(Op.ADD, SubscriberKey("billing", "c1"), "eu", ("eu",), Cause.REPAIRED, None, source)
    assert problems("update", json.loads(UpdateWriter("orders").record(update).value or b"")) == []


@pytest.mark.parametrize("topic", [*TOPICS, "updates", "dead_letters"])
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_records_of_earlier_releases_are_valid(folder: Path, topic: str) -> None:
    """Of the inputs, those and only those that the job of today takes; of large topics every twentieth record."""
    with lzma.open(folder / f"{topic}.jsonl.xz") as lines:
        records = [json.loads(line) for line in lines]
    records = records[:: 20 if len(records) > 1_000 else 1]
    assert records
    seen = set()
    for record in records:
        if topic in TOPICS:
            try:
                value = json.loads(record["value"])
            except ValueError:
                continue
            name, parse = INPUTS[TOPICS[topic]]
            accepted = is_accepted(parse, value)
            seen.add(accepted)
            assert (not problems(name, value)) == accepted, value
        elif record["value"] is not None:
            name = topic.removesuffix("s").replace("_", "-")
            assert problems(name, json.loads(record["value"])) == []
            assert problems(f"{name}-key", json.loads(record["key"])) == []
            seen.add(True)
    assert True in seen


def as_avro(name: str, value: Any) -> Any:
    schema = fastavro.parse_schema(json.loads(schemas.content(name, "avro")))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    stream.seek(0)
    return fastavro.schemaless_reader(stream, schema, None)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def test_avro_keeps_what_the_job_reads_and_writes() -> None:
    values = [(name, json.loads(value or b"")) for name, value in written()]
    values += [(INPUTS[stream][0], value) for stream, value in USERS]
    values.append(("group-event", {"group": "g", "attributes": {BIND_TOPIC: "orders", QUOTA: 5.0, "x": True}}))
    for name, value in values:
        assert without_nulls(as_avro(name, value)) == without_nulls(value)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "$ref":
                yield each
            else:
                yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def test_the_asyncapi_document_is_closed_and_names_all_records() -> None:
    """Each reference leads to a part of it; its payloads accept what the schemas of their names accept."""
    document = json.loads(schemas.content(schemas.ASYNCAPI))
    for reference in set(_references(document)):
        part = document
        for step in reference.removeprefix("#/").split("/"):
            part = part[step]
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert addresses == {
        *("lite-topic-events", "lite-subscription-events", "lite-group-events"),
        *("lite-clock", "lite-subscription-updates", "lite-dead-letters"),
    }
    assert len(document["operations"]) == len(addresses)
    value: Any
    message = {"$ref": "#/components/schemas/subscription-event", "components": document["components"]}
    for value in ({"action": "COMPLETE_REMOVE", "clientId": "c", "group": "g"}, {"subscriptionSet": []}):
        assert Draft202012Validator(message).is_valid(value) == (not problems("subscription-event", value))


def test_the_command_prints_the_schemas() -> None:
    def output(*words: str) -> str:
        result = CliRunner().invoke(main, ["schema", *words])
        assert result.exit_code == 0
        return result.output

    assert json.loads(output("update"))["$id"] == "urn:reexpand:update"
    assert json.loads(output("--avro", "update"))["name"] == "Update"
    assert json.loads(output("asyncapi"))["asyncapi"] == "3.0.0"
    assert list(json.loads(output("--json"))) == schemas.names()
    assert [line.split()[0] for line in output().splitlines()] == schemas.names()
    for words in (["none"], ["--avro", "asyncapi"]):
        refused = CliRunner().invoke(main, ["schema", *words])
        assert refused.exit_code == 2
        assert "`reexpand schema` lists all" in refused.stderr
    assert "leave NAME out" in CliRunner().invoke(main, ["schema", "--folder", "x", "update"]).stderr


def test_the_command_writes_them_as_files(tmp_path: Path) -> None:
    """The files validate records without this package."""
    folder = tmp_path / "new" / "schemas"
    result = CliRunner().invoke(main, ["schema", "--folder", str(folder)])
    assert result.exit_code == 0
    assert result.output.splitlines() == [str(folder / name) for name in schemas.files()]
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == schemas.files()
    assert len(schemas.files()) == 2 * len(schemas.names("avro")) + 1
    request = {"action": "COMPLETE_ADD", "clientId": "c", "group": "g", "topic": "p", "liteTopicSet": ["a__*"]}
    written = Draft202012Validator(json.loads((folder / "subscription-event.json").read_bytes()))
    assert written.is_valid(request)
    assert not written.is_valid({**request, "clientId": 1})
    fastavro.parse_schema(json.loads((folder / "update.avsc").read_bytes()))
