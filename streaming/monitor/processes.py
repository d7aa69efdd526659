"""Memory of the driver, Spark's JVM and the Python workers on this machine, from /proc."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_KEPT_SECONDS: Final = 30.0
"""Validity of a measurement, in seconds. Linux counts all pages of the processes, which takes 50 ms of CPU."""


class ProcessMemory:
    """Meter of the memory of this process and its descendants. Without /proc it returns nothing.

    Shared memory, for example of forked workers, is divided among the processes, so the sum is correct.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._measured: dict[str, int] = {}
        self._until = float("-inf")

    def __call__(self) -> dict[str, int]:
        """Return bytes by kind of process: driver, jvm, workers."""
        if self._now() >= self._until:
            self._measured = measured(os.getpid())
            self._until = self._now() + _KEPT_SECONDS
        return self._measured


def measured(pid: int) -> dict[str, int]:
    """Measure the memory of a process and its descendants in bytes, by kind."""
    sizes: dict[str, int] = {}
    for each, kind in _family(pid):
        size = _bytes(each)
        if size is not None:
            sizes[kind] = sizes.get(kind, 0) + size
    return sizes


def _family(pid: int, kind: str = "driver") -> Iterator[tuple[int, str]]:
    yield pid, kind
    for child in _children(pid):
        is_java = "java" in _name(child)
        yield from _family(child, "jvm" if is_java else kind if kind == "driver" else "workers")


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    for task in (_PROC / str(pid) / "task").glob("*"):
        try:
            found += map(int, (task / "children").read_text().split())
        except OSError:  # it has just ended
            continue
    return found


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def _bytes(pid: int) -> int | None:
    """Return the proportional memory of a process; None if it has ended."""
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)
