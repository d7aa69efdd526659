"""Runs a program to its end, or to ours."""

from __future__ import annotations

import subprocess
from typing import IO, TYPE_CHECKING

from streaming.local.guardian import guarded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run(command: list[str], lock: IO[str], on_line: Callable[[str], object], folder: Path | None = None) -> int:
    """Run a program, hand over each line that it prints, and return its exit code.

    It is killed when `on_line` raises and when this process is killed; the file `lock` stays locked until it is gone.
    """
    with subprocess.Popen(
        guarded(command),
        cwd=folder,
        stdin=subprocess.PIPE,  # closed when this block is left, which is what the guardian waits for
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is for this program, which then ends the other
        pass_fds=[lock.fileno()],
    ) as process:
        for line in process.stderr or ():
            on_line(line)
        return process.wait()
