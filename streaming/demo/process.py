"""The job as a child process of the demo."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Self

from streaming.errors import DemoFailed
from streaming.local.classes import LAUNCH_VARIABLE
from streaming.local.java import OPTIONS_VARIABLE, short_lived
from streaming.local.process import Child, end_of, tail

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streaming.config import Settings

START = (sys.executable, "-P", "-c", "import sys; from streaming.cli import main; sys.exit(main(prog_name='reexpand'))")
"""Command line of `reexpand`, for a child process."""

_READY = "ready: reading "
_POLL_SECONDS = 0.1
_STOP_SECONDS = 60.0
_SHORT_STOP_SECONDS = 5.0
"""Timeout of a stop, in seconds, if the last output is not needed."""

_LINGER_SECONDS = 5.0
"""Time in seconds within which Java ends after the command."""


class Job:
    """`reexpand run` as a child process, which ends with this process.

    Args:
        settings: address of the broker, checkpoint and master. The job gets no other settings.
        log_file: destination of the job's log.
        scratch: folder of Spark's temporary files.
        java_options: additional options of Spark's JVM. They also make Spark log the JVM's command.
    """

    def __init__(self, settings: Settings, log_file: Path, scratch: Path, java_options: Sequence[str] = ()) -> None:
        self.log_file = log_file
        self._command = [
            *(*START, "run"),
            *("--bootstrap-servers", settings.bootstrap_servers),
            *("--checkpoint", settings.checkpoint),
            *(("--master", settings.master) if settings.master is not None else ()),
            *("--http", "127.0.0.1:0"),
        ]
        # The demo uses the defaults. Settings in the environment are for the user's own jobs.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("REEXPAND_")}
        self._environment = {
            **inherited,
            "SPARK_LOCAL_DIRS": str(scratch),
            "PYTHONUNBUFFERED": "1",
            **short_lived(inherited),
        }
        if java_options:
            given = [self._environment[OPTIONS_VARIABLE], *java_options]
            self._environment |= {OPTIONS_VARIABLE: " ".join(given), LAUNCH_VARIABLE: "1"}
        self._child: Child | None = None

    def __enter__(self) -> Self:
        self._child = Child(self._command, self.log_file, environment=self._environment)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(_SHORT_STOP_SECONDS)

    @property
    def is_ready(self) -> bool:
        """True if the log reports that the job reads its inputs.

        Raises:
            DemoFailed: the job has ended.
        """
        self.check()
        return _READY in tail(self.log_file)

    def check(self) -> None:
        """Check that the job is running.

        Raises:
            DemoFailed: the job has ended.
        """
        if self._child is None or not self._child.running:
            raise self.failure("ended unexpectedly")

    def failure(self, how: str) -> DemoFailed:
        """Return an error about the job, with the end of its log."""
        return DemoFailed(f"The job {how}. {end_of(self.log_file)}")

    def stop(self, timeout: float = _STOP_SECONDS) -> int | None:
        """Stop the job after the current micro-batch; kill it after a timeout.

        Returns:
            The exit code; None if the job was killed or not running.
        """
        child, self._child = self._child, None
        if child is None:
            return None
        code = None
        try:
            child.send(signal.SIGTERM)
            code = child.wait(timeout)
            deadline = time.monotonic() + _LINGER_SECONDS
            while code is not None and child.group_exists() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        finally:
            child.kill_group()
        return code

    def kill(self) -> None:
        """Kill the job and its Java, as a crash of its machine would."""
        child, self._child = self._child, None
        if child is not None:
            child.kill_group()
