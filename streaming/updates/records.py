"""Output records: updates and dead letters, as keys and values for Kafka."""

import base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import orjson

from streaming.events.model import Reason, Source, lmq_name
from streaming.subscription.interests import SHARE
from streaming.subscription.subscribers import SubscriberKey
from streaming.updates.model import Cause, Op, Update

MAX_ORIGINAL_BYTES = 65_536
"""How much of an original a dead letter carries; the rest stands at its source coordinates."""

MAX_PATTERN_BYTES = 262_144
"""How much room the matched patterns of one update may take; a record must stay below Kafka's 1 MB."""

_DIGEST_BYTES = 8

_EVENTS_KEPT = 10_000
"""Of so many topics a writer keeps what their updates share: the receivers of one may come far apart."""

_RECEIVERS_KEPT = 16_384
"""For so many receivers of all shards a process keeps it; a busy one receives in each micro-batch."""

OPS = {op: f'{{"op":"{op}",'.encode() for op in Op}
"""How an update begins."""


class KafkaRecord(NamedTuple):
    """A Kafka record; a value of None lets compaction forget the key."""

    key: bytes
    value: bytes | None


def update_key(parent: str, group: str, client_id: str, lite_topic: str, part: str = "") -> bytes:
    """The key of an update: a JSON array, the same for all updates of one row of the relation."""
    return orjson.dumps(
        (parent, group, client_id, lite_topic, part) if part else (parent, group, client_id, lite_topic)
    )


class _SubscriberJson(NamedTuple):
    """What all updates of one receiver share, as JSON."""

    key: bytes
    key_end: bytes
    names: bytes
    version: bytes
    digest: bytes


class _EventJson(NamedTuple):
    """What all updates share that one event caused for one topic, as JSON."""

    key: bytes
    names: bytes
    cause: bytes
    identity: bytes
    source: bytes


class UpdateWriter:
    """Writes the updates of one shard and micro-batch.

    Thousands of updates share their client, their event or their patterns, so the JSON of each part is made once and
    joined: 2 us an update instead of 6 for the whole of it.
    """

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self.lmq_name = orjson.dumps(lmq_name(parent, ""))[:-1]
        self._subscribers: dict[tuple[SubscriberKey, int | None], _SubscriberJson] = {}
        self._patterns: dict[tuple[str, ...], bytes] = {}
        self._events: dict[str, tuple[Op, Cause, Source, _EventJson]] = {}
        self._places: dict[tuple[str, int], bytes] = {}

    def record(self, update: Update) -> KafkaRecord:
        """The record of an update; `streaming.updates.tables` says the same of many.

        The `eventId` depends on what happened and where it stands in Kafka only, so a repeated batch repeats it.
        """
        op, row, lite_topic, patterns, cause, version, source, option, reset, bitmap = update
        subscriber = self.subscriber(row, version)
        known = self._events.get(lite_topic)
        if known is not None and known[0] is op and known[1] is cause and known[2] is source:
            event = known[3]
        else:
            event = self._caused(op, lite_topic, cause, source)
            if len(self._events) >= _EVENTS_KEPT:
                self._events.clear()
            self._events[lite_topic] = op, cause, source, event
        parts = [
            OPS[op], subscriber.names, event.names, self.patterns(patterns), event.cause, subscriber.version,
            event.identity, subscriber.digest, event.source,
        ]  # fmt: skip
        parts.append(b"}" if option is bitmap is None and not reset else rest_json(option, reset=reset, bitmap=bitmap))
        return KafkaRecord(subscriber.key + event.key + subscriber.key_end, b"".join(parts))

    def subscriber(self, row: SubscriberKey, version: int | None) -> _SubscriberJson:
        """What all updates of a receiver share."""
        known = self._subscribers.get((row, version))
        if known is None:
            known = self._subscribers[row, version] = _subscriber_json(self._parent, row, version)
        return known

    def patterns(self, patterns: tuple[str, ...]) -> bytes:
        """Matched patterns as JSON."""
        known = self._patterns.get(patterns)
        if known is None:
            known = self._patterns[patterns] = _patterns_json(patterns)
        return known

    def _caused(self, op: Op, lite_topic: str, cause: Cause, source: Source) -> _EventJson:
        topic, partition, offset, entry, timestamp = source
        name = text_json(lite_topic)
        start = self._places.get((topic, partition))
        if start is None:
            start = self._places[topic, partition] = b'"topic":%b,"partition":%d' % (text_json(topic), partition)
        place = b'%b,"offset":%d,"entry":%d' % (start, offset, entry)
        return _EventJson(
            name,
            b'"liteTopic":%b,"lmqName":%b%b,"patterns":' % (name, self.lmq_name, name[1:]),
            b',"cause":"%b","version":' % cause.encode(),
            b',"eventId":"%b-' % digest(b"%b%b%b" % (op.encode(), name, place)),
            b'","source":{%b,"timestamp":%d}' % (place, timestamp),
        )


@lru_cache(maxsize=_RECEIVERS_KEPT)
def _subscriber_json(parent: str, row: SubscriberKey, version: int | None) -> _SubscriberJson:
    group, client_id, part = row
    names = {"parentTopic": parent, "group": group, "clientId": client_id}
    if part.startswith(SHARE):
        names["share"] = part.removeprefix(SHARE)
    elif part:
        names["subscription"] = part
    key = orjson.dumps((parent, group, client_id))[:-1] + b","
    end = b"," + orjson.dumps(part) + b"]" if part else b"]"
    return _SubscriberJson(key, end, orjson.dumps(names)[1:-1] + b",", orjson.dumps(version), digest(key + end))


def rest_json(option: Any = None, *, reset: bool = False, bitmap: bytes | None = None) -> bytes:
    """The last fields of an update, which few have, and its end."""
    parts = [b',"offsetOption":', orjson.dumps(option)] if option is not None else []
    if reset:
        parts.append(b',"resetOffset":true')
    if bitmap is not None:
        parts.append(b',"bitmap":"%b"' % bitmap.hex().encode())
    return b"".join([*parts, b"}"])


def text_json(text: str) -> bytes:
    """A string as JSON: for one so short the general encoder costs ten times as much."""
    return encode_basestring(text).encode()


def digest(data: bytes) -> bytes:
    """What stands for some data in an `eventId`."""
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest().encode()


def digest_lines(data: Iterable[bytes]) -> bytes:
    """The digests of many, a line each."""
    return (
        b"".join([blake2b(each, digest_size=_DIGEST_BYTES).digest() for each in data]).hex("\n", _DIGEST_BYTES).encode()
    )


def dead_letter(source: Source, reason: Reason | str, message: str, original: bytes | None) -> KafkaRecord:
    """What became of an entry that cannot be applied: why, where it came from, and its own bytes."""
    shown = (original or b"")[:MAX_ORIGINAL_BYTES]
    try:
        text, encoding = shown.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(shown).decode(), "base64"
    value = {
        "reason": reason,
        "message": message,
        "source": source._asdict(),
        "original": None if original is None else text,
        "originalEncoding": encoding,
        "originalBytes": len(original or b""),
        "truncated": len(original or b"") > MAX_ORIGINAL_BYTES,
    }
    return KafkaRecord(orjson.dumps(source[:4]), orjson.dumps(value))


def patterns_lines(patterns: Sequence[tuple[str, ...]], before: bytes, behind: bytes) -> bytes:
    """Matched patterns as JSON, a line each, between two texts."""
    data = orjson.dumps(patterns)
    if len(data) <= MAX_PATTERN_BYTES and data.count(b"],[") == len(patterns) - 1:  # nothing in them looks like an end
        return b"%b%b%b" % (before, data[1:-1].replace(b"],[", b"]%b\n%b[" % (behind, before)), behind)
    return b"\n".join([b"%b%b%b" % (before, _patterns_json(each), behind) for each in patterns])


def _patterns_json(patterns: tuple[str, ...]) -> bytes:
    """The patterns as JSON, without the last ones where there is no room for all."""
    data = orjson.dumps(patterns)
    if len(data) <= MAX_PATTERN_BYTES:
        return data
    room = MAX_PATTERN_BYTES
    for count, pattern in enumerate(patterns):
        room -= len(orjson.dumps(pattern)) + 1
        if room < 0:
            return orjson.dumps(patterns[:count])
    return data
