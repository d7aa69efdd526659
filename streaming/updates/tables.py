"""Output records as tables: the same bytes as `UpdateWriter.record`, for many updates at once.

An update is about a topic, a subscriber and patterns, and thousands of updates share each of these. So an output row
holds each text once, and for each record the indices of its texts; `streaming.spark.sinks` joins them in the JVM. A row
has a sixth of the bytes of its records, and Python has no work for each update. Records that share nothing are written
as tables as well: with every further shape of a row, Spark would take longer to plan each micro-batch.
"""

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

import numpy as np
import orjson

from streaming.events.columns import Ints, SourceColumns
from streaming.subscription.pairs import compacted
from streaming.updates.model import Op, UpdateColumns
from streaming.updates.records import OP_JSON, UpdateWriter, digest_lines, patterns_lines, rest_json, text_json

TABLE_END = "\x1e"
"""Separator between the tables of a row. Like a line feed, it cannot occur in JSON."""


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
                writer.subscriber_json(columns.pairs.subscriber_table[subscriber], columns.versions[subscriber])
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


def text(tables: Tables) -> bytes:
    """Return the tables as one text."""
    return TABLE_END.encode().join(tables)


def _text_lines(texts: Sequence[str]) -> bytes:
    """Return strings as JSON, a line each."""
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
    """Return integers, a line each."""
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].replace(b",", b"\n")
