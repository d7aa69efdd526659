"""Processes that tests start, and what becomes of them."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

MARK = "REEXPAND_PROCESS_UNDER_TEST"
"""A variable whose value, in the environment of a process, marks all that it starts."""


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(condition: Callable[[], bool], seconds: float = 10, interval: float = 0.02) -> bool:
    """Whether a condition comes to hold in time; `interval` is the seconds between two looks."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(interval)
    return True


def ends_in_order() -> None:
    """Let SIGTERM end this process as an error would: it ends what it has started."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def gone(pid: int, seconds: float = 10) -> bool:
    """Whether a process ends in time."""
    return eventually(lambda: not alive(pid), seconds)


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM, in bytes; 0 where it has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def marked(mark: str) -> list[str]:
    """The commands of all processes that inherited a mark; there must be a /proc."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        except OSError:  # it has just ended, or is someone else's
            continue
    return found
