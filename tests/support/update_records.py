"""Builders of records of the updates topic."""

from itertools import count
from typing import Any

import orjson

from streaming.client import Row

Record = tuple[bytes, bytes | None]

_ids = count()


def key(topic: str = "t", client: str = "c", group: str = "g", parent: str = "p", part: str | None = None) -> bytes:
    """Return the key of an update."""
    return orjson.dumps([parent, group, client, topic, *([] if part is None else [part])])


def value(op: Any = "ADD", **changes: Any) -> bytes:
    """Return the value of an update with a new `eventId` and changes; `...` omits a field."""
    base = {"op": op, "patterns": ["*"], "cause": "SUBSCRIBED", "version": None, "eventId": f"e{next(_ids)}"}
    fields = {**base, "source": {"topic": "lite-topic-events", "partition": 0, "offset": 7}, **changes}
    return orjson.dumps({name: field for name, field in fields.items() if field is not ...})


def add(topic: str = "t", *, changes: dict[str, Any] | None = None, **names: Any) -> Record:
    """Return an ADD."""
    return key(topic, **names), value("ADD", **(changes or {}))


def remove(topic: str = "t", *, changes: dict[str, Any] | None = None, **names: Any) -> Record:
    """Return a REMOVE, without its tombstone."""
    return key(topic, **names), value("REMOVE", **(changes or {}))


def gone(topic: str = "t", **names: Any) -> Record:
    """Return a tombstone."""
    return key(topic, **names), None


def names(row: Row) -> tuple[str | None, ...]:
    """Return the names of a row, in the order of its key."""
    return row.parent, row.group, row.client_id, row.lite_topic, row.part
