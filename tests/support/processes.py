"""Processes that tests start, and what becomes of them."""

import os
import time
from collections.abc import Callable


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


def gone(pid: int, seconds: float = 10) -> bool:
    """Whether a process ends in time."""
    return eventually(lambda: not alive(pid), seconds)
