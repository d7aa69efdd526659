"""Parser of topic events, one by one or many at once."""

import secrets
from collections.abc import Sequence
from operator import itemgetter
from types import NoneType
from typing import Any

import orjson

from streaming.errors import Rejected
from streaming.records.json_fields import (
    INT64,
    excerpt,
    json_object,
    optional_integer,
    required_name,
    required_text,
)
from streaming.records.model import LMQ_PREFIX, MAX_DETAILS, MAX_TTL_MS, SHORT_NAME, Reason, TopicEvent

_PLAIN_FIELDS = ("event", "parentTopic", "liteTopic", "timestamp")
"""Fields of nearly all topic events."""

_NAME_AND_TIME_FIELDS = frozenset({*_PLAIN_FIELDS, "lmqName"})


def parse_topic_event(payload: bytes | None) -> TopicEvent:
    """Parse a topic event.

    Raises:
        Rejected: the payload is not a valid topic event.
    """
    return read_topic_event(json_object(payload))


def read_topic_event(record: dict[str, Any]) -> TopicEvent:
    """Read a topic event from its fields, named by `parentTopic` and `liteTopic` or by `lmqName`.

    Raises:
        Rejected: the fields are not valid.
    """
    event = record.get("event")
    if event not in ("CREATED", "DELETED"):
        event = required_text(record, "event")
        raise Rejected(Reason.UNKNOWN_EVENT, f"event is {excerpt(event)}; it must be CREATED or DELETED")
    parent, lite_topic = _names(record)
    timestamp = optional_integer(record, "timestamp") if "timestamp" in record else None
    if record.keys() <= _NAME_AND_TIME_FIELDS:
        return TopicEvent(parent, lite_topic, event == "CREATED")
    tags, properties = _tags_and_properties(record)
    ttl_ms = optional_integer(record, "ttlMs", low=1, high=MAX_TTL_MS)
    return TopicEvent(parent, lite_topic, event == "CREATED", tags, properties, timestamp, ttl_ms)


def parse_plain_topic_events(payloads: Sequence[bytes | None], parent: str) -> tuple[list[str], list[bool]] | None:
    """Parse many topic events of one parent by column, if all are valid and have no more fields than nearly all do.

    Returns:
        The names of the lite topics, and True for each created one; None if any event is different. In that case
        `parse_topic_event` is needed for each event, and takes twice as long.
    """
    records, text = _json_objects(payloads)
    if records is None or not set().union(*records) <= set(_PLAIN_FIELDS):
        return None
    try:
        events, parents, names = map(list, zip(*map(itemgetter(*_PLAIN_FIELDS[:-1]), records), strict=True))
    except KeyError:
        return None
    timestamps = [record.get("timestamp") for record in records]
    if (
        set(map(type, names)) == set(map(type, events)) == set(map(type, parents)) == {str}
        and set(map(type, timestamps)) <= {int, NoneType}
        and set(events) <= {"CREATED", "DELETED"}
        and set(parents) == {parent}
        and len(parent) <= SHORT_NAME
        and len(max(names, key=len)) <= SHORT_NAME
        and parent.strip()
        and all(map(str.strip, names))
        and all(timestamp is None or -INT64 <= timestamp < INT64 for timestamp in set(timestamps))
        and _has_no_repetitions(records, text, names, parent)
    ):
        return names, [event == "CREATED" for event in events]
    return None


def parse_lmq_name(name: str) -> tuple[str, str]:
    """Split `%LMQ%$<parent>$<child>` at the first `$` behind the prefix (RocketMQ `LiteUtil`).

    Raises:
        Rejected: the name has another form.
    """
    parent, separator, child = name.removeprefix(LMQ_PREFIX).partition("$")
    if not name.startswith(LMQ_PREFIX) or not separator or not parent.strip() or not child.strip():
        raise Rejected(Reason.BAD_LMQ_NAME, f"lmqName is {excerpt(name)}; it must be %LMQ%$<parent>$<lite topic>")
    return parent, child


def _names(record: dict[str, Any]) -> tuple[str, str]:
    """Return parent and lite topic; the fields may repeat a part of `lmqName`, but not contradict it."""
    if record.get("lmqName") is None:
        return required_name(record, "parentTopic"), required_name(record, "liteTopic")
    parent, lite_topic = parse_lmq_name(required_name(record, "lmqName"))
    for field, value in (("parentTopic", parent), ("liteTopic", lite_topic)):
        if record.get(field) not in (None, value):
            raise Rejected(Reason.BAD_LMQ_NAME, f"lmqName and {field} name different topics; leave one of them out")
    return parent, lite_topic


def _tags_and_properties(record: dict[str, Any]) -> tuple[str | None, dict[str, str] | None]:
    tags = required_text(record, "tags") if record.get("tags") is not None else None
    properties = record.get("properties")
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values())
    ):
        raise Rejected(Reason.WRONG_TYPE, "properties must be an object whose values are strings")
    size = len(tags or "") + sum(len(key) + len(value) for key, value in (properties or {}).items())
    if size > MAX_DETAILS:
        raise Rejected(
            Reason.OUT_OF_RANGE, f"tags and properties have {size:,} characters; at most {MAX_DETAILS:,} are allowed"
        )
    return tags, properties


def _json_objects(payloads: Sequence[bytes | None]) -> tuple[list[dict[str, Any]] | None, bytes]:
    """Return the JSON objects in many payloads, decoded in one go, and the text; None if one holds something else."""
    # A random number is between the payloads, so no payload can complete the JSON of another.
    fence = secrets.randbits(63)
    try:
        text = b"[%b]" % (b",%d," % fence).join(payloads)  # type: ignore[arg-type]  # None raises
        values = orjson.loads(text)
    except (TypeError, orjson.JSONDecodeError):
        return None, b""
    objects: list[Any] = values[::2]
    one_each = len(objects) == len(payloads) and values[1::2] == [fence] * (len(payloads) - 1)
    return (objects if one_each and set(map(type, objects)) == {dict} else None), text


def _has_no_repetitions(records: Sequence[dict[str, Any]], text: bytes, names: Sequence[str], parent: str) -> bool:
    """Return True if no field is repeated in plain topic events: each has a colon, and names may have more."""
    further = text.count(b":") - sum(map(len, records))
    in_names = "".join(names).count(":") + len(names) * parent.count(":")
    return not further or (further == in_names and b"\\" not in text)
