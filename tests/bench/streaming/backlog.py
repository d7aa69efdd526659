"""Catching up: so many topic events are there before the job starts, as after an hour in which it was away.

    python -m tests.bench.streaming.backlog --events 5000000 --per-trigger 100000

Events a second are those of the job from its start, with the start of Spark, until the last update is written. No
consumer reads meanwhile: it would use the same cores.
"""

import time
from dataclasses import replace
from pathlib import Path

from streaming.local.broker import Broker
from tests.bench.command import arguments, broker_and_folder, progress, show
from tests.bench.streaming.cpu import cpu_seconds, worker_memory
from tests.bench.streaming.driver import JOB, Driver
from tests.bench.streaming.workload import Workload

MB = 1_000_000
CHUNK = 50_000
MOST_SECONDS = 1_800


def measure(broker: Broker, folder: Path, events: int, per_trigger: int) -> dict[str, float]:
    system = replace(JOB, environment={"REEXPAND_MAX_OFFSETS_PER_TRIGGER": str(per_trigger)})
    driver = Driver(system, broker, folder, Workload(quota=-1), starts=False)
    driver.subscribe()
    wanted = sum(driver.create(min(CHUNK, events - first)) for first in range(0, events, CHUNK))
    start = time.perf_counter()
    driver.start()
    try:
        with worker_memory(driver.pid) as memory:
            driver.wait_written(wanted, start, MOST_SECONDS)
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "events/s": events / seconds,
            "updates/s": wanted / seconds,
            "CPU s per 100,000": 100_000 * cpu_seconds(driver.pid) / events,
            "worker MB at most": max(memory) / MB,
        }
    finally:
        driver.close()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, default=5_000_000, help="topic events that wait")
    parser.add_argument(
        "--per-trigger", type=int, action="append", help="records that a micro-batch reads at most; repeatable"
    )
    options = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for per_trigger in options.per_trigger or [100_000]:
        progress(f"{options.events:,} events, {per_trigger:,} per micro-batch")
        with broker_and_folder() as (broker, folder):
            found[f"{per_trigger:,} per micro-batch"] = measure(broker, folder, options.events, per_trigger)
    show(found, f"{options.events:,} topic events", as_json=options.json)


if __name__ == "__main__":
    main()
