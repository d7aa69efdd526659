"""Batches without pandas: Spark gets the same bytes as from PySpark's own serializer."""

import io
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark import worker
from pyspark.sql import Row
from pyspark.sql.pandas.serializers import ApplyInPandasWithStateSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from streaming.spark import arrow, expand

_TYPES = {"TINYINT": ByteType(), "INT": IntegerType(), "BIGINT": LongType(), "BOOLEAN": BooleanType(),
          "STRING": StringType(), "BINARY": BinaryType()}  # fmt: skip


def struct(ddl: str) -> StructType:
    """Return a type; Spark's own parser needs a JVM."""
    fields = (field.split() for field in ddl.split(","))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in fields])


INPUT = struct("stream TINYINT, offset BIGINT, parent STRING, shard INT, payload BINARY")
NOTE = struct(
    "properties STRING, keyRowAsUnsafe BINARY, object BINARY, startOffset INT, numRows INT, isLastChunk BOOLEAN"
)
SCHEMA = to_arrow_schema(StructType([*INPUT.fields, StructField("__state", NOTE)]), timezone="UTC")
OUTPUT = expand.OUTPUT_SCHEMA
STATE = expand.STATE_SCHEMA
PROPERTIES = {
    "batchProcessingTimeMs": 7,
    "eventTimeWatermarkMs": -1,
    "timeoutConf": "NoTimeout",
    "hasTimedOut": False,
    "watermarkPresent": False,
    "updated": False,
    "removed": False,
    "timeoutTimestamp": -1,
}
PAYLOADS = [b"plain", None, b"", "ü😀".encode(), b"\x00\xff" * 9]
BATCH_ROWS = 10

Key = tuple[str, int, bytes | None]
"""What is done with the state and its parent, number of rows, and state."""

KEYS: dict[str, list[Key]] = {
    "no key": [],
    "one row": [("update", 1, None)],
    "several keys": [("update", 3, b"s"), ("update ü😀", 1, None), ("remove", 2, b""), ("", 1, b"s"), ("", 1, None)],
    "keys of several batches": [("update", 23, b"\xff" * 99), ("remove", 7, None), ("leave", 10, b"s"), ("", 31, b"s")],
    "many keys": [(f"update {number}", number % 4 + 1, b"s" if number % 3 else None) for number in range(40)],
}  # fmt: skip


def batches(keys: list[Key]) -> Iterator[list[list[Any]]]:
    """Yield the rows, and the notes about states, of each batch that Spark's `ApplyInPandasWithStateWriter` makes."""
    rows: list[Any] = []
    notes: list[Any] = []
    for name, count, state in keys:
        properties = json.dumps({**PROPERTIES, "defined": state is not None})
        value = None if state is None else pickle.dumps(Row(value=bytearray(state)))
        done = 0
        while done < count:
            start, part = len(rows), min(count - done, BATCH_ROWS - len(rows))
            rows += [(2, done + number, name, 5, PAYLOADS[number % len(PAYLOADS)]) for number in range(part)]
            done += part
            notes.append((properties, name.encode() * 2, value, start, part, done == count))
            if len(rows) == BATCH_ROWS:
                yield [rows, notes]
                rows, notes = [], []
    if rows:
        yield [rows, notes]


def sent(keys: list[Key]) -> io.BytesIO:
    stream = io.BytesIO()
    with pa.RecordBatchStreamWriter(stream, SCHEMA) as writer:
        for rows, notes in batches(keys):
            states = [dict(zip(NOTE.names, note, strict=True)) for note in notes]
            columns = [*zip(*rows, strict=True), [*states, *[None] * (len(rows) - len(notes))]]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    stream.seek(0)
    return stream


def answered(keys: list[Key], rows_per_batch: int = 25) -> tuple[bytes, list[Any]]:
    """Return what the process writes, and what the function on a key has seen."""
    seen: list[Any] = []

    def on_key(key: tuple[str, int], frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
        columns = [[frame[name].to_numpy() for name in INPUT.names] for frame in frames]
        seen.append((key, [[(each.dtype, each.tolist()) for each in frame] for frame in columns], state.getOption))
        for *_, payloads in columns:
            yield arrow.frame([(key[0] or None, each, b"x" * key[1]) for each in payloads.tolist()], OUTPUT.names)
            yield arrow.frame([], OUTPUT.names)
        if key[0].startswith("update"):
            state.update((b"renewed" + (bytes(state.get[0]) if state.exists else b""),))
        elif key[0] == "remove":
            state.remove()

    serializer = vars(worker)["ApplyInPandasWithStateSerializer"](
        timezone="UTC",
        safecheck=True,
        assign_cols_by_name=True,
        prefer_int_ext_dtype=False,
        state_object_schema=STATE,
        arrow_max_records_per_batch=rows_per_batch,
        prefers_large_var_types=False,
        int_to_decimal_coercion_enabled=False,
    )
    call = vars(worker)["wrap_grouped_map_pandas_udf_with_state"](on_key, OUTPUT, None)

    def mapped(group: Any) -> Any:
        """As the `mapper` of `pyspark.worker.read_udfs`."""
        chunks = (chunk for chunk, _ in group[0])
        first = next(chunks)
        return call([first[2], first[3]], (list(each) for each in chain([first], chunks)), group[1])

    stream = io.BytesIO()
    serializer.dump_stream(map(mapped, serializer.load_stream(sent(keys))), stream)
    return stream.getvalue(), seen


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore PySpark's own code after the test."""
    for name in ("ApplyInPandasWithStateSerializer", "wrap_grouped_map_pandas_udf_with_state"):
        monkeypatch.setattr(worker, name, getattr(worker, name))


@pytest.mark.usefixtures("original")
@pytest.mark.parametrize("rows_per_batch", [1, 25, 0])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_both_serializers_write_the_same_bytes(keys: list[Key], rows_per_batch: int) -> None:
    wanted, seen = answered(keys, rows_per_batch)
    arrow.install()
    assert answered(keys, rows_per_batch) == (wanted, seen)
    assert len(seen) == len(keys)
    assert [sum(len(frame[0][1]) for frame in frames) for _, frames, _ in seen] == [count for _, count, _ in keys]


def test_a_worker_does_not_load_pandas_unless_something_converts_to_it() -> None:
    script = """
import sys
import pyarrow as pa
import streaming.spark.daemon
from streaming.spark import arrow
from tests.unit.spark.test_arrow import KEYS, answered
arrow.install()
assert answered(KEYS["several keys"])[1]
assert not {"pandas", "pyspark.testing"} & sys.modules.keys()
assert pa.array([1]).to_pandas().tolist() == [1]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_driver_does_not_load_pandas() -> None:
    script = """
import sys
from pyspark.sql.functions import pandas_udf
from pyspark.util import PythonEvalType
from streaming.spark import arrow
from tests.unit.spark.test_arrow import OUTPUT
arrow.spare_pandas()
from pyspark.testing.utils import have_numpy
assert have_numpy
with arrow.unchecked():
    pandas_udf(len, OUTPUT, PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF_WITH_STATE)
assert "pandas" not in sys.modules
pandas_udf(len, OUTPUT, PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF_WITH_STATE)
assert "pandas" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.usefixtures("original")
def test_another_pyspark_keeps_its_own_serializer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arrow.problem() is None
    monkeypatch.setattr(pyspark, "__version__", "4.2.1")
    arrow.install()
    assert vars(worker)["ApplyInPandasWithStateSerializer"] is ApplyInPandasWithStateSerializer
    assert list(arrow.frame([("t", b"", b"v")], OUTPUT.names)) == OUTPUT.names
    assert arrow.problem() == "PySpark is 4.2.1, not 4.2.0"


def test_a_changed_signature_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(arrow)["_REPLACED"], ApplyInPandasWithStateSerializer.load_stream, "(self, stream, more)")
    assert arrow.problem() == "PySpark has another ApplyInPandasWithStateSerializer.load_stream"
