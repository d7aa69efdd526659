"""What a micro-batch costs as more is stored: topics, patterns, parents, shards; lazy, eager and mixed.

    make bench SUITE=scale BENCH="--rounds 3"

Each case is a process of the job that is first filled. Then it gets batches of new topics into the idle job (lazy), a
client that asks for a selective pattern and leaves again (eager), and batches of new topics among requests of known
clients (mixed). A figure is the time until the last update is read. The reference is the smallest case, and the no-op
query of the same plan with the same batches. Two other ways to keep the state stand beside it: all of a value in
Spark's store, and two stages, as a no-op.
"""

import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG

from streaming.local.broker import Broker
from streaming.local.java import short_lived
from tests.bench.command import broker_and_folder, by_column, in_turn, parsed, show
from tests.bench.streaming.cpu import worker_bytes
from tests.bench.streaming.driver import JOB, NO_OP, PATCHED, Driver, System
from tests.bench.streaming.workload import CLIENT, GROUP, REGIONS, Workload
from tests.support import events

TWO_STAGES = replace(NO_OP, name="two-stages", command=[*NO_OP.command, "two-stages"])
WHOLE = replace(JOB, name="whole", command=[*PATCHED, "whole"])
"""The job with the value of each key in Spark's store as a whole."""

FILL = 100_000
REQUESTS = 20
QUOTA = 1_000_000  # of a client on each shard
MB = 1_000_000


@dataclass(frozen=True)
class Case:
    """Stored topics of all parents together, patterns and shards of each parent, and new topics per batch."""

    topics: int = 1_000
    patterns: int = 100
    parents: int = 1
    shards: int = 1
    batch: int = 100

    @property
    def name(self) -> str:
        words = f"{self.topics:,} topics, {self.patterns:,} patterns"
        words += f" x {self.parents:,} parents" if self.parents > 1 else ""
        words += f", {self.shards} shards" if self.shards > 1 else ""
        return words + (f", batches of {self.batch:,}" if self.batch != Case.batch else "")


SMALL = Case(3_000)
CASES = [
    SMALL,
    replace(SMALL, shards=64),
    Case(10_000, 1_000),
    Case(100_000, 10_000),
    Case(1_000_000, 10_000),
    Case(100_000, 100_000),
    Case(1_000_000, 10_000, shards=16),
    Case(10_000_000, 100_000, shards=64),
    Case(100_000, 100, parents=64),
    Case(100_000, 100, parents=1_000),
    replace(SMALL, batch=1),
    replace(SMALL, batch=10_000),
]

CASES_OF_WHOLE_VALUES = [SMALL, *CASES[2:4], CASES[5]]


def fill(driver: Driver, case: Case) -> float:
    """Store the topics; return how many of the last ones were stored per second."""
    rate = 0.0
    while (missing := case.topics - len(driver.workload.made)) > 0:
        count = min(FILL, missing)
        rate = count / driver.burst(count)
    return rate


def eager(driver: Driver, number: int) -> float:
    """Seconds for a client that asks for one of the second segments; it leaves again."""
    workload = driver.workload
    parent, tenant = workload.parents[0], workload.tenant()
    group, topics = GROUP.format(parent=parent), workload.held[parent, tenant]
    names = {"client": f"eager{number}", "group": group, "parent": parent}
    start = time.perf_counter()
    driver.send(events.replace(f"*__{tenant}__*", **names))
    driver.wait(topics, start)
    seconds = time.perf_counter() - start
    driver.send(events.leave(**names))
    driver.wait(2 * topics, time.perf_counter())  # a tombstone each
    return seconds


def mixed(driver: Driver, case: Case, number: int) -> float:
    """Seconds for a batch of new topics among requests that add a pattern, which no topic has."""
    for client in range(REQUESTS):
        parent = driver.workload.parents[client % case.parents]
        names = {"client": CLIENT.format(number=client), "group": GROUP.format(parent=parent), "parent": parent}
        driver.send(events.add(f"nowhere__{number}", **names, version=2 + number))
    return driver.burst(case.batch)


def measure(system: System, case: Case, broker: Broker, folder: Path, repeats: int) -> dict[str, float]:
    # Large cases take long to fill: the second tier of Java's compiler would be warm in them, and cold in small ones.
    system = replace(system, environment={**system.environment, **short_lived(os.environ)})
    with Driver(system, broker, folder, Workload(case.parents, case.patterns, QUOTA * case.shards)) as driver:
        rate = fill(driver, case)
        driver.latencies(40, 20)  # what the filling left to do is done meanwhile
        before, started = _last_batch(driver), time.time()
        figures = {"lazy ms": _median(repeats, lambda _: driver.burst(case.batch))}
        batches = _last_batch(driver) - before
        figures["written kB a batch"] = _written(driver, started) / batches / 1_000
        if not system.counts:
            figures["mixed ms"] = _median(repeats, lambda number: mixed(driver, case, number))
            figures["eager ms"] = _median(repeats, lambda number: eager(driver, number))
            figures["fill events/s"] = rate
            figures["stored MB"] = sum(status.st_size for status in _files(driver, "parts").values()) / MB
        figures["worker MB"] = worker_bytes(driver.pid) / MB
        return figures


def _median(repeats: int, once: Callable[[int], float]) -> float:
    return 1_000 * statistics.median(once(number) for number in range(repeats))


def _files(driver: Driver, folder: str) -> dict[Path, os.stat_result]:
    """The files of a folder of the checkpoint that are still there when they are looked at."""
    found = {}
    for path in (Path(driver.settings.checkpoint) / folder).rglob("*"):
        with suppress(FileNotFoundError):
            if S_ISREG((status := path.stat()).st_mode):
                found[path] = status
    return found


def _last_batch(driver: Driver) -> int:
    return max(int(path.name) for path in _files(driver, "query/commits") if path.name.isdigit())


def _written(driver: Driver, since: float) -> int:
    """Bytes of the checkpoint's files that were written since."""
    return sum(status.st_size for status in _files(driver, "").values() if status.st_mtime >= since)


def main() -> None:
    options = parsed(
        __doc__,
        rounds=(1, "processes of each case, in turn"),
        repeats=(30, "batches of each kind in a process"),
        most=(1_000_000, "leave out cases with more topics"),
        only=([""], "cases whose names contain one of these texts"),
    )
    systems = {f"no-op, batches of {batch:,}": (NO_OP, Case(batch=batch)) for batch in (100, 1, 10_000)}
    systems["no-op of two stages"] = (TWO_STAGES, Case())
    for name, system, cases in (("", JOB, CASES), ("whole values: ", WHOLE, CASES_OF_WHOLE_VALUES)):
        for case in cases:
            if case.topics <= options.most:
                shards = json.dumps({f"parent{number:02}": case.shards for number in range(case.parents)})
                depth = "2" if case.shards > REGIONS else "1"  # a topic begins with a region
                environment = {"REEXPAND_SHARDS": shards, "REEXPAND_ROUTE_DEPTH": depth} if case.shards > 1 else {}
                systems[name + case.name] = (replace(system, environment=environment), case)
    systems = {
        name: each for name, each in systems.items() if name == SMALL.name or any(text in name for text in options.only)
    }
    with broker_and_folder() as (broker, folder):

        def once(name: str) -> dict[str, float]:
            return measure(*systems[name], broker, folder, options.repeats)

        found = in_turn(systems, options.rounds, once)
    for rounds in found.values():
        for figures, smallest in zip(rounds, found[SMALL.name], strict=True):
            figures["lazy / smallest"] = figures["lazy ms"] / smallest["lazy ms"]
    show({case: by_column(rounds) for case, rounds in found.items()}, "median over rounds", as_json=options.json)
