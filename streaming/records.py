"""Output records: updates and dead letters, as keys and values for Kafka."""

import base64
from hashlib import blake2b
from typing import NamedTuple

import orjson

from streaming.events import Reason, Source, lmq_name
from streaming.expansion import Op, Update
from streaming.state import ClientKey

MAX_ORIGINAL_BYTES = 65_536
"""How much of an original a dead letter carries; the rest stands at its source coordinates."""

MAX_PATTERN_BYTES = 262_144
"""How much room the matched patterns of one update may take; a record must stay below Kafka's 1 MB."""

_EVENT_ID_BYTES = 12


class Record(NamedTuple):
    """A Kafka record; a value of None lets compaction forget the key."""

    key: bytes
    value: bytes | None


def update_key(parent: str, group: str, client_id: str, lite_topic: str) -> bytes:
    """The key of an update: a JSON array, the same for all updates of one client and topic."""
    return orjson.dumps((parent, group, client_id, lite_topic))


class UpdateWriter:
    """Writes the updates of one shard and micro-batch.

    Thousands of updates share their client, topic, source and patterns, so the JSON of each part is made once and
    joined: 2 us an update instead of 6 for the whole of it.
    """

    def __init__(self, parent: str) -> None:
        self._parent = parent
        self._clients: dict[tuple[ClientKey, int | None], tuple[bytes, bytes, bytes]] = {}
        self._patterns: dict[tuple[str, ...], bytes] = {}
        self._topic: tuple[str, bytes, bytes] = ("", b"", b"")
        self._source: tuple[Source | None, bytes, bytes] = (None, b"", b"")

    def records(self, update: Update) -> list[Record]:
        """One ADD, or a REMOVE and the tombstone with which compaction forgets both.

        The `eventId` depends on what happened and where it stands in Kafka only, so a repeated batch repeats it.
        """
        key_head, client, version = self._client_parts(update.client, update.version)
        if update.lite_topic != self._topic[0]:
            self._topic = self._topic_parts(update.lite_topic)
        if update.source is not self._source[0]:
            self._source = self._source_parts(update.source)
        patterns = self._patterns.get(update.patterns)
        if patterns is None:
            patterns = self._patterns[update.patterns] = _patterns_json(update.patterns)
        _, key_tail, topic = self._topic
        _, coordinates, source = self._source
        op = update.op.encode()
        key = key_head + key_tail
        event_id = blake2b(op + coordinates + key, digest_size=_EVENT_ID_BYTES).hexdigest().encode()
        option = b"" if update.offset_option is None else b',"offsetOption":' + orjson.dumps(update.offset_option)
        value = (
            b'{"op":"%b",%b%b"patterns":%b,"cause":"%b","version":%b,"eventId":"%b","source":%b%b}'
            % (op, client, topic, patterns, update.cause.encode(), version, event_id, source, option)
        )  # fmt: skip
        record = Record(key, value)
        return [record] if update.op is Op.ADD else [record, Record(key, None)]

    def _client_parts(self, client: ClientKey, version: int | None) -> tuple[bytes, bytes, bytes]:
        parts = self._clients.get((client, version))
        if parts is None:
            names = {"parentTopic": self._parent, "group": client.group, "clientId": client.client_id}
            parts = (
                orjson.dumps((self._parent, *client))[:-1] + b",",
                orjson.dumps(names)[1:-1] + b",",
                orjson.dumps(version),
            )
            self._clients[client, version] = parts
        return parts

    def _topic_parts(self, lite_topic: str) -> tuple[str, bytes, bytes]:
        names = {"liteTopic": lite_topic, "lmqName": lmq_name(self._parent, lite_topic)}
        return lite_topic, orjson.dumps(lite_topic) + b"]", orjson.dumps(names)[1:-1] + b","

    @staticmethod
    def _source_parts(source: Source) -> tuple[Source, bytes, bytes]:
        return source, orjson.dumps(source[:4]), orjson.dumps(_coordinates(source))


def dead_letter(source: Source, reason: Reason | str, message: str, original: bytes | None) -> Record:
    """What became of an entry that cannot be applied: why, where it came from, and its own bytes."""
    shown = (original or b"")[:MAX_ORIGINAL_BYTES]
    try:
        text, encoding = shown.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(shown).decode(), "base64"
    value = {
        "reason": reason,
        "message": message,
        "source": _coordinates(source),
        "original": None if original is None else text,
        "originalEncoding": encoding,
        "originalBytes": len(original or b""),
        "truncated": len(original or b"") > MAX_ORIGINAL_BYTES,
    }
    return Record(orjson.dumps(source[:4]), orjson.dumps(value))


def _coordinates(source: Source) -> dict[str, str | int]:
    return {
        "topic": source.topic,
        "partition": source.partition,
        "offset": source.offset,
        "entry": source.entry,
        "timestamp": source.timestamp,
    }


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
