"""What processes cost."""

import os
from collections import defaultdict
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """CPU that a process and all that it started, ended ones included, have used so far."""
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" (")
        except OSError:  # it has ended meanwhile
            continue
        fields = rest.rpartition(") ")[2].split()
        children[int(fields[1])].append(int(number))
        used[int(number)] = sum(map(int, fields[11:15]))  # its own, and that of children that it has waited for
    family = [pid]
    for member in family:
        family += children[member]
    return sum(used.get(member, 0) for member in family) / os.sysconf("SC_CLK_TCK")
