"""Arrow batches between Spark and the stateful step, without pandas.

PySpark makes several DataFrames for each key and micro-batch, which costs more than the work on the key. `install`
replaces these conversions in a Python worker, and only these: the batches are the same in both directions. Their layout
is described in Spark's `ApplyInPandasWithStateWriter` and `ApplyInPandasWithStatePythonRunner`.
"""

import inspect
import itertools
import json
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import import_module
from importlib.abc import MetaPathFinder
from operator import itemgetter
from typing import IO, Any, Final

import numpy.typing as npt
import pyarrow as pa
import pyspark
from pyspark import worker
from pyspark.serializers import pickle_protocol
from pyspark.sql import Row
from pyspark.sql.pandas import functions, utils
from pyspark.sql.pandas.serializers import ApplyInPandasWithStateSerializer, ArrowStreamSerializer
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StructField, StructType

VERSION: Final = "4.2.0"
"""Version of PySpark whose code is replaced."""

Frame = Any
"""Rows of a key: a pandas DataFrame, or without pandas a list of rows (output), or of a column by name (input).

`frame[name].to_numpy()` is an input column of both.
"""

Rows = list[tuple[Any, ...]]

Chunk = tuple[list["KeyColumn"], GroupState]
"""Some input rows of a key, and its state."""

_REPLACED: Final[dict[Callable[..., Any], str]] = {
    worker.wrap_grouped_map_pandas_udf_with_state: "(f, return_type, runner_conf)",
    ApplyInPandasWithStateSerializer.load_stream: "(self, stream)",
    ApplyInPandasWithStateSerializer.dump_stream: "(self, iterator, stream)",
    utils.require_minimum_pandas_version: "() -> None",
}


def problem() -> str | None:
    """Return why `install` leaves PySpark as it is; None if it does not."""
    if pyspark.__version__ != VERSION:
        return f"PySpark is {pyspark.__version__}, not {VERSION}"
    changed = [each.__qualname__ for each, given in _REPLACED.items() if str(inspect.signature(each)) != given]
    return f"PySpark has another {changed[0]}" if changed else None


def install() -> None:
    """Replace PySpark's conversions in this process and its forks, if PySpark is as expected."""
    if problem() is not None:
        import pandas  # noqa: F401, ICN001, PLC0415 - once for all forks

        return
    vars(worker).update(ApplyInPandasWithStateSerializer=StateSerializer, wrap_grouped_map_pandas_udf_with_state=_wrap)
    with _no_pandas():
        pa.array(())  # looks for pandas once in a process, to recognize its types; a conversion to pandas looks again


def spare_pandas() -> None:
    """Import `pyspark.testing.utils` without pandas, which would take 0.2 s and 46 MB.

    PySpark's functions look there whether NumPy is installed.
    """
    with _no_pandas():
        import_module("pyspark.testing.utils")


@contextmanager
def unchecked() -> Iterator[None]:
    """Let PySpark define the function of a query without a look for pandas."""
    known, name = vars(functions), utils.require_minimum_pandas_version.__name__
    if problem() is None:
        known[name] = lambda: None
    try:
        yield
    finally:
        known[name] = utils.require_minimum_pandas_version


@contextmanager
def _no_pandas() -> Iterator[None]:
    sys.meta_path.insert(0, _NoPandas)
    try:
        yield
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas(MetaPathFinder):
    """Finder of modules that does not find pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)


def frame(rows: Rows, columns: list[str]) -> Frame:
    """Return output rows as this process takes them from the function on a key."""
    if worker.wrap_grouped_map_pandas_udf_with_state is _wrap:
        return rows
    import pandas as pd  # noqa: PLC0415 - takes a third of the time in which a worker starts

    return pd.DataFrame(rows, columns=columns, dtype=object)


class BatchColumn:
    """Column of an Arrow batch, of many keys."""

    def __init__(self, name: str, array: "pa.Array[Any]") -> None:
        self.name, self.array = name, array

    @cached_property
    def numpy(self) -> npt.NDArray[Any]:
        """The column in numpy, which is made once for all keys."""
        values: npt.NDArray[Any] = self.array.to_numpy(zero_copy_only=False)
        return values


class KeyColumn:
    """Rows of one key in a column."""

    __slots__ = ("column", "start", "stop")

    def __init__(self, column: BatchColumn, start: int, stop: int) -> None:
        self.column, self.start, self.stop = column, start, stop

    def __getitem__(self, number: int) -> Any:
        """Return one value, without a conversion of the column."""
        return self.column.array[self.start + number].as_py()

    def to_numpy(self) -> npt.NDArray[Any]:
        """Return all values."""
        return self.column.numpy[self.start : self.stop]


class KeyState(GroupState):
    """State of a key, whose first change in a process does not import PySpark's own tests, which takes 70 ms."""

    def update(self, newValue: tuple[Any, ...]) -> None:  # noqa: N803 - PySpark's name
        """Replace the value."""
        self._value, self._defined, self._updated, self._removed = Row(*newValue), True, True, False


class StateSerializer(ApplyInPandasWithStateSerializer):
    """Serializer of PySpark whose keys have key columns of columns instead of DataFrames, and lists of output rows."""

    def load_stream(self, stream: IO[bytes]) -> Iterator[tuple[Iterator[Chunk], GroupState]]:
        """Yield the input rows of each key, and its state."""
        batches = ArrowStreamSerializer.load_stream(self, stream)
        for state, chunks in itertools.groupby(self._chunks(batches), key=itemgetter(1)):
            yield chunks, state

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Yield the input rows of each key; a key of several batches has the same state in each."""
        state = None
        for batch in batches:
            *data, notes = batch.columns
            columns = list(map(BatchColumn, batch.schema.names, data))
            for note in notes.slice(0, len(notes) - notes.null_count).to_pylist():  # the rest is padding
                state = state or self._state(note)
                start = note["startOffset"]
                yield [KeyColumn(column, start, start + note["numRows"]) for column in columns], state
                if note["isLastChunk"]:
                    state = None

    def _state(self, note: dict[str, Any]) -> GroupState:
        value = note["object"] and self.pickleSer.loads(note["object"])  # type: ignore[no-untyped-call]
        properties = {**json.loads(note["properties"]), "optionalValue": value}
        return KeyState(keyAsUnsafe=note["keyRowAsUnsafe"], valueSchema=self.state_object_schema, **properties)

    def dump_stream(self, iterator: Iterable[Any], stream: IO[bytes]) -> None:
        """Write the output rows and states of all keys."""
        batches = self._write_stream_start(self._batches(iterator), stream)
        ArrowStreamSerializer.dump_stream(self, batches, stream)

    def _batches(self, results: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        rows: Rows = []
        states: Rows = []
        for (((outputs, state), row_type),) in results:
            for output in outputs:
                rows += output
                if len(rows) > self.arrow_max_records_per_batch:
                    yield self._batch(rows, states, row_type)
                    rows, states = [], []
            states.append(_note(state))  # now, because the function on the key has ended
        if states:
            yield self._batch(rows, states, row_type)

    def _batch(self, rows: list[Any], states: list[Any], row_type: StructType) -> pa.RecordBatch:
        """Return a batch: the number of rows and states, the rows, and the states."""
        schema = _schema(self.result_count_df_type, row_type, self.result_state_df_type)
        length = max(len(rows), len(states))
        tables = ([(len(rows), len(states))] * length, rows, states)
        arrays = [_struct(table, field.type, length) for table, field in zip(tables, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def _schema(*kinds: StructType) -> pa.Schema:
    fields = [StructField(f"_{number}", kind) for number, kind in enumerate(kinds)]
    return to_arrow_schema(StructType(fields), timezone="UTC")


def _note(state: GroupState) -> tuple[Any, ...]:
    value = pickle.dumps(state.get, pickle_protocol) if state.exists else None
    return state.json(), state._keyAsUnsafe, value, state.oldTimeoutTimestamp  # noqa: SLF001 - PySpark's protocol


def _struct(rows: Rows, kind: pa.StructType, length: int) -> pa.StructArray:
    """Return rows as an array of that length, whose rest is null."""
    fields, rest = list(kind), [None] * (length - len(rows))
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    arrays = [pa.array([*column, *rest], field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _wrap(
    function: Callable[..., Iterator[Rows]], return_type: StructType, _runner_conf: object
) -> Callable[..., list[Any]]:
    """Call the function on a key as PySpark does, but with key columns, and without timeouts."""

    def call(keys: list[KeyColumn], chunks: Iterable[list[KeyColumn]], state: GroupState) -> list[Any]:
        frames = ({part.column.name: part for part in chunk} for chunk in chunks)
        return [((function(tuple(part[0] for part in keys), frames, state), state), return_type)]

    return call
