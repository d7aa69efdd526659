"""The stateful step: calls `streaming.worker.work` for each key (parent, shard) of a micro-batch.

Only what Spark needs is here: frames become input rows, output becomes frames, the state of the key goes in and out.
"""

import logging
from collections.abc import Generator, Iterator, Mapping
from typing import TypeVar

import numpy as np
import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from streaming.config import Settings
from streaming.events.model import MAX_AHEAD_MS
from streaming.events.routing import Routing
from streaming.spark import sinks
from streaming.storage.archive import Folder
from streaming.worker import InputRow, InputRows, WorkerConfig, work
from streaming.worker.bounds import DEFAULT_REQUEST_BYTES, REPETITION_BYTES, Bounds
from streaming.worker.output import Output
from streaming.worker.renewal import Archives
from streaming.worker.rows import joined
from streaming.worker.signature import Signer
from streaming.worker.worker import without_collection

T = TypeVar("T")
Frames = Generator[pd.DataFrame, None, T]

log = logging.getLogger("reexpand")

STATE_SCHEMA = "value BINARY"
OUTPUT_SCHEMA = "topic STRING, key BINARY, value BINARY"
"""Schema of output rows: as in `OutputRow`, but with the Kafka topic of the kind; null in a row of counts."""

_MICRO_BATCH = "streaming.sql.batchId"
"""Local property under which Spark's MicroBatchExecution tells tasks the number of their micro-batch."""


def expand(
    routed: DataFrame,
    settings: Settings,
    signer: Signer | None = None,
    *,
    silent: bool = False,
    answers: bool = True,
    adopts: bool = False,
) -> DataFrame:
    """Return the output rows of all keys, and renew the state of each key.

    Args:
        routed: input rows (see `streaming.spark.route.route`).
        settings: settings of the job.
        signer: signer of the records that the job writes to its own inputs; None takes everybody's for the job's own.
        silent: return only what the job says to itself.
        answers: the topic of answers can be written.
        adopts: keys begin with the states in their archives.
    """
    config = WorkerConfig(
        settings.inputs,
        Routing(settings.shards, settings.route_depth),
        settings.allow_inner_multi,
        settings.client_timeout_ms,
        _archives(settings),
        bounds_of(settings),
        signer,
        settings.state_cache_bytes,
        adopts,
        settings.cap_requests,
    )
    topics = sinks.topics(settings, silent=silent, answers=answers)

    def on_key(key: tuple[str, int], frames: Iterator[pd.DataFrame], state: GroupState) -> Frames[None]:
        parent, shard = key[0], int(key[1])  # Spark gives a numpy integer
        rows = _input_rows(frames)
        former = bytes(state.get[0]) if state.exists else None
        with without_collection():
            outputs = work(parent, shard, rows, former, config, batch=_micro_batch())
            renewed = yield from _output_frames(outputs, topics)
        if renewed is None and former is not None:
            state.remove()
        elif renewed is not None and renewed is not former:
            state.update((renewed,))

    # No timeout: time enters as records, so that a replay sees the same time, and an idle shard is never visited.
    return routed.groupBy("parent", "shard").applyInPandasWithState(
        on_key, OUTPUT_SCHEMA, STATE_SCHEMA, "update", GroupStateTimeout.NoTimeout
    )


def bounds_of(settings: Settings) -> Bounds:
    """Return the bounds of what records may say."""
    record_bytes = settings.client_options().get("max.request.size")
    return Bounds(
        settings.max_value_bytes,
        settings.max_requests,
        settings.max_entries,
        settings.max_name_bytes,
        MAX_AHEAD_MS,
        DEFAULT_REQUEST_BYTES if record_bytes is None else int(record_bytes) - REPETITION_BYTES,
    )


def _archives(settings: Settings) -> Archives | None:
    """Return the archives of large states; None where Python does not reach the checkpoint as Spark does."""
    folder = Folder(settings.checkpoint)
    problem = folder.problem()
    if problem is None:
        return folder
    log.warning(
        "Python cannot write beside the checkpoint %s (%s): states stay in Spark's state store as a whole, "
        "so the cost of a micro-batch grows with the size of the states that it touches",
        settings.checkpoint,
        problem,
    )
    return None


def _micro_batch() -> int:
    """Return the number of the micro-batch to which this task belongs."""
    task = TaskContext.get()
    return 0 if task is None else int(task.getLocalProperty(_MICRO_BATCH) or 0)


def _input_rows(frames: Iterator[pd.DataFrame]) -> InputRows:
    """Return the rows of all frames of a key."""
    columns = [[frame[name].to_numpy() for name in (*InputRow._fields, "piece")] for frame in frames]
    rows = InputRows.concat([InputRows(*each[:-1]) for each in columns])
    pieces = np.concatenate([each[-1] for each in columns])
    return joined(rows, pieces) if pieces.any() else rows


def _output_frames(outputs: Generator[Output, None, T], topics: Mapping[str, str | None]) -> Frames[T]:
    """Yield the output rows of a key as frames; return what its work returns."""
    while True:
        try:
            output = next(outputs)
        except StopIteration as end:
            result: T = end.value
            return result
        rows = [(topics[kind], key, value) for kind, key, value in output.all_rows() if kind in topics]
        if rows:
            yield pd.DataFrame(rows, columns=["topic", "key", "value"], dtype=object)
