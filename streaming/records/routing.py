"""Routing of topics, subscription entries and groups to the keys of the job.

The shard of a topic is the CRC-32 of its first `route_depth` segments, modulo the parent's number of shards; depth 0
hashes the whole name. `Route.java` computes the same in the JVM. A subscription request reaches every shard
of its parent, because its version, and its replacement of the former set, concern all of them. Each shard keeps only
the entries that can match one of its topics. Groups, clients and alarms are spread over the coordinator's keys.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from matcher import InvalidPattern
from matcher.dialects import get_dialect
from streaming.records.json_fields import depth
from streaming.records.model import BIND_TOPIC, LITE, LMQ_PREFIX, Notation, Stream

SEPARATOR = "__"
_WILDCARDS = frozenset({"*", "**"})


@dataclass(frozen=True, slots=True)
class Routing:
    """Distribution of topics over shards; part of a checkpoint's identity.

    Attributes:
        shards: number of shards by parent; others have one.
        depth: number of leading segments that decide; 0 for all of them.
    """

    shards: Mapping[str, int] = field(default_factory=dict)
    depth: int = 1

    def shard_count(self, parent: str) -> int:
        """Return the number of shards of a parent."""
        return self.shards.get(parent, 1)

    def shard_of(self, parent: str, lite_topic: str) -> int:
        """Return the number of the shard to which a topic belongs."""
        count = self.shard_count(parent)
        return 0 if count == 1 else self.number_of(lite_topic) % count

    def number_of(self, lite_topic: str) -> int:
        """Return the hash of a topic, from 0 to 2^32 - 1; its remainder by the number of shards is the shard."""
        return zlib.crc32(self.prefix_of(lite_topic).encode())

    def prefix_of(self, lite_topic: str) -> str:
        """Return the part of a topic's name that decides its shard."""
        return SEPARATOR.join(self._routed_segments(lite_topic))

    def may_touch(self, parent: str, entry: str, shard: int, notation: Notation = LITE) -> bool:
        """Return True if an entry, taken as a name or as a pattern, can match a topic of a shard."""
        return (
            self.shard_count(parent) == 1
            or self.shard_of(parent, entry) == shard
            or self.may_touch_all(entry, notation)
        )

    def may_touch_all(self, entry: str, notation: Notation = LITE) -> bool:
        """Return True if an entry can match topics of every shard, and not only the topic of the same name."""
        if notation.dialect == LITE.dialect:
            return not _WILDCARDS.isdisjoint(self._routed_segments(entry))
        try:  # dialects have other separators than routing
            return get_dialect(notation.dialect).parse(entry, policy=notation.policy).literal != entry
        except InvalidPattern:
            return True

    def _routed_segments(self, text: str) -> list[str]:
        segments = text.split(SEPARATOR)
        return segments[: self.depth] if self.depth else segments


COORDINATOR = ""
"""Parent topic in the keys of the coordinator; no topic has a blank name."""

BUCKETS = 16
"""Number of keys over which groups, clients and alarms are spread."""

UNROUTABLE = -1
"""Number of the key for records that the JVM cannot route."""

OVERSIZE = -2
"""Number of the key for records whose value is too large.

The payload of such a row is the size of the value in bytes, a line feed, and the beginning of the value.
"""


def bucket_of(name: str) -> int:
    """Return the bucket of a group and its clients, or of a parent's alarms, as `Route.java` computes it."""
    return zlib.crc32(name.encode()) % BUCKETS


_JVM_DEPTH = 999
"""Number of levels to which JSON may nest for the JVM's parser."""

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)
"""String, bracket or comma: the tokens that a split distinguishes."""

_STRING: Final = re.compile(rb'\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*', re.DOTALL)

_INT32, _INT64 = 1 << 31, 1 << 63
"""Number of non-negative integers of the JVM's types; it reads larger integers as null."""


class Placed(NamedTuple):
    """An entry of a record on one of its keys; `entry` as in `InputRow`."""

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
    return found or [Placed(COORDINATOR, UNROUTABLE, 0, value)]


def _place_topic(record: dict[str, Any], payload: bytes | None, routing: Routing) -> list[Placed]:
    parent, topic, name = map(_text, map(record.get, ("parentTopic", "liteTopic", "lmqName")))
    if name is not None and name.startswith(LMQ_PREFIX):
        lmq_parent, separator, lmq_topic = name.removeprefix(LMQ_PREFIX).partition("$")
        if separator:
            parent = lmq_parent if parent is None else parent
            topic = lmq_topic if topic is None else topic
    if parent is None:
        return []
    # any shard reports that a missing topic is no name
    return [Placed(parent, routing.shard_of(parent, topic or ""), 0, payload)]


def _place_subscription(record: dict[str, Any], payload: bytes | None, routing: Routing) -> list[Placed]:
    entries = record.get("subscriptionSet")
    if not isinstance(entries, list) or not entries:
        return _place_request(record, 0, payload, routing)
    first_null = entries.index(None) if None in entries else None  # it represents all others
    return [
        each
        for position, (entry, text) in enumerate(zip(entries, requests_of(payload or b""), strict=False))
        if entry is not None or position == first_null
        for each in _place_request(entry, position, text, routing)
    ]


def _place_request(entry: Any, position: int, payload: bytes | None, routing: Routing) -> list[Placed]:
    fields = entry if isinstance(entry, dict) else {}
    parent, bucket = _text(fields.get("topic")), _bucket_of(fields.get("group"))
    if parent is None or not parent.strip():
        return [Placed(COORDINATOR, bucket, 2 * position + 1, payload)]
    return [
        Placed(COORDINATOR, bucket, 2 * position, payload),
        *(Placed(parent, shard, 2 * position, payload) for shard in range(routing.shard_count(parent))),
    ]


def _place_group(record: dict[str, Any], payload: bytes | None, routing: Routing) -> list[Placed]:
    attributes = record.get("attributes")
    found = [Placed(COORDINATOR, _bucket_of(record.get("group")), 0, payload)]
    if isinstance(attributes, dict):
        parent = _text(attributes.get(BIND_TOPIC)) or _text(record.get("parentTopic"))
        if parent:
            found += [Placed(parent, shard, 0, payload) for shard in range(routing.shard_count(parent))]
    return found


def _place_clock(record: dict[str, Any], payload: bytes | None, _: Routing) -> list[Placed]:
    parent, shard = record.get("parentTopic"), record.get("shard")
    if _is_integer(record.get("tick"), _INT64):
        return [Placed(COORDINATOR, bucket, int(bucket > 0), payload) for bucket in range(BUCKETS)]
    if not isinstance(parent, str):
        return []
    if _is_integer(record.get("alarm"), _INT64):
        return [Placed(COORDINATOR, bucket_of(parent), 0, payload)]
    if isinstance(shard, int) and _is_integer(shard, _INT32) and _is_integer(record.get("wake"), _INT64):
        return [Placed(parent, shard, 0, payload)]
    return []


def _bucket_of(group: Any) -> int:
    return bucket_of(group) if isinstance(group, str) else UNROUTABLE


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _is_integer(value: Any, count: int) -> bool:
    """Return True if a value is an integer of the type that has `count` non-negative ones."""
    return type(value) is int and -count <= value < count


_PLACEMENTS: Mapping[Stream, Callable[[dict[str, Any], bytes | None, Routing], list[Placed]]] = {
    Stream.TOPICS: _place_topic,
    Stream.SUBSCRIPTIONS: _place_subscription,
    Stream.GROUPS: _place_group,
    Stream.CLOCK: _place_clock,
}


def requests_of(payload: bytes) -> list[bytes]:
    """Return the text of each request in a JSON object, in order.

    The list is empty if a field is repeated. A record without a set of requests is one request.
    """
    fields = list(_fields(payload))
    names = [name for name, _ in fields]
    listed = next((text for name, text in reversed(fields) if name == "subscriptionSet"), b"")
    requests = list(_parts(listed)) if listed.startswith(b"[") else []
    if not requests:
        return [payload]
    return requests if len(set(names)) == len(names) else []


def _fields(text: bytes) -> Iterator[tuple[str, bytes]]:
    for part in _parts(text):
        name = _STRING.match(part)
        if name is not None:
            yield orjson.loads(name[1]), part[name.end() :]


def _parts(text: bytes) -> Iterator[bytes]:
    """Yield the text of each field or element of a JSON object or array."""
    depth = start = 0
    for token in _TOKEN.finditer(text):
        kind = token[0]
        if kind in (b"[", b"{"):
            depth += 1
            start = token.end() if depth == 1 else start
        elif kind in (b"]", b"}"):
            depth -= 1
            if depth == 0 and (last := text[start : token.start()].strip()):
                yield last
        elif kind == b"," and depth == 1:
            yield text[start : token.start()].strip()
            start = token.end()
