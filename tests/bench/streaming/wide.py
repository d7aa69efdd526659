"""A client asks for everything under a parent with very many topics: how long, in how much memory, and who waits.

    python -m tests.bench.streaming.wide --topics 1000000

Meanwhile topics come under another parent at a steady rate: their latencies show how long the micro-batches are.
"""

import statistics
import time

from rich.console import Console
from rich.table import Table

from tests.bench.command import arguments, broker_and_folder, show
from tests.bench.streaming.cpu import Memory, worker_bytes
from tests.bench.streaming.driver import JOB, Driver
from tests.bench.streaming.scale import Case, fill
from tests.bench.streaming.workload import GROUP, Workload

RATE = 5
MB = 1_000_000


def main() -> None:
    """Runs once and prints the figures."""
    parser = arguments(__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000, help="of the parent that is asked for")
    options = parser.parse_args()
    console = Console(stderr=True)
    with (
        broker_and_folder() as (broker, folder),
        Driver(JOB, broker, folder, Workload(parents=1, quota=-1)) as driver,
    ):
        console.print("filling")
        fill(driver, Case(options.topics))
        figures = measure(driver, options.topics)
    table = Table("", "")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.0f}")
    show(figures, table, as_json=options.json)


def measure(driver: Driver, topics: int) -> dict[str, float]:
    """Asks for everything, and sends topics of another parent until all is said."""
    before = worker_bytes(driver.pid)
    memory = Memory(driver.pid)
    parent = driver.workload.parents[0]
    group = GROUP.format(parent=parent)
    ask = {"action": "COMPLETE_ADD", "clientId": "wide", "group": group, "topic": parent, "liteTopicSet": ["**"]}
    other = {"group": "other", "attributes": {"lite.bind.topic": "other", "lite.sub.wildcard": "true"}}
    driver.send(driver.settings.group_events, "other", other)
    names = {"clientId": "narrow", "group": "other", "topic": "other"}
    driver.send(
        driver.settings.subscription_events, "other", {**names, "action": "COMPLETE_ADD", "liteTopicSet": ["*"]}
    )
    time.sleep(3)
    start = time.perf_counter()
    driver.send(driver.settings.subscription_events, group, ask)
    waits: list[float] = []
    sent: dict[str, float] = {}
    wide = number = 0
    while wide < topics or sent:
        if wide < topics and time.perf_counter() - start >= number / RATE:
            topic = f"topic{number}"
            event = {"event": "CREATED", "parentTopic": "other", "liteTopic": topic, "timestamp": 0}
            sent[topic] = time.perf_counter()
            driver.send(driver.settings.topic_events, "other", event)
            number += 1
        for update in driver.read():
            if update["clientId"] == "narrow":
                waits.append(time.perf_counter() - sent.pop(update["liteTopic"]))
            else:
                wide += 1
                done = time.perf_counter() - start
    return {
        "updates": wide,
        "seconds until the last one": done,
        "updates a second": wide / done,
        "worker MB before": before / MB,
        "worker MB at most": memory.end() / MB,
        "ms that other topics waited, median": 1_000 * statistics.median(waits),
        "ms that other topics waited, at most": 1_000 * max(waits),
    }


if __name__ == "__main__":
    main()
