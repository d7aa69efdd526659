"""Execution of helper programs; none of them outlives this process."""

from __future__ import annotations

import subprocess
from typing import IO, TYPE_CHECKING

from streaming.local.guardian import guarded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_LOG_LINES_SHOWN = 15
"""Number of lines of a log in an error message."""


def end_of(log_file: Path) -> str:
    """Return the last lines of a log, indented, for an error message."""
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-_LOG_LINES_SHOWN:])


def run(command: list[str], lock: IO[str], on_line: Callable[[str], object], folder: Path | None = None) -> int:
    """Run a program, pass each line of its output to `on_line`, and return its exit code.

    The program is killed when `on_line` raises and when this process is killed. The file `lock` stays locked until the
    program is gone.
    """
    with subprocess.Popen(
        guarded(command),
        cwd=folder,
        stdin=subprocess.PIPE,  # closed when this block is left, which makes the guardian kill the program
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches this process only, which then ends the program
        pass_fds=[lock.fileno()],
    ) as process:
        for line in process.stderr or ():
            on_line(line)
        return process.wait()
