"""Parser of clock records, which the job itself writes, and those who ask it something."""

from typing import Any

from streaming.events.json_fields import json_object, required_integer, required_name
from streaming.events.model import Alarm, Tick, Wake


def parse_clock(payload: bytes | None) -> Tick | Alarm | Wake:
    """Parse a record of the clock stream.

    Raises:
        Rejected: the payload is not a valid record of the clock stream.
    """
    return read_clock(json_object(payload))


def read_clock(record: dict[str, Any]) -> Tick | Alarm | Wake:
    """Read a record of the clock stream from its fields: `{"tick"}`, `{"alarm"}` or `{"wake"}`.

    A tick or a wake may carry a question, as `inquiry`; it is looked at by who answers.

    Raises:
        Rejected: the fields are those of none of them.
    """
    asked = record.get("inquiry")
    inquiry = asked if isinstance(asked, dict) else None
    if record.get("tick") is not None:
        return Tick(required_integer(record, "tick"), inquiry)
    is_alarm = record.get("alarm") is not None
    time = required_integer(record, "alarm" if is_alarm else "wake")
    parent, shard = required_name(record, "parentTopic"), required_integer(record, "shard")
    return Alarm(parent, shard, time) if is_alarm else Wake(parent, shard, time, inquiry)
