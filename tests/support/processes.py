"""Processes that tests start, and their ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MARK = "REEXPAND_PROCESS_UNDER_TEST"
"""Environment variable that marks a process and all of its descendants."""


def alive(pid: int) -> bool:
    """Return True if the process runs; not if it has ended and its parent has not noticed."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return state(pid) != "Z"


def state(pid: int) -> str:
    """Return the letter of a process's state; blank if there is no such process, or no /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def eventually(condition: Callable[[], bool], seconds: float = 60, interval: float = 0.02) -> bool:
    """Return True if a condition becomes true in time; check every `interval` seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a command, and kill it at the end."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def ends_in_order() -> None:
    """Make SIGTERM end this process like an error, so it stops its child processes."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def gone(pid: int) -> bool:
    """Return True if a process ends in time."""
    return eventually(lambda: not alive(pid))


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def marked(mark: str) -> list[str]:
    """Return the commands of all processes that inherited a mark; requires /proc."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        except OSError:  # it has just ended, or belongs to another user
            continue
    return found
