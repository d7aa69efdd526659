"""The stateful step: calls `Worker.work` for each key (parent, shard) of a micro-batch.

It only adapts Spark's interface: frames become input rows, output rows become frames, and the key's state is passed on.
"""

import logging
from collections.abc import Generator, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import numpy as np
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

from streaming.config import Settings
from streaming.records.routing import Routing
from streaming.spark import arrow, sinks
from streaming.storage.archive import Folder
from streaming.storage.store import Archives
from streaming.worker.bounds import bounds_of
from streaming.worker.process import NO_WATCHDOG, Watchdog, kept, without_collection
from streaming.worker.quarantine import Decision
from streaming.worker.rehearsal import KeyWork, Rehearsal
from streaming.worker.rows import InputRow, InputRows, Output, joined
from streaming.worker.signature import Signer
from streaming.worker.worker import WorkerConfig

T = TypeVar("T")
Frames = Generator[arrow.Frame, None, T]

log = logging.getLogger("reexpand")

STATE_SCHEMA = StructType().add("value", "binary")
OUTPUT_SCHEMA = StructType().add("topic", "string").add("key", "binary").add("value", "binary")
"""Schema of output rows: as in `OutputRow`, but with the Kafka topic of the kind; null in a row of counts."""

_MICRO_BATCH = "streaming.sql.batchId"
"""Local property in which Spark's MicroBatchExecution passes tasks the number of their micro-batch."""


class Precautions(NamedTuple):
    """Precautions of a query against records that exhaust the JVM, and entries that kill or hang workers.

    Attributes:
        repeated: number of the micro-batch that failed before, whose keys are rehearsed; -1 for none.
    """

    decisions: tuple[Decision, ...] = ()
    repeated: int = -1
    bounded: bool = False


NO_PRECAUTIONS: Final = Precautions()


def expand(
    routed: DataFrame,
    settings: Settings,
    signer: Signer | None = None,
    *,
    silent: bool = False,
    answers: bool = True,
    adopts: bool = False,
    precautions: Precautions = NO_PRECAUTIONS,
) -> DataFrame:
    """Return the output rows of all keys, and renew the state of each key.

    Without a signer, any record counts as the job's own. `silent` returns only records for the job's own inputs;
    `adopts` lets keys begin with the states in their archives.
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
        precautions.decisions,
    )
    watchdog = Watchdog(settings.stall_seconds)
    repeated = precautions.repeated
    topics = sinks.topics(settings, silent=silent, answers=answers)
    if problem := arrow.problem():
        log.warning("Rows go to the Python workers through pandas, which is slower: %s", problem)

    def on_key(key: tuple[str, int], frames: Iterator[arrow.Frame], state: GroupState) -> Frames[None]:
        parent, shard = key[0], int(key[1])  # Spark gives a numpy integer
        rows = _input_rows(frames)
        former = bytes(state.get[0]) if state.exists else None
        batch, partition, is_repeated = _task()
        if is_repeated or batch == repeated:
            _rehearse(config, KeyWork(parent, shard, rows, former, batch, partition), watchdog.seconds)
            timer = NO_WATCHDOG  # if it is slow now, the disk or the machine is
        else:
            _end_rehearsal()
            timer = watchdog
        with without_collection():
            worker = kept(config)
            outputs = worker.work(parent, shard, rows, former, batch=batch, partition=partition, observer=timer)
            renewed = yield from _output_frames(outputs, topics, timer)
        if renewed is None and former is not None:
            state.remove()
        elif renewed is not None and renewed is not former:
            state.update((renewed,))

    # No timeout: time enters as records, so that a replay sees the same time, and an idle shard is never visited.
    with arrow.unchecked():
        return routed.groupBy("parent", "shard").applyInPandasWithState(
            on_key, OUTPUT_SCHEMA, STATE_SCHEMA, "update", GroupStateTimeout.NoTimeout
        )


def _archives(settings: Settings) -> Archives | None:
    """Return the archives of large states; None if Python does not reach the checkpoint as Spark does."""
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


def _task() -> tuple[int, int | None, bool]:
    """Return micro-batch and partition of this process's task, and whether an earlier attempt has failed."""
    task = TaskContext.get()
    if task is None:
        return 0, None, False
    return int(task.getLocalProperty(_MICRO_BATCH) or 0), task.partitionId(), task.attemptNumber() > 0


_rehearsals: list[Rehearsal] = []
"""The rehearsal of this process."""


def _rehearse(config: WorkerConfig, work_on_key: KeyWork, stall_seconds: float) -> None:
    """Try the work on a key in a child process; raise `EntriesLethal` if entries kill or hang it."""
    worker = kept(config)
    if not _rehearsals or _rehearsals[0].worker is not worker:
        _end_rehearsal()
        _rehearsals.append(Rehearsal(worker, stall_seconds))
    _rehearsals[0].check(work_on_key)


def _end_rehearsal() -> None:
    while _rehearsals:
        _rehearsals.pop().close()


def _input_rows(frames: Iterator[arrow.Frame]) -> InputRows:
    columns = [[frame[name].to_numpy() for name in (*InputRow._fields, "piece")] for frame in frames]
    rows = InputRows.concat([InputRows(*each[:-1]) for each in columns])
    pieces = np.concatenate([each[-1] for each in columns])
    return joined(rows, pieces) if pieces.any() else rows


def _output_frames(
    outputs: Generator[Output, None, T], topics: Mapping[str, str | None], watchdog: Watchdog = NO_WATCHDOG
) -> Frames[T]:
    """Yield the output rows of a key as frames; return the result of its work."""
    while True:
        watchdog.arm()
        try:
            output = next(outputs)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            watchdog.disarm()
        rows = [(topics[kind], key, value) for kind, key, value in output.all_rows() if kind in topics]
        if rows:
            yield arrow.frame(rows, ["topic", "key", "value"])
