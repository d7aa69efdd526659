"""Output records: updates and dead letters as keys and values for Kafka, one by one or as tables.

An update is about a topic, a subscriber and patterns, and thousands of updates share each of these. So an output row
holds each text once, and for each record the indices of its texts (`Tables`); the sink joins them in the JVM. A row has
a sixth of the bytes of its records, and Python has no work for each update. Records that share nothing are written as
tables as well: with every further shape of a row, Spark would take longer to plan each micro-batch.
"""

import base64
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from json.encoder import encode_basestring
from operator import add
from typing import Any, NamedTuple

import numpy as np
import orjson

from matcher.cache import ENTRY_BYTES, BoundedCache
from streaming.records.columns import Ints, SourceColumns, compacted
from streaming.records.model import LMQ_PREFIX, Reason, Source
from streaming.records.record import KafkaRecord
from streaming.records.subscribers import SHARE, SubscriberKey
from streaming.records.updates import Cause, Op, Update, UpdateColumns

MAX_ORIGINAL_BYTES = 65_536
"""Maximum size in bytes of the original in a dead letter; the rest is found at its source coordinates."""

MAX_MESSAGE = 16_384
"""Maximum number of characters of the message in a dead letter: an error of foreign code may quote anything."""

MAX_PATTERN_BYTES = 262_144
"""Maximum size in bytes of the matched patterns in one update; a record must fit into Kafka's 1 MB."""

_DIGEST_BYTES = 8

_EVENT_CACHE_BYTES = 16 * 1024 * 1024
"""Memory of the JSON of topics that a writer keeps, as the updates of one topic may come far apart."""

_PATTERN_CACHE_BYTES = 16 * 1024 * 1024
"""Memory of the JSON of matched patterns that a process keeps."""

_SUBSCRIBER_CACHE_BYTES = 32 * 1024 * 1024
"""Memory of the JSON of subscribers that a process keeps, over all shards: busy ones recur in each micro-batch."""

OP_JSON = {op: f'{{"op":"{op}",'.encode() for op in Op}
"""First field of an update, by op."""


def update_key(parent: str, group: str, client_id: str, lite_topic: str, part: str = "") -> bytes:
    """Return the key of an update: a JSON array, the same for all updates of one row of the relation."""
    return orjson.dumps(
        (parent, group, client_id, lite_topic, part) if part else (parent, group, client_id, lite_topic)
    )


class _SubscriberJson(NamedTuple):
    """JSON shared by all updates of one subscriber."""

    key: bytes
    key_end: bytes
    names: bytes
    version: bytes
    digest: bytes


class _EventJson(NamedTuple):
    """JSON shared by all updates from one event for one topic."""

    key: bytes
    names: bytes
    cause: bytes
    identity: bytes
    source: bytes


_NO_SUBSCRIBER = _SubscriberJson(b"", b"", b"", b"", b"")


class UpdateWriter:
    """Writer of the updates of one shard and micro-batch.

    Thousands of updates share their client, their event or their patterns. So each of these is encoded as JSON once,
    and the parts are joined: 2 us an update instead of 6.
    """

    def __init__(self, parent: str) -> None:
        self.parent = parent
        self.lmq_name = text_json(f"{LMQ_PREFIX}{parent}$")[:-1]
        self._events: dict[str, tuple[Op, Cause, Source, _EventJson]] = {}
        self._event_bytes = 0
        self._partitions: dict[tuple[str, int], bytes] = {}
        self._latest: tuple[SubscriberKey | None, int | None, _SubscriberJson] = None, None, _NO_SUBSCRIBER

    def record(self, update: Update) -> KafkaRecord:
        """Return the record of an update; `Tables.of` writes the same by column.

        The `eventId` depends only on the change and its place in Kafka, so a repeated micro-batch repeats it.
        """
        op, key, lite_topic, patterns, cause, version, source, option, reset, bitmap = update
        if key is not self._latest[0] or version != self._latest[1]:
            self._latest = key, version, _SUBSCRIBERS[self.parent, key, version]
        subscriber = self._latest[2]
        known = self._events.get(lite_topic)
        if known is not None and known[0] is op and known[1] is cause and known[2] is source:
            event = known[3]
        else:
            event = self._event_json(op, lite_topic, cause, source)
            self._event_bytes += ENTRY_BYTES + sum(map(len, event))
            if self._event_bytes > _EVENT_CACHE_BYTES:
                self._events.clear()
                self._event_bytes = 0
            self._events[lite_topic] = op, cause, source, event
        # To look a single pattern up takes as long as to write it.
        patterns_text = _PATTERNS[patterns] if len(patterns) > 1 else patterns_json(patterns)
        parts = [
            OP_JSON[op], subscriber.names, event.names, patterns_text, event.cause, subscriber.version,
            event.identity, subscriber.digest, event.source,
        ]  # fmt: skip
        no_rest = option is bitmap is None and not reset
        parts.append(b"}" if no_rest else rest_json(option, reset=reset, bitmap=bitmap))
        return KafkaRecord(subscriber.key + event.key + subscriber.key_end, b"".join(parts))

    def records(self, updates: Iterable[Update]) -> list[KafkaRecord]:
        """Return the records of updates. A REMOVE is followed by the tombstone with which compaction drops its key."""
        found: list[KafkaRecord] = []
        for update in updates:
            record = self.record(update)
            found.append(record)
            if update.op is Op.REMOVE:
                found.append(KafkaRecord(record.key, None))
        return found

    def _event_json(self, op: Op, lite_topic: str, cause: Cause, source: Source) -> _EventJson:
        topic, partition, offset, entry, timestamp = source
        name = text_json(lite_topic)
        start = self._partitions.get((topic, partition))
        if start is None:
            start = self._partitions[topic, partition] = b'"topic":%b,"partition":%d' % (text_json(topic), partition)
        place = b'%b,"offset":%d,"entry":%d' % (start, offset, entry)
        return _EventJson(
            name,
            b'"liteTopic":%b,"lmqName":%b%b,"patterns":' % (name, self.lmq_name, name[1:]),
            b',"cause":"%b","version":' % cause.encode(),
            b',"eventId":"%b-' % digest(b"%b%b%b" % (op.encode(), name, place)),
            b'","source":{%b,"timestamp":%d}' % (place, timestamp),
        )


def _subscriber_json(asked: tuple[str, SubscriberKey, int | None]) -> _SubscriberJson:
    """Return the JSON of a subscriber of a parent, with its version."""
    parent, (group, client_id, part), version = asked
    names = {"parentTopic": parent, "group": group, "clientId": client_id}
    if part.startswith(SHARE):
        names["share"], slash, topic_filter = part.removeprefix(SHARE).partition("/")
        if slash:  # a row of an earlier release has none
            names["filter"] = topic_filter
    elif part:
        names["subscription"] = part
    key = orjson.dumps((parent, group, client_id))[:-1] + b","
    key_end = b"," + orjson.dumps(part) + b"]" if part else b"]"
    names_json = orjson.dumps(names)[1:-1] + b","
    return _SubscriberJson(key, key_end, names_json, orjson.dumps(version), digest(key + key_end))


_SUBSCRIBERS = BoundedCache(_subscriber_json, lambda _, json: 3 * sum(map(len, json)), _SUBSCRIBER_CACHE_BYTES)


def rest_json(option: Any = None, *, reset: bool = False, bitmap: bytes | None = None) -> bytes:
    """Return the last fields of an update, all of them rare, and its end."""
    fields = [b',"offsetOption":', orjson.dumps(option)] if option is not None else []
    if reset:
        fields.append(b',"resetOffset":true')
    if bitmap is not None:
        fields.append(b',"bitmap":"%b"' % bitmap.hex().encode())
    return b"".join([*fields, b"}"])


def text_json(text: str) -> bytes:
    """Return a string as JSON; for short ones the general encoder takes ten times as long."""
    return encode_basestring(text).encode()


def digest(data: bytes) -> bytes:
    """Return the digest of some data, for an `eventId`."""
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest().encode()


def digest_number(data: bytes) -> int:
    """Return the digest of some data as a 64-bit integer."""
    return int.from_bytes(blake2b(data, digest_size=_DIGEST_BYTES).digest(), signed=True)


def event_id(parent: str, subscriber: SubscriberKey, op: Op, lite_topic: str, source: Source) -> str:
    """Return the `eventId` of an update."""
    place = b'"topic":%b,"partition":%d,"offset":%d,"entry":%d' % (text_json(source.topic), *source[1:4])
    event = digest(b"%b%b%b" % (op.encode(), text_json(lite_topic), place))
    return f"{event.decode()}-{_SUBSCRIBERS[parent, subscriber, None].digest.decode()}"


def digest_lines(data: Iterable[bytes]) -> bytes:
    """Return the digests of many data, a line each."""
    return (
        b"".join([blake2b(each, digest_size=_DIGEST_BYTES).digest() for each in data]).hex("\n", _DIGEST_BYTES).encode()
    )


def dead_letter(
    source: Source, reason: Reason | str, message: str, original: bytes | None, *, size: int | None = None
) -> KafkaRecord:
    """Return the dead letter of an entry, given its place and its bytes.

    `size` is the number of all of its bytes, if `original` is only the first of them.
    """
    size = len(original or b"") if size is None else size
    beginning = (original or b"")[:MAX_ORIGINAL_BYTES]
    try:
        text, encoding = beginning.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(beginning).decode(), "base64"
    value = {
        "reason": reason,
        "message": message[:MAX_MESSAGE].encode(errors="backslashreplace").decode(),
        "source": source._asdict(),
        "original": None if original is None else text,
        "originalEncoding": encoding,
        "originalBytes": size,
        "truncated": size > len(beginning),
    }
    return KafkaRecord(orjson.dumps(source[:4]), orjson.dumps(value))


def withdrawn(source: Source) -> KafkaRecord:
    """Return the record that takes the dead letter of an entry back."""
    return KafkaRecord(orjson.dumps(source[:4]), None)


def patterns_lines(patterns: Sequence[tuple[str, ...]], before: bytes, behind: bytes) -> bytes:
    """Return tuples of matched patterns as JSON, a line each, between two texts."""
    data = orjson.dumps(patterns)
    if len(data) <= MAX_PATTERN_BYTES and data.count(b"],[") == len(patterns) - 1:  # no pattern contains `],[`
        return b"%b%b%b" % (before, data[1:-1].replace(b"],[", b"]%b\n%b[" % (behind, before)), behind)
    return b"\n".join([b"%b%b%b" % (before, patterns_json(each), behind) for each in patterns])


def patterns_json(patterns: tuple[str, ...]) -> bytes:
    """Return matched patterns as JSON, without the last ones if they exceed `MAX_PATTERN_BYTES`."""
    data = orjson.dumps(patterns)
    if len(data) <= MAX_PATTERN_BYTES:
        return data
    room = MAX_PATTERN_BYTES
    for count, pattern in enumerate(patterns):
        room -= len(orjson.dumps(pattern)) + 1
        if room < 0:
            return orjson.dumps(patterns[:count])
    return data


_PATTERNS = BoundedCache(patterns_json, lambda _, data: 3 * len(data), _PATTERN_CACHE_BYTES)


TABLE_END = "\x1e"
"""Separator between the tables of a row. Like a line feed, it cannot occur in JSON."""

SEPARATOR = TABLE_END.encode()
"""The same in bytes: a row is the tables joined by it."""


class Tables(NamedTuple):
    """Tables of an output row in their order.

    A table has a line for each topic, subscriber, tuple of patterns or record, or one text shared by all records.

    The key of a record about topic t, subscriber s and patterns p is `key_starts[s] names[t] key_ends[s]`. Its value is
    `starts[s] names[t] middle names[t] patterns[p] versions[s] digests[t] digest_ends[s] places[t] timestamps[t] end`.
    Names lack their first quote. The line of a record is the number `(t S + s) (P + 1) + p + 1`, for S subscribers and
    P tuples of patterns; p is -1 for a tombstone, which has no value.
    """

    names: bytes
    digests: bytes
    places: bytes
    timestamps: bytes
    key_starts: bytes
    key_ends: bytes
    starts: bytes
    versions: bytes
    digest_ends: bytes
    patterns: bytes
    middle: bytes
    end: bytes
    records: bytes

    @classmethod
    def singly(cls, keys: Sequence[bytes], values: Sequence[bytes | None]) -> "Tables":
        """Return tables of records without shared texts, at least one; each has a subscriber and a nameless topic."""
        empty = b"\n" * (len(keys) - 1)
        texts = b"\n".join([value or b"" for value in values])
        records = [2 * index + (value is not None) for index, value in enumerate(values)]
        return cls(
            *(b"", b"", b"", b""),
            *(b"\n".join(keys), empty, texts, empty, empty),
            *(b"", b"", b"", b"\n".join([b"%d" % record for record in records])),
        )

    @classmethod
    def of(cls, writer: UpdateWriter, columns: UpdateColumns) -> "Tables":
        """Return tables of updates, at least one; a REMOVE is followed by its tombstone."""
        topics, topic_of = compacted(columns.pairs.rows)
        subscribers, subscriber_of = compacted(columns.pairs.subscribers)
        patterns, patterns_of = compacted(columns.pairs.patterns)
        sources = columns.sources.take(topics)
        stream = b'"topic":%b,"partition":' % text_json(sources.topic)
        names = _text_lines([columns.topics[topic] for topic in topics.tolist()])
        places = _place_lines(sources)
        op = columns.op.encode()
        digested = (op + names.replace(b"\n", stream + b"\n" + op) + stream).split(b"\n")
        digests = digest_lines(map(add, digested, places.split(b"\n")))
        key_starts, key_ends, subscriber_names, versions, subscriber_digests = zip(
            *(
                _SUBSCRIBERS[writer.parent, columns.pairs.subscriber_table[subscriber], columns.versions[subscriber]]
                for subscriber in subscribers.tolist()
            ),
            strict=True,
        )
        cause = b',"cause":"%b","version":' % columns.cause.encode()
        tombstones = (topic_of * len(subscribers) + subscriber_of) * (len(patterns) + 1)
        records = tombstones + patterns_of + 1
        if columns.op is Op.REMOVE:
            records = np.column_stack((records, tombstones)).ravel()
        return cls(
            names.replace(b'\n"', b"\n")[1:],
            digests,
            places.replace(b"\n", b',"timestamp":\n') + b',"timestamp":',
            _lines(sources.timestamps),
            b"\n".join([b'%b"' % key_start for key_start in key_starts]),
            b"\n".join(key_ends),
            b"\n".join([b'%b%b"liteTopic":"' % (OP_JSON[columns.op], subscriber) for subscriber in subscriber_names]),
            b"\n".join([b'%b,"eventId":"' % version for version in versions]),
            b"\n".join([b'-%b","source":{%b' % (digest, stream) for digest in subscriber_digests]),
            patterns_lines([columns.pairs.pattern_table[index] for index in patterns.tolist()], b',"patterns":', cause),
            b',"lmqName":' + writer.lmq_name,
            b"}" + rest_json(columns.offset_option, reset=columns.reset),
            _lines(records),
        )


def _text_lines(texts: Sequence[str]) -> bytes:
    plain = '"{}"'.format('"\n"'.join(texts)).encode()
    if len(orjson.dumps(texts)) == len(plain) + len("[]"):  # no character is escaped
        return plain
    return b"\n".join(map(text_json, texts))


def _place_lines(sources: SourceColumns) -> bytes:
    """Return the places of sources in their stream, a line each."""
    partition, entry = int(sources.partitions[0]), int(sources.entries[0])
    if (sources.partitions == partition).all() and (sources.entries == entry).all():  # nearly always
        start, end = b'%d,"offset":' % partition, b',"entry":%d' % entry
        return start + _lines(sources.offsets).replace(b"\n", end + b"\n" + start) + end
    numbers = (column.tolist() for column in (sources.partitions, sources.offsets, sources.entries))
    return b"\n".join([b'%d,"offset":%d,"entry":%d' % place for place in zip(*numbers, strict=True)])


def _lines(values: Ints) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].replace(b",", b"\n")
