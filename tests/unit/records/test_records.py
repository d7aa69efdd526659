"""Updates and dead letters as Kafka records."""

import base64
import json
from typing import Any

import pytest

from streaming.records.model import MAX_NAME_BYTES, Reason, Source
from streaming.records.record import KafkaRecord
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op, Update
from streaming.records.writing import (
    MAX_ORIGINAL_BYTES,
    MAX_PATTERN_BYTES,
    UpdateWriter,
    dead_letter,
    update_key,
)
from streaming.worker.rows import Output, OutputKind
from tests.support.states import TOMBSTONE, Written

KAFKA_LIMIT = 1_000_000
SOURCE = Source("topics", 2, 40, 1, 1_700)
BASE = Update(Op.ADD, SubscriberKey("g", "c"), "a__b", ("*__b", "a__b"), Cause.TOPIC_CREATED, 7, SOURCE)
AWKWARD = ["a", "b", "a,b", 'a","b', "é", "😀", "a\\", "\n", "\x01", "%LMQ%$a$b", "%s", "%b", "{}"]


def record_of(update: Update, parent: str = "p") -> KafkaRecord:
    return UpdateWriter(parent).record(update)


def value_of(record: KafkaRecord) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(record.value or b"")
    return value


def event_id(parent: str = "p", **changes: Any) -> str:
    identifier: str = value_of(record_of(BASE._replace(**changes), parent))["eventId"]
    return identifier


def test_an_add_is_one_record() -> None:
    record = record_of(BASE)
    assert json.loads(record.key) == ["p", "g", "c", "a__b"]
    assert value_of(record) == {
        "op": "ADD",
        "parentTopic": "p",
        "group": "g",
        "clientId": "c",
        "liteTopic": "a__b",
        "lmqName": "%LMQ%$p$a__b",
        "patterns": ["*__b", "a__b"],
        "cause": "TOPIC_CREATED",
        "version": 7,
        "eventId": event_id(),
        "source": {"topic": "topics", "partition": 2, "offset": 40, "entry": 1, "timestamp": 1_700},
    }


def of_part(part: str) -> dict[str, SubscriberKey]:
    return {"subscriber": SubscriberKey("g", "c", part)}


@pytest.mark.rule("share-in-key", "resets")
@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (of_part("share:s/a/+"), {"share": "s", "filter": "a/+"}),
        (of_part("share:share:s//"), {"share": "share:s", "filter": "/"}),
        (of_part("share:s"), {"share": "s"}),
        (of_part("wamp:prefix:com.app"), {"subscription": "wamp:prefix:com.app"}),
        (of_part("wamp::com.*"), {"subscription": "wamp::com.*"}),
        (of_part("mqtt::share:s"), {"subscription": "mqtt::share:s"}),
        ({"version": None}, {"version": None}),
        ({"offset_option": {"type": "OFFSET", "value": 3}}, {"offsetOption": {"type": "OFFSET", "value": 3}}),
        ({"reset": True}, {"resetOffset": True}),
        ({"bitmap": bytes(14)}, {"bitmap": "00" * 14}),  # no group's selector agrees
        ({"bitmap": b"\x0a\xff" * 7}, {"bitmap": "0aff" * 7}),
    ],
)
@pytest.mark.parametrize("op", Op)
def test_rare_fields_are_added_to_the_others(op: Op, changes: dict[str, Any], fields: dict[str, Any]) -> None:
    """The key and the event id have the part of a row of its own."""
    plain, record = value_of(record_of(BASE._replace(op=op))), record_of(BASE._replace(op=op, **changes))
    part = changes["subscriber"].part if "subscriber" in changes else ""
    assert value_of(record) == {**plain, **fields, "eventId": value_of(record)["eventId"]}
    assert (value_of(record)["eventId"] != plain["eventId"]) is bool(part)
    assert record.key == update_key("p", "g", "c", "a__b", part)
    assert json.loads(record.key) == ["p", "g", "c", "a__b", *([part] if part else [])]


def test_a_remove_is_followed_by_the_tombstone_of_its_key() -> None:
    output, written = Output(), Written()
    output.add_updates([BASE._replace(op=Op.REMOVE, cause=Cause.TOPIC_DELETED), BASE], UpdateWriter("p"), 1_000)
    written.add(output)
    assert written.kinds == [OutputKind.REMOVE, TOMBSTONE, OutputKind.ADD]
    assert value_of(KafkaRecord(written.keys[0] or b"", written.payloads[0]))["op"] == "REMOVE"
    assert written.keys == [record_of(BASE).key] * 3
    assert written.payloads[1:] == [None, record_of(BASE).value]


@pytest.mark.parametrize("name", AWKWARD)
def test_names_come_back_as_they_were(name: str) -> None:
    update = BASE._replace(subscriber=SubscriberKey(name, name), lite_topic=name, patterns=(name,))
    record = record_of(update, name)
    value = value_of(record)
    assert {value[field] for field in ("parentTopic", "group", "clientId", "liteTopic")} == {name}
    assert value["patterns"] == [name]
    assert value["lmqName"] == f"%LMQ%${name}${name}"
    assert record.key == update_key(name, name, name, name)
    assert json.loads(record.key) == [name] * 4


def test_keys_of_different_names_are_different() -> None:
    pairs = [(one, two) for one in AWKWARD for two in AWKWARD]
    keys = {update_key(*four) for one, two in pairs for four in [(one, two, "x", "y"), ("x", one, two, "y")]}
    keys |= {update_key("x", "y", "z", one, two) for one, two in pairs}
    assert len(keys) == 3 * len(pairs)


def test_one_writer_writes_what_many_would() -> None:
    """A writer reuses the JSON of earlier updates, and mixes up none."""
    other = SOURCE._replace(offset=41)
    updates = [
        BASE,
        BASE._replace(version=8),
        BASE._replace(version=None),
        BASE._replace(version=0),
        BASE._replace(subscriber=SubscriberKey("g", "d")),
        BASE._replace(subscriber=SubscriberKey("h", "c"), version=None),
        BASE._replace(source=other),
        BASE._replace(source=other, lite_topic="u", patterns=()),
        BASE._replace(source=Source(*SOURCE)),
        BASE._replace(lite_topic="u", patterns=("u",)),
        BASE._replace(patterns=("a__b",)),
        BASE._replace(patterns=("*__b",)),
        BASE._replace(op=Op.REMOVE, cause=Cause.UNSUBSCRIBED),
        BASE._replace(offset_option={"type": "TAIL_N", "value": 1}),
        BASE._replace(cause=Cause.RELEASED),
        BASE._replace(subscriber=SubscriberKey("g", "c", "share:s")),
        BASE._replace(subscriber=SubscriberKey("g", "c", "wamp::s")),
        BASE._replace(bitmap=bytes(14)),
        BASE._replace(op=Op.REMOVE, cause=Cause.UNSUBSCRIBED, reset=True),
        BASE._replace(op=Op.REMOVE, cause=Cause.GROUP_CHANGED),
        BASE._replace(cause=Cause.GROUP_CHANGED),
    ]
    writer = UpdateWriter("p")
    for update in [*updates, *reversed(updates)]:
        assert writer.record(update) == record_of(update)


@pytest.mark.rule("repeated-micro-batch")
def test_the_event_id_is_made_of_what_happened_and_where_it_stands() -> None:
    """A repeated micro-batch repeats it; patterns, version and time may differ then, and are not in it."""
    same = [
        event_id(),
        event_id(patterns=()),
        event_id(version=None),
        event_id(cause=Cause.SUBSCRIBED),
        event_id(source=SOURCE._replace(timestamp=9)),
        event_id(bitmap=bytes(14)),
    ]
    different = [
        event_id(),
        event_id("q"),
        event_id(op=Op.REMOVE),
        event_id(subscriber=SubscriberKey("h", "c")),
        event_id(subscriber=SubscriberKey("g", "d")),
        event_id(subscriber=SubscriberKey("g", "c", "share:s")),
        event_id(subscriber=SubscriberKey("g", "c", "wamp::s")),
        event_id(lite_topic="a__c"),
        event_id(source=SOURCE._replace(topic="subscriptions")),
        event_id(source=SOURCE._replace(partition=3)),
        event_id(source=SOURCE._replace(offset=41)),
        event_id(source=SOURCE._replace(entry=2)),
    ]
    assert len(set(same)) == 1
    assert len(set(different)) == len(different)
    assert all(len(bytes.fromhex(identifier.replace("-", ""))) == 16 for identifier in different)


X_LIMIT = "x" * MAX_ORIGINAL_BYTES


@pytest.mark.parametrize(
    ("original", "shown", "encoding"),
    [
        (b"not json", "not json", "utf-8"),
        ("é😀".encode(), "é😀", "utf-8"),
        (b"", "", "utf-8"),
        (None, None, "utf-8"),
        (b"\xff\x00", "/wA=", "base64"),
        (b"x" * MAX_ORIGINAL_BYTES, X_LIMIT, "utf-8"),
        (b"x" * (MAX_ORIGINAL_BYTES + 1), X_LIMIT, "utf-8"),
        (b"\xff" * 900_000, base64.b64encode(b"\xff" * MAX_ORIGINAL_BYTES).decode(), "base64"),
    ],
    ids=["text", "unicode", "empty", "none", "bytes", "longest", "too long", "too long bytes"],
)
def test_a_dead_letter_carries_the_original(original: bytes | None, shown: str | None, encoding: str) -> None:
    """Bytes that are no text are written as base64, and long originals are cut."""
    record = dead_letter(SOURCE, Reason.NOT_JSON, "the value is not JSON", original)
    assert json.loads(record.key) == ["topics", 2, 40, 1]
    assert value_of(record) == {
        "reason": "not-json",
        "message": "the value is not JSON",
        "source": {"topic": "topics", "partition": 2, "offset": 40, "entry": 1, "timestamp": 1_700},
        "original": shown,
        "originalEncoding": encoding,
        "originalBytes": len(original or b""),
        "truncated": len(original or b"") > MAX_ORIGINAL_BYTES,
    }


@pytest.mark.parametrize("before", range(4))
def test_a_dead_letter_cut_inside_a_character_still_has_its_bytes(before: int) -> None:
    original = b"x" * before + "😀".encode() * MAX_ORIGINAL_BYTES
    value = value_of(dead_letter(SOURCE, Reason.NOT_JSON, "m", original))
    text = value["original"]
    shown = base64.b64decode(text) if value["originalEncoding"] == "base64" else text.encode()
    assert len(shown) > MAX_ORIGINAL_BYTES - 4
    assert original.startswith(shown)
    assert value["truncated"]


def patterns_of(*patterns: str) -> list[str]:
    shown: list[str] = value_of(record_of(BASE._replace(patterns=patterns)))["patterns"]
    return shown


def test_the_patterns_of_an_update_are_bounded() -> None:
    few = [f"{number:04}" for number in range(1_000)]
    assert patterns_of(*few) == few
    long = [f"{number:04}" + "x" * 1_000 for number in range(1_000)]
    shown = patterns_of(*long)
    assert shown == long[: len(shown)]
    drain = sum(len(pattern) + 3 for pattern in shown)
    assert drain <= MAX_PATTERN_BYTES < drain + len(long[0]) + 3
    many = [f"{number:06}" for number in range(100_000)]
    assert len(patterns_of(*many)) == MAX_PATTERN_BYTES // (6 + 3)


@pytest.mark.parametrize("letter", ["x", "é", "😀", '"', "\\", "\n"])
@pytest.mark.parametrize("op", Op)
def test_the_largest_update_stays_below_kafkas_limit(letter: str, op: Op) -> None:
    """All names have their maximum length, and there are more patterns than an update names."""
    name = letter * (MAX_NAME_BYTES // len(letter.encode()))
    subscriber = SubscriberKey(name, name, f"lite::{name}")
    update = BASE._replace(op=op, subscriber=subscriber, lite_topic=name, patterns=(name[:-1],) * 100)
    update = update._replace(reset=True, bitmap=bytes(14), offset_option={"type": "TIMESTAMP", "value": 1 << 60})
    record = record_of(update, name)
    assert len(record.key) + len(record.value or b"") < KAFKA_LIMIT


@pytest.mark.parametrize("letter", [b"x", "é".encode(), b'"', b"\x01", b"\xff"])
def test_the_largest_dead_letter_stays_below_kafkas_limit(letter: bytes) -> None:
    """Its message may quote anything."""
    record = dead_letter(SOURCE, Reason.NOT_JSON, "\ud800" + "\x00" * 2_000_000, letter * 900_000)
    assert len(record.key) + len(record.value or b"") < KAFKA_LIMIT
    assert value_of(record)["message"].startswith("\\ud800")
