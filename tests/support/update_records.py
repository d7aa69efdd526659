"""Builders of records of the updates topic."""

from itertools import count
from typing import Any

import orjson

from streaming.client import Row
from streaming.oracle import Effective
from streaming.records.writing import update_key

Record = tuple[bytes, bytes | None]

_ids = count()


def key(topic: str = "t", client: str = "c", group: str = "g", parent: str = "p", part: str | None = None) -> bytes:
    return orjson.dumps([parent, group, client, topic, *([] if part is None else [part])])


def value(op: Any = "ADD", **changes: Any) -> bytes:
    """Return the value of an update with a new `eventId` and changes; `...` omits a field."""
    base = {"op": op, "patterns": ["*"], "cause": "SUBSCRIBED", "version": None, "eventId": f"e{next(_ids)}"}
    fields = {**base, "source": {"topic": "lite-topic-events", "partition": 0, "offset": 7}, **changes}
    return orjson.dumps({name: field for name, field in fields.items() if field is not ...})


def add(topic: str = "t", *, changes: dict[str, Any] | None = None, **names: Any) -> Record:
    return key(topic, **names), value("ADD", **(changes or {}))


def remove(topic: str = "t", *, changes: dict[str, Any] | None = None, **names: Any) -> Record:
    """Return a REMOVE, without its tombstone."""
    return key(topic, **names), value("REMOVE", **(changes or {}))


def gone(topic: str = "t", **names: Any) -> Record:
    return key(topic, **names), None


def forged(op: str, row: Effective, **changes: Any) -> list[Record]:
    """Return the records that a stale driver writes about a row: an update, and after a REMOVE its tombstone."""
    names = {"parentTopic": row.parent, "group": row.group, "clientId": row.client_id, "liteTopic": row.lite_topic}
    update = update_key(*row), value(op, **{**names, **changes})
    return [update] if op == "ADD" else [update, (update[0], None)]


def names(row: Row) -> tuple[str | None, ...]:
    return row.parent, row.group, row.client_id, row.lite_topic, row.part
