"""A client asks for everything under a parent with very many topics: how long, in how much memory, and who waits.

    python -m tests.bench.streaming.wide --topics 1000000

Meanwhile topics come under another parent at a steady rate: their latencies show how long the micro-batches are.
"""

import time

from tests.bench.command import arguments, broker_and_folder, progress, quantiles, show
from tests.bench.streaming.cpu import worker_bytes, worker_memory
from tests.bench.streaming.driver import JOB, Driver
from tests.bench.streaming.scale import Case, fill
from tests.bench.streaming.workload import GROUP, Workload
from tests.support import values

RATE = 5
MB = 1_000_000


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000, help="of the parent that is asked for")
    options = parser.parse_args()
    with (
        broker_and_folder() as (broker, folder),
        Driver(JOB, broker, folder, Workload(parents=1, quota=-1)) as driver,
    ):
        progress("filling")
        fill(driver, Case(options.topics))
        figures = measure(driver, options.topics)
    show({"wide": figures}, f"{options.topics:,} topics", as_json=options.json)


def measure(driver: Driver, topics: int) -> dict[str, float]:
    """Subscribe to everything, and create topics of another parent until all updates are read."""
    before = worker_bytes(driver.pid)
    parent = driver.workload.parents[0]
    driver.send(values.wildcard(group="other", parent="other"))
    driver.send(values.replace("*", client="narrow", group="other", parent="other"))
    time.sleep(3)
    start = time.perf_counter()
    driver.send(values.replace("**", client="wide", group=GROUP.format(parent=parent), parent=parent))
    waits: list[float] = []
    sent: dict[str, float] = {}
    wide = number = 0
    with worker_memory(driver.pid) as memory:
        while wide < topics or sent:
            if wide < topics and time.perf_counter() - start >= number / RATE:
                topic = f"topic{number}"
                sent[topic] = time.perf_counter()
                driver.send(values.created(topic, parent="other", timestamp=0))
                number += 1
            for update in driver.read():
                if update["clientId"] == "narrow":
                    waits.append(1_000 * (time.perf_counter() - sent.pop(update["liteTopic"])))
                else:
                    wide += 1
                    done = time.perf_counter() - start
    return {
        "updates": wide,
        "seconds until the last one": done,
        "updates a second": wide / done,
        "worker MB before": before / MB,
        "worker MB at most": max(memory) / MB,
        **quantiles(waits, "ms of other topics"),
    }


if __name__ == "__main__":
    main()
