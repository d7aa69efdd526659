"""The job with one part replaced: `python -m tests.bench.streaming.patched naive|whole|switched`.

- `naive` uses Spark's defaults in place of the choices for speed. The few shuffle partitions and the short fetches of
  the source stay: with their defaults, nothing could be compared.
- `whole` keeps the value of each key in Spark's store as a whole.
- `switched` has a switch for its metrics: while a file exists, workers report no facts, and the driver follows nothing.
  The counts for the log line of a micro-batch stay, as does the server, which costs nothing if idle. While the metrics
  are on, a second file takes the time in which driver and workers do something for them.

With Spark's argument, the name of a worker module, it is the daemon of Python's workers of `switched`.
"""

import os
import runpy
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from prometheus_client import CollectorRegistry, exposition

from streaming.monitor.batch import BatchReport
from streaming.worker import worker
from streaming.worker.rows import facts

SWITCH: Final = "REEXPAND_BENCH_SILENT"
"""Environment variable that names the file."""

SPENT: Final = "REEXPAND_BENCH_SPENT"
"""Environment variable that names the other file."""

_SECONDS: Final = struct.Struct("d")
_CHOSEN: Final = {
    "spark.hadoop.fs.file.impl",
    "spark.python.unix.domain.socket.enabled",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled",
    "spark.sql.streaming.checkpointFileManagerClass",
}
"""Options of Spark that the job chooses for speed."""


def is_silent() -> bool:
    """Return true while the metrics are off."""
    return os.path.exists(os.environ[SWITCH])  # noqa: PTH110 - called for each key, and a Path costs more than the look


@contextmanager
def timed() -> Iterator[None]:
    """Note how long the context takes, waits for Java and for a core included."""
    begun = time.perf_counter()
    yield
    os.write(_spent(), _SECONDS.pack(time.perf_counter() - begun))  # a short one, which mixes with no other


@cache
def _spent() -> int:
    """Open the other file, once: to do so for each key would cost more than what is measured."""
    return os.open(os.environ[SPENT], os.O_WRONLY | os.O_APPEND)


def spent(file: Path) -> float:
    """Return the seconds that a file has taken so far."""
    return float(sum(seconds for (seconds,) in _SECONDS.iter_unpack(file.read_bytes())))


def facts_if_wanted(*given: Any) -> Any:
    """Return the facts about a key, or none."""
    if is_silent():
        return None
    with timed():
        return facts(*given)


def naive() -> None:
    """Run the job with Spark's defaults."""
    _run_with_options(lambda options: {name: value for name, value in options.items() if name not in _CHOSEN})


def whole() -> None:
    """Run the job without parts of values in files."""
    from streaming.spark import expand  # noqa: PLC0415

    with patch.object(expand, "_archives", lambda _: None):
        _run_with_options(lambda options: options)


def switched() -> None:
    """Run the job whose workers are forks of the daemon below."""
    from streaming.spark import service  # noqa: PLC0415
    from streaming.spark.monitoring import QueryMonitor  # noqa: PLC0415

    class SwitchedMonitor(QueryMonitor):
        """Monitor that does nothing while the metrics are off."""

        def follow(self, batch: BatchReport) -> None:
            if not is_silent():
                with timed():
                    super().follow(batch)

        def look(self) -> None:
            if not is_silent():
                with timed():
                    super().look()

    choose = exposition.choose_encoder

    def timed_encoder(accepted: str) -> tuple[Callable[[CollectorRegistry], bytes], str]:
        encode, content_type = choose(accepted)

        def encoded(registry: CollectorRegistry) -> bytes:
            with timed():
                return encode(registry)

        return encoded, content_type

    with (
        patch.object(service, "QueryMonitor", SwitchedMonitor),
        patch("streaming.monitor.server.choose_encoder", timed_encoder),
    ):
        _run_with_options(lambda options: {**options, "spark.python.daemon.module": "tests.bench.streaming.patched"})


def _run_with_options(changed: Callable[[dict[str, str]], dict[str, str]]) -> None:
    from streaming.cli import main  # noqa: PLC0415 - workers need neither this nor the others
    from streaming.spark import session  # noqa: PLC0415

    take = session.options
    with patch.object(session, "options", lambda *given, **named: changed(take(*given, **named))):
        main(["run"])


if __name__ == "__main__":
    parts = {"naive": naive, "whole": whole, "switched": switched}
    if sys.argv[1] in parts:
        parts[sys.argv[1]]()
    else:
        with patch.object(worker, "facts", facts_if_wanted):
            runpy.run_module("streaming.spark.daemon", run_name="__main__")
