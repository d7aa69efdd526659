"""The job as a process of its own that ends with the demo, however the demo ends."""

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
from streaming.local.java import short_lived

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.config import Settings

_START = "import sys; from streaming.cli import main; sys.exit(main(prog_name='reexpand'))"
_READY = "ready: reading "
_LOG_LINES_SHOWN = 25
_LOG_BYTES_READ = 65_536
_POLL_SECONDS = 0.1
_STOP_SECONDS = 20.0
_IMPATIENT_SECONDS = 5.0
"""How long it may take to end when nobody waits for what it still writes."""

_LINGER_SECONDS = 5.0


class Job:
    """`reexpand run` in a process of its own.

    Its guardian kills it when this process dies. Spark's Java is in the guardian's process group, so that it can be
    waited for, and killed if need be.

    Args:
        settings: only the broker's address, the checkpoint and the master are handed on; the rest are defaults.
        log_file: what the job says.
        scratch: folder of Spark's temporary files.
    """

    def __init__(self, settings: Settings, log_file: Path, scratch: Path) -> None:
        self.log_file = log_file
        self._command = [
            *(sys.executable, "-c", _START, "run"),
            *("--bootstrap-servers", settings.bootstrap_servers),
            *("--checkpoint", settings.checkpoint),
            *(("--master", settings.master) if settings.master is not None else ()),
        ]
        # The demo shows the job with its defaults, whatever the user has set for jobs of his own.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("REEXPAND_")}
        self._environment = {
            **inherited,
            "SPARK_LOCAL_DIRS": str(scratch),
            "PYTHONUNBUFFERED": "1",
            **short_lived(inherited),
        }
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
        self.stop(_IMPATIENT_SECONDS)

    @property
    def is_ready(self) -> bool:
        """Whether it has said that it reads its inputs.

        Raises:
            DemoFailed: it runs no more.
        """
        self.check()
        return _READY in self._log()

    def check(self) -> None:
        """Makes sure that it runs.

        Raises:
            DemoFailed: it does not.
        """
        if self._guardian is None or self._guardian.poll() is not None:
            raise self.failure("ended by itself")

    def failure(self, how: str) -> DemoFailed:
        """An error that says how the job failed, with the end of its log."""
        lines = self._log().splitlines()[-_LOG_LINES_SHOWN:]
        return DemoFailed(f"The job {how}. The end of {self.log_file}:\n" + "\n".join(f"    {line}" for line in lines))

    def stop(self, timeout: float = _STOP_SECONDS) -> int | None:
        """Ends it after the running micro-batch, the hard way when that takes too long.

        Returns:
            Its exit code; None when it had to be killed, or was not running.
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
                # The command has ended; its Java notices that a moment later.
                deadline = time.monotonic() + _LINGER_SECONDS
                while _group_lives(process.pid) and time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
        finally:
            if _group_lives(process.pid):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        return code

    def _log(self) -> str:
        with self.log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _LOG_BYTES_READ))
            return log.read().decode(errors="replace")


def _group_lives(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
