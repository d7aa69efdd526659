"""Questions to a real job whose parent has a million topics: time until the answer is there, and what others notice.

    python -m tests.bench.streaming.asking --topics 1000000 --shards 4

A topic event may wait for the micro-batch of a question, so its latency is measured by turns: with somebody who asks
all the time, and without.
"""

import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from streaming.config import Settings
from streaming.inspect import Filter
from streaming.inspect.api import Inspector
from tests.bench.command import arguments, broker_and_folder, milliseconds, progress, quantiles, show
from tests.bench.streaming.cpu import worker_bytes
from tests.bench.streaming.driver import JOB, Driver
from tests.bench.streaming.workload import CLIENT, GROUP, Workload
from tests.support.scene import repeated

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
    group, client, topic = (
        GROUP.format(parent=parent),
        CLIENT.format(number=3),
        workload.made[len(workload.made) // 80][1],
    )
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


@contextmanager
def questions_asked(settings: Settings, workload: Workload) -> "Iterator[None]":
    """Ask for explanations all the time, one after the other."""
    with Inspector(settings, ANSWER_SECONDS) as inspector:
        explain = questions(inspector, workload)["explain"]

        def ask(_: int) -> None:
            explain()

        with repeated(ask, 0):
            yield


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000, help="topics of the parent")
    parser.add_argument("--shards", type=int, default=4, help="shards of the parent")
    parser.add_argument("--times", type=int, default=10, help="how often each question is asked")
    options = parser.parse_args()
    workload = Workload(parents=1, quota=-1)
    shards = f"{workload.parents[0]}={options.shards}"
    system = replace(JOB, environment={"REEXPAND_SHARDS": shards})
    found: dict[str, dict[str, float]] = {}
    with broker_and_folder() as (broker, folder), Driver(system, broker, folder, workload) as driver:
        progress(f"{options.topics:,} topics are created")
        start = time.perf_counter()
        for done in range(0, options.topics, CHUNK):
            driver.wait(driver.create(min(CHUNK, options.topics - done)), start, MOST_SECONDS)
        before = worker_bytes(driver.pid)
        with Inspector(driver.settings, ANSWER_SECONDS) as inspector:
            for name, ask in questions(inspector, workload).items():
                progress(name)
                first, *others = milliseconds(ask, options.times)
                found[name] = {"first ms": first, **quantiles(others, "ms")}
        memory = {"MB before": before / MB, "MB after": worker_bytes(driver.pid) / MB}
        waits: dict[str, list[float]] = {"events alone": [], "events during questions": []}
        for turn in range(2 * TURNS):
            with questions_asked(driver.settings, workload) if turn % 2 else nullcontext():
                latencies = driver.latencies(EVENTS, RATE)
            list(waits.values())[turn % 2].extend(1_000 * seconds for seconds in latencies)
    found |= {name: quantiles(values, "ms") for name, values in waits.items()}
    title = f"{options.topics:,} topics, {options.shards} shards"
    show({**found, "largest worker": memory}, title, as_json=options.json)


if __name__ == "__main__":
    main()
