"""Questions to a real job whose parent has a million topics: time until the answer is there, and what others notice.

    python -m tests.bench.streaming.asking --topics 1000000 --shards 4

A topic event may wait for the micro-batch of a question, so its latency is measured by turns: with somebody who asks
all the time, and without.
"""

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from streaming.config import Settings
from streaming.inspect import Filter
from streaming.inspect.api import Inspector
from tests.bench.command import arguments, broker_and_folder, show
from tests.bench.streaming.cpu import worker_bytes
from tests.bench.streaming.driver import JOB, Driver
from tests.bench.streaming.workload import CLIENT, GROUP, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

MB = 1_000_000
CHUNK = 50_000
TURNS = 4
EVENTS, RATE = 30, 4.0
"""Topic events of a turn, and how many of them in a second."""

ANSWER_SECONDS = 60.0
MOST_SECONDS = 1_800


def questions(inspector: Inspector, workload: Workload) -> dict[str, Callable[[], object]]:
    """What is asked, by name."""
    (parent,) = workload.parents
    group, client, topic = GROUP.format(parent=parent), CLIENT.format(number=3), workload.made[12_345][1]
    request = {"action": "COMPLETE_ADD", "clientId": "new", "group": group, "topic": parent, "version": 1}
    region = topic.partition("__")[0]
    return {
        "explain": lambda: inspector.explain(client, topic),
        "topics: the first 100": lambda: next(inspector.topics(parent, limit=100)),
        "topics: one tenant, the first 100": lambda: next(
            inspector.topics(parent, Filter(pattern=f"*__{workload.tenant()}__*"), limit=100)
        ),
        "topics: all": lambda: sum(1 for _ in inspector.topics(parent, limit=10_000)),
        "clients": lambda: list(inspector.clients(parent)),
        "plan: one tenant of a region": lambda: inspector.plan(
            {**request, "liteTopicSet": [f"{region}__{workload.tenant()}__*"]}
        ),
        "plan: **": lambda: inspector.plan({**request, "liteTopicSet": ["**"]}),
    }


def timed(ask: Callable[[], object]) -> float:
    """Milliseconds until there is an answer."""
    start = time.perf_counter()
    ask()
    return 1_000 * (time.perf_counter() - start)


@contextmanager
def somebody_asks(settings: Settings, workload: Workload) -> "Iterator[None]":
    """Ask for explanations all the time, one after the other."""
    stop = threading.Event()

    def run() -> None:
        with Inspector(settings, ANSWER_SECONDS) as inspector:
            explain = questions(inspector, workload)["explain"]
            while not stop.is_set():
                explain()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def main() -> None:
    """Prints both tables."""
    parser = arguments(__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000, help="topics of the parent")
    parser.add_argument("--shards", type=int, default=4, help="shards of the parent")
    parser.add_argument("--times", type=int, default=10, help="how often each question is asked")
    options = parser.parse_args()
    console = Console(stderr=True)
    workload = Workload(parents=1, quota=-1)
    shards = f"{workload.parents[0]}={options.shards}"
    system = replace(JOB, environment={"REEXPAND_SHARDS": shards})
    found: dict[str, dict[str, float]] = {}
    with broker_and_folder() as (broker, folder), Driver(system, broker, folder, workload) as driver:
        console.print(f"{options.topics:,} topics come")
        start = time.perf_counter()
        for _ in range(options.topics // CHUNK):
            driver.wait(driver.create(CHUNK), start, MOST_SECONDS)
        before = worker_bytes(driver.pid)
        with Inspector(driver.settings, ANSWER_SECONDS) as inspector:
            for name, ask in questions(inspector, workload).items():
                console.print(name)
                first, *others = sorted_after_first([timed(ask) for _ in range(options.times)])
                found[name] = {"first ms": first, "p50 ms": statistics.median(others), "most ms": others[-1]}
        memory = before / MB, worker_bytes(driver.pid) / MB
        alone: list[float] = []
        asked: list[float] = []
        for turn in range(2 * TURNS):
            beside: AbstractContextManager[None] = (
                somebody_asks(driver.settings, workload) if turn % 2 else nullcontext()
            )
            with beside:
                (asked if turn % 2 else alone).extend(driver.latencies(EVENTS, RATE))
    title = f"{options.topics:,} topics, {options.shards} shards"
    table = Table("question", "first ms", "p50 ms", "most ms", title=title)
    for name, row in found.items():
        table.add_row(name, *(f"{value:,.0f}" for value in row.values()))
    ends = {"largest worker MB before": memory[0], "largest worker MB after": memory[1]}
    for name, values in {"alone": alone, "beside somebody who asks": asked}.items():
        ends[f"event ms p50, {name}"] = 1_000 * statistics.median(values)
        ends[f"event ms p95, {name}"] = 1_000 * statistics.quantiles(values, n=20)[-1]
    for name, value in ends.items():
        table.add_row(name, "", f"{value:,.0f}", "")
    show({"questions": found, **ends}, table, as_json=options.json, width=90)


def sorted_after_first(values: list[float]) -> list[float]:
    """The first value, and all others in order."""
    return [values[0], *sorted(values[1:])]


if __name__ == "__main__":
    main()
