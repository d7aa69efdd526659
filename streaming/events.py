"""Input records: from JSON bytes to checked events, or to the reason why not."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from streaming.errors import Rejected

MAX_NAME_BYTES = 16_384
"""Longest name, in bytes of JSON: an update repeats names up to ten times and must stay below Kafka's 1 MB."""

MAX_TTL_MS = 30 * 24 * 3_600_000
"""Longest life of a topic that RocketMQ allows."""

LMQ_PREFIX = "%LMQ%$"
BIND_TOPIC = "lite.bind.topic"
WILDCARD = "lite.sub.wildcard"

_INT64 = 1 << 63

_SHORT = MAX_NAME_BYTES // 6
"""JSON writes a character in six bytes at most, so a name of no more characters than this is short enough."""


class Stream(StrEnum):
    """The input streams, in the order in which one micro-batch is read: attributes, then sets, then topics."""

    GROUPS = "groups"
    SUBSCRIPTIONS = "subscriptions"
    TOPICS = "topics"


class Reason(StrEnum):
    """Why an entry became a dead letter."""

    NOT_JSON = "not-json"
    WRONG_TYPE = "wrong-type"
    MISSING_FIELD = "missing-field"
    BLANK_NAME = "blank-name"
    NAME_TOO_LONG = "name-too-long"
    OUT_OF_RANGE = "out-of-range"
    UNKNOWN_EVENT = "unknown-event"
    UNKNOWN_ACTION = "unknown-action"
    BAD_LMQ_NAME = "bad-lmq-name"
    INVALID_PATTERN = "invalid-pattern"
    GROUP_NOT_PLACED = "group-not-placed"
    NOT_ROUTABLE = "not-routable"
    NOT_SUPPORTED = "not-supported"


class Action(StrEnum):
    """What a subscription request does (RocketMQ `LiteSubscriptionAction`)."""

    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


class Source(NamedTuple):
    """Where an entry came from: coordinates in Kafka, and its record's timestamp in milliseconds."""

    topic: str
    partition: int
    offset: int
    entry: int
    timestamp: int


class TopicEvent(NamedTuple):
    """A lite topic was created or deleted."""

    parent: str
    lite_topic: str
    created: bool


class SubscriptionRequest(NamedTuple):
    """One entry of RocketMQ's `LiteSubscriptionCtlRequestBody`; `version` None means unversioned."""

    parent: str
    group: str
    client_id: str
    action: Action
    entries: tuple[str, ...]
    version: int | None
    offset_option: Mapping[str, Any] | None


class GroupEvent(NamedTuple):
    """The attributes of a group from now on; empty ones delete them.

    `superseded_by` is set on events that the job writes itself, to tell a former parent that the group left it:
    (partition, offset, timestamp) of the event that moved the group.
    """

    group: str
    attributes: Mapping[str, str]
    parent: str | None
    superseded_by: tuple[int, int, int] | None


def parse_topic_event(payload: bytes | None) -> TopicEvent:
    """Reads a topic event, named by `parentTopic` and `liteTopic` or by `lmqName`.

    Raises:
        Rejected: the payload is not a valid topic event.
    """
    record = _object(payload)
    event = _text(record, "event")
    if event not in ("CREATED", "DELETED"):
        raise Rejected(Reason.UNKNOWN_EVENT, f"event is {_show(event)}; it must be CREATED or DELETED")
    lmq_name = record.get("lmqName")
    if lmq_name is not None:
        parent, lite_topic = parse_lmq_name(_name(record, "lmqName"))
        for field, value in (("parentTopic", parent), ("liteTopic", lite_topic)):
            if record.get(field) not in (None, value):
                raise Rejected(Reason.BAD_LMQ_NAME, f"lmqName and {field} name different topics; leave one of them out")
    else:
        parent, lite_topic = _name(record, "parentTopic"), _name(record, "liteTopic")
    _integer(record, "timestamp")
    if not record.keys() <= _PLAIN_FIELDS:
        _check_details(record)
    return TopicEvent(parent, lite_topic, event == "CREATED")


_PLAIN_FIELDS = frozenset({"event", "parentTopic", "liteTopic", "lmqName", "timestamp"})
"""The fields that nearly all topic events have, and no others."""


def _check_details(record: dict[str, Any]) -> None:
    _integer(record, "ttlMs", low=1, high=MAX_TTL_MS)
    if record.get("tags") is not None:
        _text(record, "tags")
    properties = record.get("properties")
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values())
    ):
        raise Rejected(Reason.WRONG_TYPE, "properties must be an object whose values are strings")


def parse_lmq_name(name: str) -> tuple[str, str]:
    """Splits `%LMQ%$<parent>$<child>` at the first `$` behind the prefix (RocketMQ `LiteUtil`).

    Raises:
        Rejected: the name has another form.
    """
    parent, separator, child = name.removeprefix(LMQ_PREFIX).partition("$")
    if not name.startswith(LMQ_PREFIX) or not separator or not parent.strip() or not child.strip():
        raise Rejected(Reason.BAD_LMQ_NAME, f"lmqName is {_show(name)}; it must be %LMQ%$<parent>$<lite topic>")
    return parent, child


def lmq_name(parent: str, lite_topic: str) -> str:
    """The name of a lite topic's queue in the broker."""
    return f"{LMQ_PREFIX}{parent}${lite_topic}"


def parse_subscription(payload: bytes | None) -> SubscriptionRequest:
    """Reads one entry of a subscription record.

    The entries of its set are returned as they are: whether they are names or patterns depends on the group.

    Raises:
        Rejected: the payload is not a valid entry.
    """
    record = _object(payload)
    if "subscriptionSet" in record:
        raise Rejected(Reason.WRONG_TYPE, "subscriptionSet must be an array of objects, at least one")
    action_text = _text(record, "action")
    if action_text not in Action.__members__:
        raise Rejected(
            Reason.UNKNOWN_ACTION, f"action is {_show(action_text)}; it must be one of {', '.join(Action.__members__)}"
        )
    action = Action(action_text)
    client_id, group, parent = _name(record, "clientId"), _name(record, "group"), _name(record, "topic")
    for field, supported in (("dialect", "lite"), ("selector", None)):
        if record.get(field) not in (None, supported):
            raise Rejected(Reason.NOT_SUPPORTED, f"{field} {_show(record[field])} is not supported")
    entries = record.get("liteTopicSet")
    if entries is None and action is Action.COMPLETE_REMOVE:
        entries = []
    if entries is None:
        raise Rejected(
            Reason.MISSING_FIELD, "liteTopicSet is missing; in a wildcard group [] subscribes to every topic"
        )
    if not (isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)):
        raise Rejected(Reason.WRONG_TYPE, "liteTopicSet must be an array of strings")
    return SubscriptionRequest(
        parent,
        group,
        client_id,
        action,
        tuple(dict.fromkeys(entries)),
        _integer(record, "version"),
        _offset_option(record),
    )


def parse_group_event(payload: bytes | None) -> GroupEvent:
    """Reads a group event.

    Raises:
        Rejected: the payload is not a valid group event; attributes without `lite.bind.topic` cannot be placed.
    """
    record = _object(payload)
    group = _name(record, "group")
    raw = record.get("attributes")
    if raw is None:
        raise Rejected(Reason.MISSING_FIELD, "attributes is missing; {} deletes the attributes of the group")
    if not isinstance(raw, dict):
        raise Rejected(Reason.WRONG_TYPE, f"attributes must be an object, not {_kind(raw)}")
    attributes = {key: _attribute(key, value) for key, value in raw.items()}
    if attributes and not attributes.get(BIND_TOPIC, "").strip():
        raise Rejected(
            Reason.GROUP_NOT_PLACED, f"the attributes lack {BIND_TOPIC}, the parent topic on which the group acts"
        )
    if attributes:
        return GroupEvent(group, attributes, _checked_name(BIND_TOPIC, attributes[BIND_TOPIC]), None)
    parent = _name(record, "parentTopic") if record.get("parentTopic") is not None else None
    superseded = record.get("supersededBy")
    if superseded is None:
        return GroupEvent(group, attributes, parent, None)
    if not (isinstance(superseded, list) and [type(number) for number in superseded] == [int, int, int]):
        raise Rejected(Reason.WRONG_TYPE, "supersededBy must be [partition, offset, timestamp]")
    return GroupEvent(group, attributes, parent, (superseded[0], superseded[1], superseded[2]))


def _attribute(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and key != BIND_TOPIC:
        return str(value)
    raise Rejected(Reason.WRONG_TYPE, f"attribute {_show(key)} must be a string, not {_kind(value)}")


def check_name(what: str, text: str) -> str | None:
    """Says why `text` cannot be the name of a topic, client or group; None when it can."""
    if not text.strip():
        return f"{what} is blank"
    if len(text) > _SHORT and len(orjson.dumps(text)) - 2 > MAX_NAME_BYTES:
        return f"{what} is longer than {MAX_NAME_BYTES:,} bytes"
    return None


def _checked_name(field: str, text: str) -> str:
    problem = check_name(field, text)
    if problem is not None:
        raise Rejected(Reason.NAME_TOO_LONG if text.strip() else Reason.BLANK_NAME, problem)
    return text


def _name(record: dict[str, Any], field: str) -> str:
    value = record.get(field)
    if type(value) is str and len(value) <= _SHORT and value.strip():
        return value  # nearly always
    return _checked_name(field, _text(record, field))


def _text(record: dict[str, Any], field: str, label: str = "") -> str:
    value = record.get(field)
    if isinstance(value, str):
        return value
    if value is None:
        raise Rejected(Reason.MISSING_FIELD, f"{label}{field} is missing")
    raise Rejected(Reason.WRONG_TYPE, f"{label}{field} must be a string, not {_kind(value)}")


def _integer(
    record: dict[str, Any], field: str, low: int = -_INT64, high: int = _INT64 - 1, label: str = ""
) -> int | None:
    value = record.get(field)
    if value is None:
        return None
    if type(value) is float and abs(value) >= _INT64:
        raise Rejected(Reason.OUT_OF_RANGE, f"{label}{field} is too large; it must be from {low} to {high}")
    if type(value) is not int:
        raise Rejected(Reason.WRONG_TYPE, f"{label}{field} must be a whole number, not {_kind(value)}")
    if not low <= value <= high:
        raise Rejected(Reason.OUT_OF_RANGE, f"{label}{field} is {value}; it must be from {low} to {high}")
    return value


def _offset_option(record: dict[str, Any]) -> Mapping[str, Any] | None:
    option = record.get("offsetOption")
    if option is None:
        return None
    if not isinstance(option, dict):
        raise Rejected(Reason.WRONG_TYPE, f"offsetOption must be an object, not {_kind(option)}")
    kind = _text(option, "type", "offsetOption.")
    if kind not in ("POLICY", "OFFSET", "TAIL_N", "TIMESTAMP"):
        raise Rejected(
            Reason.OUT_OF_RANGE, f"offsetOption.type is {_show(kind)}; it must be POLICY, OFFSET, TAIL_N or TIMESTAMP"
        )
    return {"type": kind, "value": _integer(option, "value", label="offsetOption.")}


def _object(payload: bytes | None) -> dict[str, Any]:
    if payload is None:
        raise Rejected(Reason.NOT_JSON, "the record has no value")
    try:
        record = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise Rejected(Reason.NOT_JSON, f"the value is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise Rejected(Reason.WRONG_TYPE, f"the value must be a JSON object, not {_kind(record)}")
    return record


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {bool: "a boolean", str: "a string", list: "an array", dict: "an object", float: "a fraction"}
    return kinds.get(type(value), "a number")


def _show(value: Any, limit: int = 80) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= limit else text[:limit] + "..."
