"""What processes cost."""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.processes import resident_bytes
from tests.support.scene import repeated


def descendants(pid: int) -> list[int]:
    """A process and all that it started that are still there."""
    return _family(pid, _stats())


def cpu_seconds(pid: int) -> float:
    """CPU that a process and all that it started, ended ones included, have used so far."""
    stats = _stats()
    # Each one's own, and that of children that it has waited for.
    used = sum(sum(map(int, stats[member][11:15])) for member in _family(pid, stats) if member in stats)
    return used / os.sysconf("SC_CLK_TCK")


def worker_bytes(pid: int) -> int:
    """Return the resident bytes of the largest Python worker of a process."""
    sizes = [0]
    for member in descendants(pid):
        with suppress(OSError):  # it has ended meanwhile
            if b"pyspark.worker" in Path(f"/proc/{member}/cmdline").read_bytes():
                sizes.append(resident_bytes(member))
    return max(sizes)


@contextmanager
def worker_memory(pid: int) -> Iterator[list[int]]:
    """Measure `worker_bytes` until the block ends."""
    sizes = [0]
    with repeated(lambda _: sizes.append(worker_bytes(pid)), 0.2):
        yield sizes


def _stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat behind the command, by process."""
    found: dict[int, list[str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" (")
        except OSError:  # it has ended meanwhile
            continue
        found[int(number)] = rest.rpartition(") ")[2].split()
    return found


def _family(pid: int, stats: dict[int, list[str]]) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for number, fields in stats.items():
        children[int(fields[1])].append(number)
    family = [pid]
    for member in family:
        family += children[member]
    return family
