"""Fields of JSON records, checked; invalid ones raise `Rejected` with a reason and a message for the user."""

import json
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, TypeVar

import orjson

from matcher.dialects import DIALECTS
from matcher.errors import MatcherError
from matcher.selectors import compile as compile_selector
from streaming.errors import Rejected
from streaming.records.model import (
    LITE,
    MAX_DETAILS,
    SHORT_NAME,
    Action,
    End,
    Notation,
    Place,
    Reason,
    SelectorSpec,
    Stream,
    SubscriptionRequest,
    check_name,
)

T = TypeVar("T")

INT64 = 1 << 63
"""Number of non-negative 64-bit integers; integers outside of 64 bits are rejected."""

MAX_DEPTH = 32
"""Maximum number of arrays and objects around a value; the fields that the job reads need 5.

Encoders and recursive readers have their own limits, from 254 levels on. No value that reaches them is that deep.
"""

OWN_FIELDS: Mapping[Stream, Mapping[str, tuple[Any, ...]]] = {
    Stream.SUBSCRIPTIONS: {
        **dict.fromkeys(("asOf", "ends", "through", "laterCount", "piece"), (None,)),
        **dict.fromkeys(("expired", "continues", "forgets"), (None, False)),
        "later": (None, []),
    },
    Stream.GROUPS: dict.fromkeys(("supersededBy", "boundTo"), (None,)),
    Stream.TOPICS: {},
    Stream.CLOCK: {},
}
"""Fields for the job alone, by the stream of their record, with the values that set nothing."""

_NO_BRACKETS = bytes(sorted({*range(256)} - set(b"[]{}")))
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def json_object(payload: bytes | None) -> dict[str, Any]:
    """Return the JSON object in a payload. Repeated fields are rejected, because parsers disagree on them."""
    if payload is None:
        raise Rejected(Reason.NOT_JSON, "the record has no value")
    if payload.count(b"[") + payload.count(b"{") > MAX_DEPTH and depth(payload) > MAX_DEPTH:
        raise Rejected(Reason.TOO_DEEP, f"the value nests deeper than {MAX_DEPTH} levels")
    try:
        record = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise Rejected(Reason.NOT_JSON, f"the value is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise Rejected(Reason.WRONG_TYPE, f"the value must be a JSON object, not {type_of(record)}")
    # Each field has a colon. So if there are no more colons than fields, none is repeated: nearly always.
    fields = len(record) + sum(len(value) for value in record.values() if type(value) is dict)
    if payload.count(b":") != fields:
        json.loads(payload.decode(), object_pairs_hook=_object, parse_int=str, parse_float=str)
    return record


def depth(payload: bytes) -> int:
    """Return the number of levels to which JSON text nests, without parsing it."""
    outside = payload
    if b'"' in payload:
        # Backslashes escape each other in pairs, from the left. The quotes that are left begin and end strings.
        plain = payload.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in payload else payload
        outside = b"".join(plain.split(b'"')[::2])
    steps = map(_STEPS.__getitem__, outside.translate(None, _NO_BRACKETS))
    return max(accumulate(steps, initial=0))


def _object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) < len(fields):
        counts = Counter(name for name, _ in fields)
        repeated = next(name for name, count in counts.items() if count > 1)
        raise Rejected(Reason.DUPLICATE_FIELD, f"the field {excerpt(repeated)} is repeated in one object")
    return found


def required_text(record: dict[str, Any], field: str, prefix: str = "") -> str:
    """Return a string; messages put the prefix before the name of the field."""
    value = record.get(field)
    if isinstance(value, str):
        return value
    required(f"{prefix}{field}", value)
    raise Rejected(Reason.WRONG_TYPE, f"{prefix}{field} must be a string, not {type_of(value)}")


def required_name(record: dict[str, Any], field: str) -> str:
    """Return the name of a topic, client or group."""
    value = record.get(field)
    if type(value) is str and len(value) <= SHORT_NAME and value.strip():
        return value  # nearly always
    return checked_name(field, required_text(record, field))


def optional_name(record: dict[str, Any], field: str) -> str | None:
    """Return the name of a topic, client or group, or None if the field is missing or null."""
    return None if record.get(field) is None else required_name(record, field)


def checked_name(field: str, text: str) -> str:
    """Return a text if it can be the name of a topic, client or group."""
    problem = check_name(field, text)
    if problem is not None:
        raise Rejected(Reason.NAME_TOO_LONG if text.strip() else Reason.BLANK_NAME, problem)
    return text


def optional_integer(
    record: dict[str, Any], field: str, low: int = -INT64, high: int = INT64 - 1, prefix: str = ""
) -> int | None:
    """Return an integer from `low` to `high`, or None if the field is missing or null."""
    value = record.get(field)
    if value is None:
        return None
    if type(value) is float and abs(value) >= INT64:
        raise Rejected(Reason.OUT_OF_RANGE, f"{prefix}{field} is too large; it must be from {low} to {high}")
    if type(value) is not int:
        raise Rejected(Reason.WRONG_TYPE, f"{prefix}{field} must be a whole number, not {type_of(value)}")
    if not low <= value <= high:
        raise Rejected(Reason.OUT_OF_RANGE, f"{prefix}{field} is {value}; it must be from {low} to {high}")
    return value


def optional_place(record: dict[str, Any], field: str) -> Place | None:
    """Return a place in a stream, or None if the field is missing or null."""
    value = record.get(field)
    if value is None:
        return None
    if not (isinstance(value, list) and [type(number) for number in value] in ([int] * 3, [int] * 4)):
        raise Rejected(Reason.WRONG_TYPE, f"{field} must be [partition, offset, timestamp, entry]")
    return Place(*value)


def required(field: str, value: T | None) -> T:
    """Return the value of an optional field that must be there."""
    if value is None:
        raise Rejected(Reason.MISSING_FIELD, f"{field} is missing")
    return value


def wrong_value(field: str, value: Any, allowed: str, reason: Reason = Reason.OUT_OF_RANGE) -> Rejected:
    """Return the rejection of a value that is not one of the allowed values."""
    return Rejected(reason, f"{field} is {excerpt(value)}; it must be {allowed}")


def optional_object(record: dict[str, Any], field: str) -> dict[str, Any] | None:
    """Return an object, or None if the field is missing or null."""
    value = record.get(field)
    if value is None or isinstance(value, dict):
        return value
    raise Rejected(Reason.WRONG_TYPE, f"{field} must be an object, not {type_of(value)}")


def type_of(value: Any) -> str:
    """Return the JSON type of a value in words."""
    if value is None:
        return "null"
    types = {bool: "a boolean", str: "a string", list: "an array", dict: "an object", float: "a fraction"}
    return types.get(type(value), "a number")


def excerpt(value: Any, limit: int = 80) -> str:
    """Return a value as JSON for a message, cut after a number of characters; its type if it has no JSON."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        return type_of(value)
    return text if len(text) <= limit else text[:limit] + "..."


def read_subscription(record: dict[str, Any]) -> SubscriptionRequest:
    """Read one entry of a subscription record; raise `Rejected` if invalid.

    The entries of its set are returned unchecked: the group decides if they are names or patterns.
    """
    if "subscriptionSet" in record:
        raise Rejected(Reason.WRONG_TYPE, "subscriptionSet must be an array of objects, at least one")
    return _request(record)


def _request(record: dict[str, Any], *, repeated: bool = False) -> SubscriptionRequest:
    action = _action(record)
    client_id, group, topic = required_name(record, "clientId"), required_name(record, "group"), record.get("topic")
    is_blank = topic is None or (isinstance(topic, str) and not topic.strip())
    request = SubscriptionRequest(
        "" if is_blank and action is Action.COMPLETE_REMOVE else required_name(record, "topic"),
        group,
        client_id,
        action,
        _entries(record, action),
        optional_integer(record, "version") if "version" in record else None,
        _offset_option(record),
        _notation(record),
        _selector(record, stored=repeated),
    )
    if OWN_FIELDS[Stream.SUBSCRIPTIONS].keys().isdisjoint(record):
        return request
    piece = record.get("piece")
    if piece is not None and not (isinstance(piece, list) and list(map(type, piece)) == [int, str]):
        raise Rejected(Reason.WRONG_TYPE, "piece must be an array of a number and a text")
    return request._replace(
        as_of=optional_place(record, "asOf"),
        expired=record.get("expired") is True,
        ends=_ends(record),
        later=_later(record),
        through=optional_place(record, "through"),
        continues=record.get("continues") is True,
        later_count=optional_integer(record, "laterCount"),
        forgets=record.get("forgets") is True,
        piece=None if piece is None else (piece[0], piece[1]),
    )


def parse_repeated(text: str, end: SubscriptionRequest) -> tuple[Place, SubscriptionRequest]:
    """Parse a request from its joined pieces in an end; raise `Rejected`."""
    fields = json_object(text.encode())
    names = {"clientId": end.client_id, "group": end.group, "topic": end.parent}
    return _placed_request({**fields, **names})


def _placed_request(record: dict[str, Any], *, repeated: bool = False) -> tuple[Place, SubscriptionRequest]:
    return required("place", optional_place(record, "place")), _request(record, repeated=repeated)


def _ends(record: dict[str, Any]) -> Mapping[str, End] | None:
    ends = record.get("ends")
    if ends is None:
        return None
    if not (isinstance(ends, dict) and all(isinstance(end, dict) for end in ends.values())):
        raise Rejected(Reason.WRONG_TYPE, "ends must be an object of objects")
    return {
        mode: End(
            required("place", optional_place(end, "place")),
            optional_integer(end, "version"),
            optional_integer(end, "known"),
            end.get("forgets") is True,
        )
        for mode, end in ends.items()
    }


def _later(record: dict[str, Any]) -> tuple[tuple[Place, SubscriptionRequest], ...]:
    later = record.get("later") or []
    if not (isinstance(later, list) and all(isinstance(request, dict) for request in later)):
        raise Rejected(Reason.WRONG_TYPE, "later must be an array of objects")
    if any("later" in request for request in later):
        raise Rejected(Reason.WRONG_TYPE, "the requests in later must not have later themselves")
    common = {name: record.get(name) for name in ("clientId", "group", "topic")}
    return tuple(_placed_request({**request, **common}, repeated=True) for request in later)


def _action(record: dict[str, Any]) -> Action:
    action = required_text(record, "action")
    if action not in Action.__members__:
        raise wrong_value("action", action, f"one of {', '.join(Action.__members__)}", Reason.UNKNOWN_ACTION)
    return Action(action)


def _entries(record: dict[str, Any], action: Action) -> tuple[str, ...]:
    entries = record.get("liteTopicSet")
    if entries is None and action is Action.COMPLETE_REMOVE:
        return ()
    if entries is None:
        raise Rejected(
            Reason.MISSING_FIELD, "liteTopicSet is missing; in a wildcard group [] subscribes to every topic"
        )
    if not (isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)):
        raise Rejected(Reason.WRONG_TYPE, "liteTopicSet must be an array of strings")
    return tuple(dict.fromkeys(entries))


def _offset_option(record: dict[str, Any]) -> Mapping[str, Any] | None:
    option = optional_object(record, "offsetOption")
    if option is None:
        return None
    kind = required_text(option, "type", "offsetOption.")
    if kind not in ("POLICY", "OFFSET", "TAIL_N", "TIMESTAMP"):
        raise wrong_value("offsetOption.type", kind, "POLICY, OFFSET, TAIL_N or TIMESTAMP")
    return {"type": kind, "value": optional_integer(option, "value", prefix="offsetOption.")}


def _notation(record: dict[str, Any]) -> Notation:
    dialect = record.get("dialect")
    if dialect is None:
        dialect = "lite"
    elif not isinstance(dialect, str) or dialect not in DIALECTS:
        raise wrong_value("dialect", dialect, f"one of {', '.join(DIALECTS)}", Reason.UNKNOWN_DIALECT)
    policy, policies = record.get("policy"), DIALECTS[dialect].policies
    if policy is not None and policy not in policies:
        allowed = ", ".join(policies) or "no match policies"
        raise Rejected(Reason.OUT_OF_RANGE, f"policy is {excerpt(policy)}; dialect {dialect} has {allowed}")
    delivery = record.get("delivery")
    if delivery not in (None, "per-client", "per-subscription"):
        raise wrong_value("delivery", delivery, "per-client or per-subscription")
    per_subscription = dialect == "wamp" if delivery is None else delivery == "per-subscription"
    notation = Notation(dialect, policy, per_subscription)
    return LITE if notation == LITE else notation


def _selector(record: dict[str, Any], *, stored: bool) -> SelectorSpec | None:
    value = optional_object(record, "selector")
    if value is None:
        return None
    selector = SelectorSpec(required_text(value, "type", "selector."), required_text(value, "expression", "selector."))
    if len(selector.text) > MAX_DETAILS:
        raise Rejected(Reason.OUT_OF_RANGE, f"selector.expression is longer than {MAX_DETAILS:,} characters")
    try:
        compile_selector(*selector, stored=stored)
    except (MatcherError, ValueError) as error:  # a user-defined kind may raise any ValueError
        raise Rejected(Reason.INVALID_SELECTOR, str(error)) from None
    except Exception as error:
        message = f"the selector kind {excerpt(selector.kind)} raised {type(error).__name__} for this expression"
        raise Rejected(Reason.INVALID_SELECTOR, message) from error
    return selector
