"""Parser of clock records, which the job itself writes."""

from streaming.events.json_fields import json_object, required_integer, required_name
from streaming.events.model import Alarm, Tick, Wake


def parse_clock(payload: bytes | None) -> Tick | Alarm | Wake:
    """Parse a record of the clock stream: `{"tick"}`, `{"alarm"}` or `{"wake"}`.

    Raises:
        Rejected: the payload is none of them.
    """
    record = json_object(payload)
    if record.get("tick") is not None:
        return Tick(required_integer(record, "tick"))
    kind = Alarm if record.get("alarm") is not None else Wake
    time = required_integer(record, "alarm" if kind is Alarm else "wake")
    return kind(required_name(record, "parentTopic"), required_integer(record, "shard"), time)
