"""What the job costs at a low rate, and what a trigger interval saves of it: cores in use, and latency.

python -m tests.bench.streaming.low_rate
"""

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from streaming.local.broker import Broker
from tests.bench.streaming.run import Driver


def cpu_seconds(pid: int) -> float:
    """CPU that a process and all that it started have used so far."""
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" (")
        except OSError:  # it has ended meanwhile
            continue
        fields = rest.rpartition(") ")[2].split()
        children[int(fields[1])].append(int(number))
        used[int(number)] = int(fields[11]) + int(fields[12])
    family = [pid]
    for member in family:
        family += children[member]
    return sum(used.get(member, 0) for member in family) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, nargs="+", default=[0, 500, 1_000, 1_500, 2_000], help="milliseconds")
    parser.add_argument("--rate", type=float, default=20, help="events a second")
    parser.add_argument("--events", type=int, default=400, help="events that are measured at each interval")
    options = parser.parse_args()
    table = Table("trigger interval ms", "cores", "p50 ms", "p95 ms", title=f"{options.rate:g} events a second")
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "kafka") as broker:
        for interval in options.intervals:
            os.environ["REEXPAND_TRIGGER_INTERVAL_MS"] = str(interval)
            driver = Driver("job", broker, Path(folder), options.events)
            try:
                driver.prepare()
                driver.latencies(options.events // 2, options.rate)
                before, start = cpu_seconds(driver.pid), time.monotonic()
                latencies = driver.latencies(options.events, options.rate)
                cores = (cpu_seconds(driver.pid) - before) / (time.monotonic() - start)
            finally:
                driver.close()
            quantiles = statistics.quantiles(latencies, n=20)
            table.add_row(str(interval), f"{cores:.2f}", f"{1000 * quantiles[9]:,.0f}", f"{1000 * quantiles[18]:,.0f}")
    Console(width=80).print(table)


if __name__ == "__main__":
    main()
