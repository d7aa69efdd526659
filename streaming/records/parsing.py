"""Parsers of input records: from JSON bytes to a valid event, or to the reason for a dead letter."""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any, TypeVar

import orjson

from streaming.errors import Rejected
from streaming.records.json_fields import (
    INT64,
    checked_name,
    excerpt,
    json_object,
    optional_integer,
    optional_name,
    optional_object,
    optional_place,
    read_subscription,
    required,
    required_name,
    required_text,
    type_of,
    wrong_value,
)
from streaming.records.model import (
    BIND_TOPIC,
    LMQ_PREFIX,
    MAX_DETAILS,
    MAX_TTL_MS,
    MODEL,
    QUOTA,
    SHORT_NAME,
    UNLIMITED,
    Alarm,
    GroupEvent,
    Reason,
    SingleEvent,
    Stream,
    Tick,
    TopicEvent,
    Wake,
)

E = TypeVar("E")

_PLAIN_FIELDS = ("event", "parentTopic", "liteTopic", "timestamp")
"""Fields of nearly all topic events."""

_NAME_AND_TIME_FIELDS = frozenset({*_PLAIN_FIELDS, "lmqName"})


def read_topic_event(record: dict[str, Any]) -> TopicEvent:
    """Read a topic event with both names or `lmqName`; raise `Rejected`."""
    event = record.get("event")
    if event not in ("CREATED", "DELETED"):
        raise wrong_value("event", required_text(record, "event"), "CREATED or DELETED", Reason.UNKNOWN_EVENT)
    parent, lite_topic = _names(record)
    timestamp = optional_integer(record, "timestamp") if "timestamp" in record else None
    if record.keys() <= _NAME_AND_TIME_FIELDS:
        return TopicEvent(parent, lite_topic, event == "CREATED")
    tags, properties = _tags_and_properties(record)
    ttl_ms = optional_integer(record, "ttlMs", low=1, high=MAX_TTL_MS)
    return TopicEvent(parent, lite_topic, event == "CREATED", tags, properties, timestamp, ttl_ms)


def parse_plain_topic_events(payloads: Sequence[bytes | None], parent: str) -> tuple[list[str], list[bool]] | None:
    """Return names and kinds of plain topic events; None if one is not plain.

    True is a creation. If one is not plain, each event needs `parse_topic_event`, which takes twice as long.
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
    """Split `%LMQ%$<parent>$<child>` (RocketMQ `LiteUtil`); raise `Rejected`."""
    parent, separator, child = name.removeprefix(LMQ_PREFIX).partition("$")
    if not name.startswith(LMQ_PREFIX) or not separator or not parent.strip() or not child.strip():
        raise wrong_value("lmqName", name, "%LMQ%$<parent>$<lite topic>", Reason.BAD_LMQ_NAME)
    return parent, child


def key_of(event: Any) -> str | None:
    """Return the key that keeps events in order: the parent of a lite topic, or else the group, if there is one."""
    try:
        requests = event.get("subscriptionSet")
        entry = requests[0] if isinstance(requests, list) and requests and isinstance(requests[0], dict) else event
        group = None if "liteTopic" in entry or "lmqName" in entry else entry.get("group")
        name = group or entry.get("parentTopic") or parse_lmq_name(entry["lmqName"])[0]
    except (AttributeError, KeyError, TypeError, Rejected):
        return None
    return name if isinstance(name, str) else None


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


def read_group_event(record: dict[str, Any]) -> GroupEvent:
    """Read a group event; raise `Rejected` if invalid."""
    group = required_name(record, "group")
    raw = optional_object(record, "attributes")
    if raw is None:
        raise Rejected(Reason.MISSING_FIELD, "attributes is missing; {} deletes the attributes of the group")
    attributes = {key: _attribute(key, value) for key, value in raw.items()}
    if attributes and not attributes.get(BIND_TOPIC, "").strip():
        raise Rejected(
            Reason.GROUP_NOT_PLACED, f"the attributes lack {BIND_TOPIC}, the parent topic on which the group acts"
        )
    if attributes:
        model = attributes.get(MODEL, "Shared")
        if model.lower() not in ("shared", "exclusive"):
            raise wrong_value(MODEL, model, "Shared or Exclusive")
        quota = attributes.get(QUOTA, str(UNLIMITED))
        if re.fullmatch(r"-1|[0-9]{1,18}", quota) is None:
            raise wrong_value(QUOTA, quota, f"a whole number, {UNLIMITED} for no limit")
        return GroupEvent(group, attributes, checked_name(BIND_TOPIC, attributes[BIND_TOPIC]))
    parent, bound_to = optional_name(record, "parentTopic"), optional_name(record, "boundTo")
    return GroupEvent(group, attributes, parent, optional_place(record, "supersededBy"), bound_to)


def _attribute(key: str, value: Any) -> str:
    """Return the text of an attribute; booleans and numbers are accepted, except as a topic."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and key != BIND_TOPIC:
        return str(value)
    raise Rejected(Reason.WRONG_TYPE, f"attribute {excerpt(key)} must be a string, not {type_of(value)}")


def read_clock(record: dict[str, Any]) -> Tick | Alarm | Wake:
    """Read a `tick`, `alarm` or `wake` of the clock; raise `Rejected`.

    A tick or a wake may carry a question, `inquiry`, which is not checked here.
    """
    asked = record.get("inquiry")
    inquiry = asked if isinstance(asked, dict) else None
    if record.get("tick") is not None:
        return Tick(_integer(record, "tick"), inquiry)
    is_alarm = record.get("alarm") is not None
    time = _integer(record, "alarm" if is_alarm else "wake")
    parent, shard = required_name(record, "parentTopic"), _integer(record, "shard")
    return Alarm(parent, shard, time) if is_alarm else Wake(parent, shard, time, inquiry)


def _integer(record: dict[str, Any], field: str) -> int:
    return required(field, optional_integer(record, field))


def _parser(read: Callable[[dict[str, Any]], E]) -> Callable[[bytes | None], E]:
    """Return the parser of payloads, which raises `Rejected`, for the reader of their fields."""
    return lambda payload: read(json_object(payload))


parse_topic_event = _parser(read_topic_event)
parse_subscription = _parser(read_subscription)
parse_group_event = _parser(read_group_event)
parse_clock = _parser(read_clock)

PARSERS: Mapping[Stream, Callable[[bytes | None], SingleEvent]] = {
    Stream.GROUPS: parse_group_event,
    Stream.SUBSCRIPTIONS: parse_subscription,
    Stream.TOPICS: parse_topic_event,
    Stream.CLOCK: parse_clock,
}
"""Parser of each input stream; all raise `Rejected`."""

READERS: Mapping[Stream, Callable[[dict[str, Any]], SingleEvent]] = {
    Stream.GROUPS: read_group_event,
    Stream.SUBSCRIPTIONS: read_subscription,
    Stream.TOPICS: read_topic_event,
    Stream.CLOCK: read_clock,
}
"""Reader of the fields of each input stream's records; all raise `Rejected`."""
