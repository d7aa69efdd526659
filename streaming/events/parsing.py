"""Input records: from JSON bytes to checked events, or to the reason why not."""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import NoneType
from typing import Any

import orjson

from matcher.dialects import DIALECTS
from matcher.errors import MatcherError
from matcher.selectors import compile as compile_selector
from streaming.errors import Rejected
from streaming.events.model import (
    BIND_TOPIC,
    LITE,
    LMQ_PREFIX,
    MAX_DETAILS,
    MAX_TTL_MS,
    MODEL,
    POLICIES,
    QUOTA,
    SHORT_NAME,
    UNLIMITED,
    Action,
    Alarm,
    GroupEvent,
    Notation,
    Place,
    Reason,
    SelectorSpec,
    SingleEvent,
    Stream,
    SubscriptionRequest,
    Tick,
    TopicEvent,
    Wake,
    check_name,
)

_INT64 = 1 << 63


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
    timestamp = _integer(record, "timestamp")
    if record.keys() <= _NAMED_FIELDS:
        return TopicEvent(parent, lite_topic, event == "CREATED")
    return TopicEvent(parent, lite_topic, event == "CREATED", *_details(record), timestamp, _ttl(record))


def parse_plain_topic_events(payloads: Sequence[bytes | None], parent: str) -> tuple[list[str], list[bool]] | None:
    """Reads many topic events of one parent that are valid and say no more than nearly all do, by column.

    Returns:
        The names of the topics, and whether they were created; None where an event is another, right or wrong. What
        `parse_topic_event` says of each then takes twice as long.
    """
    records = _objects(payloads)
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
        and all(timestamp is None or -_INT64 <= timestamp < _INT64 for timestamp in set(timestamps))
    ):
        return names, [event == "CREATED" for event in events]
    return None


def _objects(payloads: Sequence[bytes | None]) -> list[dict[str, Any]] | None:
    """The JSON objects in many payloads, read in one go; None where one holds something else."""
    # Between them stands a number that nobody can foresee, so what begins in one payload cannot end in another.
    fence = secrets.randbits(63)
    try:
        values = orjson.loads(b"[%b]" % (b",%d," % fence).join(payloads))  # type: ignore[arg-type]  # None raises
    except (TypeError, orjson.JSONDecodeError):
        return None
    objects: list[Any] = values[::2]
    whole = len(objects) == len(payloads) and values[1::2] == [fence] * (len(payloads) - 1)
    return objects if whole and set(map(type, objects)) == {dict} else None


_PLAIN_FIELDS = ("event", "parentTopic", "liteTopic", "timestamp")
"""The fields that nearly all topic events have, and no others."""

_NAMED_FIELDS = frozenset({*_PLAIN_FIELDS, "lmqName"})


def _details(record: dict[str, Any]) -> tuple[str | None, dict[str, str] | None]:
    tags = _text(record, "tags") if record.get("tags") is not None else None
    properties = record.get("properties")
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values())
    ):
        raise Rejected(Reason.WRONG_TYPE, "properties must be an object whose values are strings")
    size = len(tags or "") + sum(len(key) + len(value) for key, value in (properties or {}).items())
    if size > MAX_DETAILS:
        raise Rejected(
            Reason.OUT_OF_RANGE, f"tags and properties have {size:,} characters; at most {MAX_DETAILS:,} are kept"
        )
    return tags, properties


def _ttl(record: dict[str, Any]) -> int | None:
    return _integer(record, "ttlMs", low=1, high=MAX_TTL_MS)


def parse_lmq_name(name: str) -> tuple[str, str]:
    """Splits `%LMQ%$<parent>$<child>` at the first `$` behind the prefix (RocketMQ `LiteUtil`).

    Raises:
        Rejected: the name has another form.
    """
    parent, separator, child = name.removeprefix(LMQ_PREFIX).partition("$")
    if not name.startswith(LMQ_PREFIX) or not separator or not parent.strip() or not child.strip():
        raise Rejected(Reason.BAD_LMQ_NAME, f"lmqName is {_show(name)}; it must be %LMQ%$<parent>$<lite topic>")
    return parent, child


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
    client_id, group = _name(record, "clientId"), _name(record, "group")
    everywhere = action is Action.COMPLETE_REMOVE and _is_blank(record.get("topic"))
    parent = "" if everywhere else _name(record, "topic")
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
        _notation(record),
        _selection(record),
        _place(record, "asOf"),
        record.get("expired") is True,
    )


def _notation(record: dict[str, Any]) -> Notation:
    dialect = record.get("dialect")
    if dialect is None:
        dialect = "lite"
    elif not isinstance(dialect, str) or dialect not in DIALECTS:
        raise Rejected(Reason.UNKNOWN_DIALECT, f"dialect is {_show(dialect)}; it must be one of {', '.join(DIALECTS)}")
    policy = record.get("policy")
    if policy is not None and (dialect != "wamp" or policy not in POLICIES):
        raise Rejected(
            Reason.OUT_OF_RANGE, f"policy is {_show(policy)}; dialect wamp has {', '.join(POLICIES)}, the others none"
        )
    delivery = record.get("delivery")
    if delivery not in (None, "per-client", "per-subscription"):
        raise Rejected(Reason.OUT_OF_RANGE, f"delivery is {_show(delivery)}; it must be per-client or per-subscription")
    per_subscription = dialect == "wamp" if delivery is None else delivery == "per-subscription"
    notation = Notation(dialect, policy, per_subscription)
    return LITE if notation == LITE else notation


def _selection(record: dict[str, Any]) -> SelectorSpec | None:
    selector = record.get("selector")
    if selector is None:
        return None
    if not isinstance(selector, dict):
        raise Rejected(Reason.WRONG_TYPE, f"selector must be an object, not {_kind(selector)}")
    selector = SelectorSpec(_text(selector, "type", "selector."), _text(selector, "expression", "selector."))
    if len(selector.text) > MAX_DETAILS:
        raise Rejected(Reason.OUT_OF_RANGE, f"selector.expression is longer than {MAX_DETAILS:,} characters")
    try:
        compile_selector(*selector)
    except (MatcherError, ValueError) as error:  # a user's own kind may raise any ValueError
        raise Rejected(Reason.INVALID_SELECTOR, str(error)) from None
    return selector


def _place(record: dict[str, Any], field: str) -> Place | None:
    value = record.get(field)
    if value is None:
        return None
    if not (isinstance(value, list) and [type(number) for number in value] in ([int] * 3, [int] * 4)):
        raise Rejected(Reason.WRONG_TYPE, f"{field} must be [partition, offset, timestamp, entry]")
    return Place(*value)


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


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
        _check_attributes(attributes)
        return GroupEvent(group, attributes, _checked_name(BIND_TOPIC, attributes[BIND_TOPIC]))
    parent = _name(record, "parentTopic") if record.get("parentTopic") is not None else None
    bound_to = _name(record, "boundTo") if record.get("boundTo") is not None else None
    return GroupEvent(group, attributes, parent, _place(record, "supersededBy"), bound_to)


def parse_clock(payload: bytes | None) -> Tick | Alarm | Wake:
    """Reads a record of the clock stream, which the job writes itself: `{"tick"}`, `{"alarm"}` or `{"wake"}`.

    Raises:
        Rejected: the payload is none of them.
    """
    record = _object(payload)
    if record.get("tick") is not None:
        return Tick(_required_integer(record, "tick"))
    kind = Alarm if record.get("alarm") is not None else Wake
    time = _required_integer(record, "alarm" if kind is Alarm else "wake")
    return kind(_name(record, "parentTopic"), _required_integer(record, "shard"), time)


def _check_attributes(attributes: Mapping[str, str]) -> None:
    model = attributes.get(MODEL, "Shared")
    if model.lower() not in ("shared", "exclusive"):
        raise Rejected(Reason.OUT_OF_RANGE, f"{MODEL} is {_show(model)}; it must be Shared or Exclusive")
    quota = attributes.get(QUOTA, str(UNLIMITED))
    if re.fullmatch(r"-1|[0-9]{1,18}", quota) is None:
        raise Rejected(
            Reason.OUT_OF_RANGE, f"{QUOTA} is {_show(quota)}; it must be a whole number, {UNLIMITED} for none"
        )


def _attribute(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and key != BIND_TOPIC:
        return str(value)
    raise Rejected(Reason.WRONG_TYPE, f"attribute {_show(key)} must be a string, not {_kind(value)}")


def _checked_name(field: str, text: str) -> str:
    problem = check_name(field, text)
    if problem is not None:
        raise Rejected(Reason.NAME_TOO_LONG if text.strip() else Reason.BLANK_NAME, problem)
    return text


def _name(record: dict[str, Any], field: str) -> str:
    value = record.get(field)
    if type(value) is str and len(value) <= SHORT_NAME and value.strip():
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


def _required_integer(record: dict[str, Any], field: str) -> int:
    value = _integer(record, field)
    if value is None:
        raise Rejected(Reason.MISSING_FIELD, f"{field} is missing")
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


PARSERS: Mapping[Stream, Callable[[bytes | None], SingleEvent]] = {
    Stream.GROUPS: parse_group_event,
    Stream.SUBSCRIPTIONS: parse_subscription,
    Stream.TOPICS: parse_topic_event,
    Stream.CLOCK: parse_clock,
}
"""The parser of each input stream; all raise `Rejected`."""
