"""The job with a switch for its metrics: while a file exists, workers report no facts, and the driver follows nothing.

What the log line of a micro-batch needs is counted in any case, as it was before there were metrics. The server stays
open, but an idle one does nothing. Run as `driver` it is the job, and without a word the daemon of Python's workers.
"""

import os
import runpy
import sys
from typing import Any, Final
from unittest.mock import patch

from streaming.monitor.batch import BatchReport
from streaming.worker import worker
from streaming.worker.facts import facts

SWITCH: Final = "REEXPAND_BENCH_SILENT"
"""Environment variable that names the file."""


def is_silent() -> bool:
    """Return true while the metrics are off."""
    return os.path.exists(os.environ[SWITCH])  # noqa: PTH110 - called for each key, and a Path costs more than the look


def facts_if_wanted(*given: Any) -> Any:
    """Return the facts about a key, or none."""
    return None if is_silent() else facts(*given)


def drive() -> None:
    """Run the job, whose workers are forks of the daemon below."""
    from streaming.cli import main  # noqa: PLC0415 - workers need neither this nor what follows
    from streaming.spark import service, session  # noqa: PLC0415
    from streaming.spark.monitoring import QueryMonitor  # noqa: PLC0415

    class SwitchedMonitor(QueryMonitor):
        """Monitor that does nothing while the metrics are off."""

        def follow(self, batch: BatchReport) -> None:
            if not is_silent():
                super().follow(batch)

        def look(self) -> None:
            if not is_silent():
                super().look()

    take = session.options

    def options(*given: Any) -> dict[str, str]:
        return {**take(*given), "spark.python.daemon.module": "tests.bench.streaming.switched"}

    with patch.object(session, "options", options), patch.object(service, "QueryMonitor", SwitchedMonitor):
        main(["run"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["driver"]:
        drive()
    else:
        with patch.object(worker, "facts", facts_if_wanted):
            runpy.run_module("streaming.spark.daemon", run_name="__main__")
