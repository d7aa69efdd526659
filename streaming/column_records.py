"""Output records of many updates at once, by column: what `UpdateWriter.record` writes of each, to the byte."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from streaming.columns import Ints, Sources
from streaming.records import OPS, UpdateWriter, digest, rest_json, text_json
from streaming.update import Columns, Op

_BYTES = pa.large_binary()
_NOTHING = pa.scalar(b"", _BYTES)


def lines(writer: UpdateWriter, columns: Columns, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values, a line each, in pieces of some so many bytes.

    A REMOVE is followed by its key and an empty line, for its tombstone.
    """
    pairs = columns.pairs
    if not len(pairs):
        return
    used, rows = np.unique(pairs.rows, return_inverse=True)
    topics = [columns.topics[row] for row in used.tolist()]
    names, rests = _texts(topics)
    places = _places(columns.sources.chosen(used))
    timestamps = _numbers(columns.sources.timestamps[used])
    named = _joined(b'"liteTopic":', names, b',"lmqName":', writer.lmq_name, rests, b',"patterns":')
    digests = _array(map(digest, _list(_joined(columns.op.encode(), names, places))))
    identity = _joined(b',"eventId":"', digests, b"-")
    rest = rest_json(columns.offset_option, reset=columns.reset)
    source = _joined(b'","source":{', places, b',"timestamp":', timestamps, b"}" + rest)
    receivers = list(map(writer.receiver, pairs.receiver_table, columns.versions))
    key, key_end, receiver_names, version, receiver_digest = map(_array, zip(*receivers, strict=True))
    cause = b',"cause":"%b","version":' % columns.cause.encode()
    patterns = _array([writer.patterns(each) + cause for each in pairs.pattern_table])

    def of_topic(column: pa.Array) -> pa.Array:
        return column.take(rows)

    def of_receiver(column: pa.Array) -> pa.Array:
        return column.take(pairs.receivers)

    values = _joined(
        OPS[columns.op], of_receiver(receiver_names), of_topic(named), patterns.take(pairs.patterns),
        of_receiver(version), of_topic(identity), of_receiver(receiver_digest), of_topic(source),
        b"\n" if columns.op is Op.ADD else b"\n\n",
    )  # fmt: skip
    keys = _joined(of_receiver(key), of_topic(names), of_receiver(key_end), b"\n")
    yield from _pieces(keys if columns.op is Op.ADD else _joined(keys, keys), values, size)


def _pieces(keys: pa.Array, values: pa.Array, size: int) -> Iterator[tuple[bytes, bytes]]:
    """What lies behind one another in two columns, in pieces, without the last byte of each."""
    (key_ends, key_bytes), (value_ends, value_bytes) = _content(keys), _content(values)
    full = np.searchsorted(value_ends, np.arange(size, value_ends[-1], size))
    cuts = [0, *np.unique(full[(full > 0) & (full < len(values))]).tolist(), len(values)]
    for start, end in pairwise(cuts):
        yield (
            key_bytes[key_ends[start] : key_ends[end] - 1].tobytes(),
            value_bytes[value_ends[start] : value_ends[end] - 1].tobytes(),
        )


def _content(array: pa.Array) -> tuple[Ints, memoryview]:
    """Where each value ends, behind where the first one begins; and the bytes of all."""
    _, ends, content = array.buffers()
    return np.frombuffer(ends, np.int64, len(array) + 1, 8 * array.offset), memoryview(content)


def _texts(texts: Sequence[str]) -> tuple[pa.Array, pa.Array]:
    """Strings as JSON, and the same behind their first quotes."""
    array = pa.array(texts, pa.large_string()).cast(_BYTES)
    quotes_and_commas = 3 * len(texts) + 1
    if len(orjson.dumps(texts)) == pc.sum(pc.binary_length(array)).as_py() + quotes_and_commas:
        rests = _joined(array, b'"')  # nothing in them is escaped
    else:
        rests = _array(text_json(text)[1:] for text in texts)
    return _joined(b'"', rests), rests


def _places(sources: Sources) -> pa.Array:
    """Where entries stand in Kafka, as fields of a JSON object."""
    stream = b'"topic":%b,"partition":' % text_json(sources.topic)
    _, partitions, offsets, entries, _ = sources
    return _joined(stream, _numbers(partitions), b',"offset":', _numbers(offsets), b',"entry":', _numbers(entries))


def _numbers(values: Ints) -> pa.Array:
    """Whole numbers as JSON."""
    return pa.array(values).cast(pa.large_string()).cast(_BYTES)


def _array(values: Iterable[bytes]) -> pa.Array:
    return pa.array(list(values), _BYTES)


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    """What stands side by side in columns, or in all rows, as one."""
    columns = [pa.scalar(part, _BYTES) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*columns, _NOTHING)


def _list(array: pa.Array) -> list[bytes]:
    """The values, in a sixth of the time that `to_pylist` takes."""
    values: list[bytes] = array.to_numpy(zero_copy_only=False).tolist()
    return values
