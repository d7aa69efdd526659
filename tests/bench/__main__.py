"""Run a suite: `python -m tests.bench SUITE [OPTIONS]`. Without arguments, list the suites."""

# ruff: noqa: T201 - it is there to print

import sys
from importlib import import_module
from typing import NamedTuple


class Suite(NamedTuple):
    """A suite of `make bench`.

    Attributes:
        place: module below `tests.bench`, and the function that measures if it is not `main`.
        measures: description in the list of suites.
        options: options that come before the given ones.
    """

    place: str
    measures: str
    options: tuple[str, ...] = ()


SUITES = {
    "job": Suite("streaming.run", "latency and throughput against a no-op of the same plan, as ratios (two hours)"),
    "delivery": Suite(
        "streaming.run",
        "exactly once against at least once: latency and throughput as ratios (an hour)",
        ("--only", "job", "job-at-least-once"),
    ),
    "metrics": Suite("streaming.metrics", "one job with metrics that are scraped, and without (8 minutes)"),
    "starts": Suite("streaming.starts", "from a start after SIGKILL to the first update, 20 times (ten minutes)"),
    "cluster": Suite(
        "streaming.jobs:cluster", "throughput in one process and on a Spark cluster of two workers, as a ratio"
    ),
    "scale": Suite("streaming.scale", "a micro-batch by stored topics, patterns, parents and shards (15 minutes)"),
    "wide": Suite("streaming.jobs:wide", "a client asks for a million topics: time, memory, wait of others"),
    "asking": Suite("streaming.jobs:asking", "questions to a job with a million topics: time, memory, wait of others"),
    "inquiry": Suite("streaming.worker:inquiry", "CPU of a worker per answer, with a million topics in its shard"),
    "console": Suite("streaming.console", "answers of a console with a million topics"),
    "backlog": Suite("streaming.jobs:backlog", "five million events that were there before the start (ten minutes)"),
    "eager": Suite("streaming.worker:eager", "a pattern over a million topics: the index of a shard against a scan"),
    "low-rate": Suite(
        "streaming.jobs:low_rate", "cores at 20 events per second, by budget and interval (half an hour)"
    ),
    "cold": Suite("streaming.worker:cold", "the first visit of a shard after a start of its worker"),
    "memory": Suite("streaming.memory", "bytes per topic and pattern in two workers, what they share counted once"),
    "resync": Suite("streaming.worker:resync", "10,000 clients that repeat their sets"),
    "columnar": Suite("streaming.worker:columnar", "new topics judged one by one and by column, by topics per key"),
    "pattern-consumer": Suite(
        "streaming.pattern_consumer", 'new Kafka topics at PatternConsumer, and at subscribe("^...") in three ways'
    ),
    "matcher": Suite("matcher.compare", "the matcher against other libraries (Go adds nats-server)"),
    "peers": Suite(
        "streaming.run",
        "the same operator in Kafka Streams (needs a JDK), Quix Streams, Bytewax and PyFlink (BENCH=--help)",
        ("--only", "job", "no-op", "kafka-streams", "kafka-streams-eos", "quix-streams", "bytewax", "pyflink"),
    ),
    "rocketmq": Suite(
        "streaming.rocketmq", "messages of lite topics at consumers of patterns, and a burst (5 minutes)"
    ),
    "rocketmq-watcher": Suite(
        "streaming.rocketmq_watcher",
        "the watcher over 100,000 lite topics: starts, memory, CPU, births, ends (6 minutes)",
    ),
}


def main() -> None:
    """Run the suite that the arguments name, or list all suites."""
    if len(sys.argv) < 2:
        print("\n".join(f"{name:<16}  {suite.measures}" for name, suite in SUITES.items()))
        return
    name, *options = sys.argv[1:]
    if name not in SUITES:
        sys.exit(f"SUITE must be one of: {', '.join(SUITES)}; got {name!r}")
    sys.argv = [f"make bench SUITE={name}", *SUITES[name].options, *options]
    module, _, function = SUITES[name].place.partition(":")
    getattr(import_module(f"tests.bench.{module}"), function or "main")()


if __name__ == "__main__":
    main()
