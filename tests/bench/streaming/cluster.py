"""Throughput of bursts: the job in one process against a Spark cluster of two workers with one core each, in turn.

    python -m tests.bench.streaming.cluster --rounds 3

Bursts are those of `tests.bench.streaming.run`, with some before them that are not counted; a round's figure is the
median of its bursts.
"""

import argparse
import statistics
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from streaming.local.broker import Broker
from streaming.local.cluster import SparkCluster
from tests.bench.command import arguments, broker_and_folder, in_turn, show
from tests.bench.streaming.driver import JOB, Driver

WORKERS = 2


def throughput(broker: Broker, folder: Path, options: argparse.Namespace, *, on_cluster: bool) -> float:
    """Events a second that a job reaches, from its start to its end."""
    events: int = options.events
    with ExitStack() as stack:
        system = JOB
        if on_cluster:
            cluster = stack.enter_context(SparkCluster(folder / f"cluster-{uuid4().hex[:6]}", workers=WORKERS))
            system = replace(JOB, environment={"REEXPAND_MASTER": cluster.url})
        driver = stack.enter_context(Driver(system, broker, folder))
        for _ in range(options.warm_bursts):
            driver.burst(events)
        return events / statistics.median(driver.burst(events) for _ in range(options.bursts))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="jobs in one process, and on a cluster, in turn")
    parser.add_argument("--events", type=int, default=100_000, help="topic events of a burst")
    parser.add_argument("--warm-bursts", type=int, default=5, help="bursts before them")
    parser.add_argument("--bursts", type=int, default=2, help="bursts counted in each round")
    options = parser.parse_args()
    with broker_and_folder() as (broker, folder):

        def once(where: str) -> float:
            return throughput(broker, folder, options, on_cluster=where == "cluster")

        found = in_turn(("one process", "cluster"), options.rounds, once)
    found["cluster / one process"] = [many / one for one, many in zip(*found.values(), strict=True)]
    show({name: {"events/s": values} for name, values in found.items()}, "over rounds", as_json=options.json)


if __name__ == "__main__":
    main()
