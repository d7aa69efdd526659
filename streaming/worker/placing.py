"""Placement of a record's entries on keys, in plain Python, as `streaming.spark.route` places them in the JVM."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from streaming import coordinator
from streaming.events.json_fields import depth
from streaming.events.json_text import requests_of
from streaming.events.model import BIND_TOPIC, Stream
from streaming.events.routing import Routing

_JVM_DEPTH = 999
"""Number of levels to which JSON may nest for the JVM's parser, which gets it in an array."""

_INT32, _INT64 = 1 << 31, 1 << 63
"""Number of non-negative integers of the JVM's types; it reads a larger one as none."""


class Placed(NamedTuple):
    """An entry of a record on one of its keys.

    Attributes:
        entry: see `InputRow`.
    """

    parent: str
    shard: int
    entry: int
    payload: bytes | None


def placed(stream: Stream, value: bytes | None, routing: Routing) -> list[Placed]:
    """Return the entries of a record, once for each key that must see them; any bytes are placed somewhere."""
    try:
        record = orjson.loads(value or b"") if depth(value or b"") <= _JVM_DEPTH else None
    except orjson.JSONDecodeError:
        record = None
    found = _PLACEMENTS[stream](record, value, routing) if isinstance(record, dict) else []
    return found or [Placed(coordinator.COORDINATOR, coordinator.UNROUTABLE, 0, value)]


def _place_topic(record: dict[str, Any], payload: bytes | None, routing: Routing) -> list[Placed]:
    parent, topic, name = record.get("parentTopic"), record.get("liteTopic"), record.get("lmqName")
    if name and isinstance(name, str):
        _, _, rest = name.partition("$")
        lmq_parent, _, lmq_topic = rest.partition("$")
        parent, topic = parent or lmq_parent, topic or lmq_topic
    if not isinstance(parent, str):
        return []
    name = topic if isinstance(topic, str) else ""  # any shard reports that it is no name
    return [Placed(parent, routing.shard_of(parent, name), 0, payload)]


def _place_subscription(record: dict[str, Any], payload: bytes | None, routing: Routing) -> list[Placed]:
    entries = record.get("subscriptionSet")
    if not isinstance(entries, list) or not entries:
        return _place_request(record, 0, payload, routing)
    first_null = entries.index(None) if None in entries else None  # it stands for all others
    return [
        each
        for position, (entry, text) in enumerate(zip(entries, requests_of(payload or b""), strict=False))
        if entry is not None or position == first_null
        for each in _place_request(entry, position, text, routing)
    ]


def _place_request(entry: Any, position: int, payload: bytes | None, routing: Routing) -> list[Placed]:
    fields = entry if isinstance(entry, dict) else {}
    parent, group = fields.get("topic"), fields.get("group")
    bucket = coordinator.bucket_of(group) if isinstance(group, str) else coordinator.UNROUTABLE
    if not isinstance(parent, str) or not parent.strip():
        return [Placed(coordinator.COORDINATOR, bucket, 2 * position + 1, payload)]
    return [
        Placed(coordinator.COORDINATOR, bucket, 2 * position, payload),
        *(Placed(parent, shard, 2 * position, payload) for shard in range(routing.shard_count(parent))),
    ]


def _place_group(record: dict[str, Any], payload: bytes | None, routing: Routing) -> list[Placed]:
    attributes, group = record.get("attributes"), record.get("group")
    bound = attributes.get(BIND_TOPIC) if isinstance(attributes, dict) else None
    parent = bound or (record.get("parentTopic") if isinstance(attributes, dict) else None)
    bucket = coordinator.bucket_of(group) if isinstance(group, str) else coordinator.UNROUTABLE
    found = [Placed(coordinator.COORDINATOR, bucket, 0, payload)]
    if isinstance(parent, str) and parent:
        found += [Placed(parent, shard, 0, payload) for shard in range(routing.shard_count(parent))]
    return found


def _place_clock(record: dict[str, Any], payload: bytes | None, _: Routing) -> list[Placed]:
    parent, shard = record.get("parentTopic"), record.get("shard")
    if _is_integer(record.get("tick"), _INT64):
        return [
            Placed(coordinator.COORDINATOR, bucket, int(bucket > 0), payload) for bucket in range(coordinator.BUCKETS)
        ]
    if not isinstance(parent, str):
        return []
    if _is_integer(record.get("alarm"), _INT64):
        return [Placed(coordinator.COORDINATOR, coordinator.bucket_of(parent), 0, payload)]
    if isinstance(shard, int) and _is_integer(shard, _INT32) and _is_integer(record.get("wake"), _INT64):
        return [Placed(parent, shard, 0, payload)]
    return []


def _is_integer(value: Any, count: int) -> bool:
    """Tell whether a value is an integer of the type that has `count` non-negative ones."""
    return type(value) is int and -count <= value < count


_PLACEMENTS: Mapping[Stream, Callable[[dict[str, Any], bytes | None, Routing], list[Placed]]] = {
    Stream.TOPICS: _place_topic,
    Stream.SUBSCRIPTIONS: _place_subscription,
    Stream.GROUPS: _place_group,
    Stream.CLOCK: _place_clock,
}
