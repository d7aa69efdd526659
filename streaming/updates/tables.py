"""Output records as tables: of many updates at once what `UpdateWriter.record` writes of each, to the byte.

An update is about a topic, a receiver and patterns, and thousands share each of these. So a row for the JVM has each
text once, and the numbers of those that each record is made of; `streaming.spark.sinks` joins them. It holds a sixth
of the bytes of its records, and Python has no work for each update. Records that share nothing are tables as well: for
each further shape of a row Spark would plan every micro-batch longer.
"""

from collections.abc import Sequence
from operator import add
from typing import NamedTuple

import numpy as np
import orjson

from streaming.events.columns import Ints, SourceColumns
from streaming.subscription.pairs import compacted
from streaming.updates.model import Op, UpdateColumns
from streaming.updates.records import OPS, UpdateWriter, digest_lines, patterns_lines, rest_json, text_json

TABLE_END = "\x1e"
"""Stands between the tables of a row. Like the end of a line it never stands in JSON."""


class Tables(NamedTuple):
    """The tables of a row, in their order: a line for each topic, receiver, patterns, or record; or one text of all.

    Of a record about topic t, receiver r and patterns p the key is `key_starts[r] names[t] key_ends[r]`, and the value
    is `starts[r] names[t] middle names[t] patterns[p] versions[r] digests[t] digest_ends[r] places[t] timestamps[t]
    end`. Names lack their first quote. The line of a record is the number `(t R + r) (P + 1) + p + 1`, where there are
    R receivers and P patterns; p is -1 for a tombstone, which has no value.
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
        """Records that have nothing in common, at least one: each is a receiver's, about a topic without a name."""
        empty = b"\n" * (len(keys) - 1)
        texts = b"\n".join([value or b"" for value in values])
        records = [2 * number + (value is not None) for number, value in enumerate(values)]
        return cls(
            *(b"", b"", b"", b""),
            *(b"\n".join(keys), empty, texts, empty, empty),
            *(b"", b"", b"", b"\n".join([b"%d" % record for record in records])),
        )

    @classmethod
    def of(cls, writer: UpdateWriter, columns: UpdateColumns) -> "Tables":
        """The records of updates, at least one; a REMOVE is followed by its tombstone."""
        topics, topic_of = compacted(columns.pairs.rows)
        subscribers, subscriber_of = compacted(columns.pairs.subscribers)
        patterns, patterns_of = compacted(columns.pairs.patterns)
        sources = columns.sources.take(topics)
        stream = b'"topic":%b,"partition":' % text_json(sources.topic)
        names = _texts([columns.topics[number] for number in topics.tolist()])
        places = _places(sources)
        begin = columns.op.encode()
        named = (begin + names.replace(b"\n", stream + b"\n" + begin) + stream).split(b"\n")
        digests = digest_lines(map(add, named, places.split(b"\n")))
        key_starts, key_ends, subscriber_names, versions, subscriber_digests = zip(
            *(
                writer.subscriber(columns.pairs.subscriber_table[number], columns.versions[number])
                for number in subscribers.tolist()
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
            b"\n".join([b'%b"' % each for each in key_starts]),
            b"\n".join(key_ends),
            b"\n".join([b'%b%b"liteTopic":"' % (OPS[columns.op], each) for each in subscriber_names]),
            b"\n".join([b'%b,"eventId":"' % each for each in versions]),
            b"\n".join([b'-%b","source":{%b' % (each, stream) for each in subscriber_digests]),
            patterns_lines(
                [columns.pairs.pattern_table[number] for number in patterns.tolist()], b',"patterns":', cause
            ),
            b',"lmqName":' + writer.lmq_name,
            b"}" + rest_json(columns.offset_option, reset=columns.reset),
            _lines(records),
        )


def text(tables: Tables) -> bytes:
    """The tables as one text."""
    return TABLE_END.encode().join(tables)


def _texts(texts: Sequence[str]) -> bytes:
    """Strings as JSON."""
    plain = '"{}"'.format('"\n"'.join(texts)).encode()
    if len(orjson.dumps(texts)) == len(plain) + len("[]"):  # nothing in them is escaped
        return plain
    return b"\n".join(map(text_json, texts))


def _places(sources: SourceColumns) -> bytes:
    """Where they stand in their stream."""
    partition, entry = int(sources.partitions[0]), int(sources.entries[0])
    if (sources.partitions == partition).all() and (sources.entries == entry).all():  # nearly always
        start, end = b'%d,"offset":' % partition, b',"entry":%d' % entry
        return start + _lines(sources.offsets).replace(b"\n", end + b"\n" + start) + end
    numbers = (column.tolist() for column in (sources.partitions, sources.offsets, sources.entries))
    return b"\n".join([b'%d,"offset":%d,"entry":%d' % place for place in zip(*numbers, strict=True)])


def _lines(values: Ints) -> bytes:
    """Whole numbers."""
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].replace(b",", b"\n")
