"""Memory of processes on this machine, as Linux reports it; None elsewhere."""

import os
from contextlib import suppress
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; None if it is unknown."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def available_bytes() -> int | None:
    """Return the memory that processes can still get, within the machine and the container; None if it is unknown."""
    return min(filter(None, (_of_machine(), _of_container())), default=None)


def _of_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("MemAvailable:"))
    return None


def _of_container() -> int | None:
    """Return what the control group, version 2, has left; its file cache counts as free."""
    with suppress(OSError, ValueError, StopIteration):
        limit = int((_CGROUP / "memory.max").read_text())  # "max" without a limit
        used = int((_CGROUP / "memory.current").read_text())
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        cache = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        return max(1, limit - used + cache)
    return None
