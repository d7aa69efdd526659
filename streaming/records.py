"""Output records: updates and dead letters, as keys and values for Kafka."""

import base64
from hashlib import blake2b
from typing import NamedTuple

import orjson

from streaming.events import Reason, Source, lmq_name
from streaming.expansion import Op, Update

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


def update_records(parent: str, update: Update) -> list[Record]:
    """One ADD, or a REMOVE and the tombstone with which compaction forgets both.

    The `eventId` depends on what happened and where it stands in Kafka only, so a repeated batch repeats it.
    """
    group, client_id = update.client
    key = update_key(parent, group, client_id, update.lite_topic)
    source = update.source
    coordinates = f"{update.op}:{source.topic}:{source.partition}:{source.offset}:{source.entry}:".encode()
    value = {
        "op": update.op,
        "parentTopic": parent,
        "group": group,
        "clientId": client_id,
        "liteTopic": update.lite_topic,
        "lmqName": lmq_name(parent, update.lite_topic),
        "patterns": _bounded(update.patterns),
        "cause": update.cause,
        "version": update.version,
        "eventId": blake2b(coordinates + key, digest_size=_EVENT_ID_BYTES).hexdigest(),
        "source": _coordinates(source),
    }
    if update.offset_option is not None:
        value["offsetOption"] = update.offset_option
    record = Record(key, orjson.dumps(value))
    return [record] if update.op is Op.ADD else [record, Record(key, None)]


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


def _bounded(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if len(patterns) * 64 < MAX_PATTERN_BYTES and all(len(pattern) < 64 for pattern in patterns):  # noqa: PLR2004 - a cheap first look
        return patterns
    room = MAX_PATTERN_BYTES
    for count, pattern in enumerate(patterns):
        room -= len(pattern.encode()) + 3
        if room < 0 and count:
            return patterns[:count]
    return patterns
