"""Builders of records of the updates topic."""

from itertools import count
from typing import Any

import orjson

from streaming.client import Row

Record = tuple[bytes, bytes | None]

_ids = count()


def key(topic: str = "t", client: str = "c", group: str = "g", parent: str = "p", part: str | None = None) -> bytes:
    """The key of an update."""
    return orjson.dumps([parent, group, client, topic, *([] if part is None else [part])])


def value(op: Any = "ADD", **changes: Any) -> bytes:
    """The value of an update with an eventId of its own, with changes; `...` leaves a field out."""
    base = {"op": op, "patterns": ["*"], "cause": "SUBSCRIBED", "version": None, "eventId": f"e{next(_ids)}"}
    fields = {**base, "source": {"topic": "lite-topic-events", "partition": 0, "offset": 7}, **changes}
    return orjson.dumps({name: field for name, field in fields.items() if field is not ...})


def add(topic: str = "t", *, changes: dict[str, Any] | None = None, **names: Any) -> Record:
    """An ADD."""
    return key(topic, **names), value("ADD", **(changes or {}))


def remove(topic: str = "t", *, changes: dict[str, Any] | None = None, **names: Any) -> Record:
    """A REMOVE; its tombstone is a record of its own."""
    return key(topic, **names), value("REMOVE", **(changes or {}))


def gone(topic: str = "t", **names: Any) -> Record:
    """A tombstone."""
    return key(topic, **names), None


def names(row: Row) -> tuple[str | None, ...]:
    """Return the names of a row, in the order of its key."""
    return row.parent, row.group, row.client_id, row.lite_topic, row.part
