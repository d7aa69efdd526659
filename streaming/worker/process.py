"""The worker of a Python process, which keeps states from task to task, and the garbage collector of the process."""

import gc
import itertools
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from streaming.worker.output import Output
from streaming.worker.rows import InputRows
from streaming.worker.watchdog import Observer
from streaming.worker.worker import Worker, WorkerConfig

_kept: list[Worker] = []
"""The worker of this process; each task brings an equal copy of the settings that it was made for."""


def work(
    parent: str,
    number: int,
    rows: InputRows,
    data: bytes | None,
    config: WorkerConfig,
    *,
    batch: int = 0,
    partition: int | None = None,
    observer: Observer | None = None,
) -> Generator[Output, None, bytes | None]:
    """Apply the rows of one key in a micro-batch, by the worker of this process (see `Worker.work`)."""
    worker = kept(config)
    return worker.work(parent, number, rows, data, batch=batch, partition=partition, observer=observer)


def kept(config: WorkerConfig) -> Worker:
    """Return the worker of this process."""
    if not _kept or _kept[0].config != config:
        _kept[:] = [Worker(config)]
    return _kept[0]


@contextmanager
def without_collection() -> Iterator[None]:
    """Hold the cyclic garbage collector off, and hide long-lived objects from it.

    A micro-batch makes many objects and no cycles; scanning them again and again took a quarter of the time. Besides,
    PySpark's worker collects all of its memory after each task: with Spark's own modules alone that took 0.15 s a
    task, two thirds of the worker's CPU at 20 events a second, and it would grow with the decoded states. Frozen
    objects are not scanned. Now and then all are, in case a library left cycles among them.
    """
    gc.disable()
    try:
        yield
    finally:
        if next(_CALLS) % _CALLS_BETWEEN_COLLECTIONS == 0:
            gc.unfreeze()
            gc.collect()
        gc.freeze()
        gc.enable()


_CALLS = itertools.count(1)
_CALLS_BETWEEN_COLLECTIONS = 10_000
