"""What processes cost."""

import os
import threading
from collections import defaultdict
from pathlib import Path


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
    """Resident bytes of the largest Python worker of a process."""
    sizes = [0]
    for member in descendants(pid):
        process = Path(f"/proc/{member}")
        try:
            if b"pyspark.worker" in (process / "cmdline").read_bytes():
                status = (process / "status").read_text()
                sizes.append(1_024 * int(status.partition("VmRSS:")[2].split()[0]))
        except (OSError, IndexError):  # it has ended meanwhile
            continue
    return max(sizes)


class Memory:
    """Watches the largest Python worker of a process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.most = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            self.most = max(self.most, worker_bytes(self._pid))

    def end(self) -> int:
        """The most bytes that were seen."""
        self._stop.set()
        self._thread.join()
        return self.most


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
