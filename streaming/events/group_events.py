"""Parser of group events."""

import re
from collections.abc import Mapping
from typing import Any

from streaming.errors import Rejected
from streaming.events.json_fields import (
    checked_name,
    excerpt,
    json_object,
    optional_name,
    optional_place,
    required_name,
    type_of,
)
from streaming.events.model import BIND_TOPIC, MODEL, QUOTA, UNLIMITED, GroupEvent, Reason


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
