"""The job as a process of its own; it ends with the demo in any case."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from streaming.errors import DemoFailed
from streaming.local import guardian
from streaming.local.classes import LAUNCH_VARIABLE
from streaming.local.java import OPTIONS_VARIABLE, short_lived

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streaming.config import Settings

_START = "import sys; from streaming.cli import main; sys.exit(main(prog_name='reexpand'))"
_READY = "ready: reading "
_LOG_LINES_SHOWN = 25
_LOG_BYTES_READ = 65_536
_POLL_SECONDS = 0.1
_STOP_SECONDS = 20.0
_SHORT_STOP_SECONDS = 5.0
"""Time to end, in seconds, when the last output is not awaited."""

_LINGER_SECONDS = 5.0


class Job:
    """`reexpand run` in a process of its own.

    Its guardian kills it when this process dies. Spark's Java is in the guardian's process group, which lets the demo
    wait for it, and kill it if need be.

    Args:
        settings: address of the broker, checkpoint and master; the job gets no other setting.
        log_file: destination of the job's log.
        scratch: folder of Spark's temporary files.
        java_options: further options of Spark's JVM, whose command is then in the log.
    """

    def __init__(self, settings: Settings, log_file: Path, scratch: Path, java_options: Sequence[str] = ()) -> None:
        self.log_file = log_file
        self._command = [
            *(sys.executable, "-P", "-c", _START, "run"),
            *("--bootstrap-servers", settings.bootstrap_servers),
            *("--checkpoint", settings.checkpoint),
            *(("--master", settings.master) if settings.master is not None else ()),
            *("--http", "127.0.0.1:0"),
        ]
        # The demo shows the job with its defaults; settings in the environment are for the user's own jobs.
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
        self._guardian: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log_file.open("wb") as log:
            self._guardian = subprocess.Popen(
                [sys.executable, "-IS", guardian.__file__, *self._command],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the demo; it then stops the job
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(_SHORT_STOP_SECONDS)

    @property
    def is_ready(self) -> bool:
        """True once the log says that the job reads its inputs.

        Raises:
            DemoFailed: the job no longer runs.
        """
        self.check()
        return _READY in self._log()

    def check(self) -> None:
        """Make sure that the job runs.

        Raises:
            DemoFailed: the job no longer runs.
        """
        if self._guardian is None or self._guardian.poll() is not None:
            raise self.failure("ended by itself")

    def failure(self, how: str) -> DemoFailed:
        """Return an error about a failed job, with the end of its log."""
        lines = self._log().splitlines()[-_LOG_LINES_SHOWN:]
        return DemoFailed(f"The job {how}. The end of {self.log_file}:\n" + "\n".join(f"    {line}" for line in lines))

    def stop(self, timeout: float = _STOP_SECONDS) -> int | None:
        """End the job after the running micro-batch, or kill it after a timeout.

        Returns:
            The exit code; None if the job had to be killed, or was not running.
        """
        process, self._guardian = self._guardian, None
        if process is None:
            return None
        code = None
        try:
            if process.poll() is None and process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.write(bytes([signal.SIGTERM]))
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout)
                # Java notices the end of the command a moment later.
                deadline = time.monotonic() + _LINGER_SECONDS
                while _group_lives(process.pid) and time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
        finally:
            if _group_lives(process.pid):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        return code

    def kill(self) -> None:
        """Kill the job with its Java at once, as the death of its machine would."""
        process, self._guardian = self._guardian, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def _log(self) -> str:
        """Return the end of the log."""
        with self.log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _LOG_BYTES_READ))
            return log.read().decode(errors="replace")


def _group_lives(number: int) -> bool:
    """Tell whether a process group has members."""
    try:
        os.killpg(number, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
