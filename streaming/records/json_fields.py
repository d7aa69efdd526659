"""Fields of JSON records, checked. Invalid fields raise `Rejected` with a reason and a message for the user."""

import json
from collections import Counter
from itertools import accumulate
from typing import Any

import orjson

from streaming.errors import Rejected
from streaming.records.model import SHORT_NAME, Place, Reason, check_name

INT64 = 1 << 63
"""Number of non-negative 64-bit integers; integers outside of 64 bits are rejected."""

MAX_DEPTH = 32
"""Maximum number of arrays and objects around a value; the fields that the job reads need 5.

Encoders and recursive readers have their own limits, from 254 levels on. No value that reaches them is that deep.
"""

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
        _check_repetitions(payload)
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


def _check_repetitions(payload: bytes) -> None:
    json.loads(payload.decode(), object_pairs_hook=_object, parse_int=str, parse_float=str)


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
    if value is None:
        raise Rejected(Reason.MISSING_FIELD, f"{prefix}{field} is missing")
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


def required_integer(record: dict[str, Any], field: str) -> int:
    """Return a 64-bit integer."""
    value = optional_integer(record, field)
    if value is None:
        raise Rejected(Reason.MISSING_FIELD, f"{field} is missing")
    return value


def optional_place(record: dict[str, Any], field: str) -> Place | None:
    """Return a place in a stream, or None if the field is missing or null."""
    value = record.get(field)
    if value is None:
        return None
    if not (isinstance(value, list) and [type(number) for number in value] in ([int] * 3, [int] * 4)):
        raise Rejected(Reason.WRONG_TYPE, f"{field} must be [partition, offset, timestamp, entry]")
    return Place(*value)


def required_place(record: dict[str, Any], field: str) -> Place:
    """Return a place in a stream."""
    place = optional_place(record, field)
    if place is None:
        raise Rejected(Reason.MISSING_FIELD, f"{field} is missing")
    return place


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
