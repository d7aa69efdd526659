"""Parsers of input records: from JSON bytes to a valid event, or to the reason for a dead letter."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from streaming.errors import Rejected
from streaming.records.json_fields import (
    checked_name,
    excerpt,
    json_object,
    optional_name,
    optional_place,
    required_integer,
    required_name,
    type_of,
)
from streaming.records.model import (
    BIND_TOPIC,
    MODEL,
    QUOTA,
    UNLIMITED,
    Alarm,
    GroupEvent,
    Reason,
    SingleEvent,
    Stream,
    Tick,
    Wake,
)
from streaming.records.subscription_requests import parse_subscription, read_subscription
from streaming.records.topic_events import (
    parse_lmq_name,
    parse_plain_topic_events,
    parse_topic_event,
    read_topic_event,
)

__all__ = [
    "PARSERS",
    "READERS",
    "parse_clock",
    "parse_group_event",
    "parse_lmq_name",
    "parse_plain_topic_events",
    "parse_subscription",
    "parse_topic_event",
]


def parse_group_event(payload: bytes | None) -> GroupEvent:
    """Parse a group event.

    Raises:
        Rejected: the payload is not a valid group event.
    """
    return read_group_event(json_object(payload))


def read_group_event(record: dict[str, Any]) -> GroupEvent:
    """Read a group event from its fields.

    Raises:
        Rejected: the fields are not valid, or attributes without `lite.bind.topic` cannot be placed.
    """
    group = required_name(record, "group")
    raw = record.get("attributes")
    if raw is None:
        raise Rejected(Reason.MISSING_FIELD, "attributes is missing; {} deletes the attributes of the group")
    if not isinstance(raw, dict):
        raise Rejected(Reason.WRONG_TYPE, f"attributes must be an object, not {type_of(raw)}")
    attributes = {key: _attribute(key, value) for key, value in raw.items()}
    if attributes and not attributes.get(BIND_TOPIC, "").strip():
        raise Rejected(
            Reason.GROUP_NOT_PLACED, f"the attributes lack {BIND_TOPIC}, the parent topic on which the group acts"
        )
    if attributes:
        _check_attributes(attributes)
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


def _check_attributes(attributes: Mapping[str, str]) -> None:
    model = attributes.get(MODEL, "Shared")
    if model.lower() not in ("shared", "exclusive"):
        raise Rejected(Reason.OUT_OF_RANGE, f"{MODEL} is {excerpt(model)}; it must be Shared or Exclusive")
    quota = attributes.get(QUOTA, str(UNLIMITED))
    if re.fullmatch(r"-1|[0-9]{1,18}", quota) is None:
        raise Rejected(
            Reason.OUT_OF_RANGE, f"{QUOTA} is {excerpt(quota)}; it must be a whole number, {UNLIMITED} for no limit"
        )


def parse_clock(payload: bytes | None) -> Tick | Alarm | Wake:
    """Parse a record of the clock stream.

    Raises:
        Rejected: the payload is not a valid record of the clock stream.
    """
    return read_clock(json_object(payload))


def read_clock(record: dict[str, Any]) -> Tick | Alarm | Wake:
    """Read a record of the clock stream from its fields: `{"tick"}`, `{"alarm"}` or `{"wake"}`.

    A tick or a wake may carry a question, `inquiry`, which is not checked here.

    Raises:
        Rejected: the fields are not valid.
    """
    asked = record.get("inquiry")
    inquiry = asked if isinstance(asked, dict) else None
    if record.get("tick") is not None:
        return Tick(required_integer(record, "tick"), inquiry)
    is_alarm = record.get("alarm") is not None
    time = required_integer(record, "alarm" if is_alarm else "wake")
    parent, shard = required_name(record, "parentTopic"), required_integer(record, "shard")
    return Alarm(parent, shard, time) if is_alarm else Wake(parent, shard, time, inquiry)


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
