"""New Kafka topics at consumers of a pattern: `PatternConsumer`, and `subscribe("^...")` in three ways, in one run.

make bench SUITE=pattern-consumer BENCH="--births 20 --topics 1000"
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.bench.command import arguments, broker_and_folder, quantiles, show
from tests.bench.streaming.cpu import cpu_seconds
from tests.support.processes import eventually
from tests.support.running_job import Streams, running
from tests.support.watched_kafka import Topics, Watcher

FAMILY = "bench"
PATTERN, REGEX = f"{FAMILY}.>", rf"^{FAMILY}\..*"
FAST = {"metadata.max.age.ms": 500, "topic.metadata.refresh.interval.ms": 500}
WAYS: dict[str, dict[str, Any] | None] = {
    "PatternConsumer": None,
    "subscribe, defaults": {},
    "subscribe, metadata.max.age.ms=500": FAST,
    "subscribe, regex of the broker": {"group.protocol": "consumer"},
}
"""Options of `subscribe("^...")` by the name of the way; None for `PatternConsumer`."""

ALL_SECONDS = 120


def main() -> None:
    parser = arguments(
        __doc__,
        births=(15, "topics whose first records are waited for, in each part"),
        pause=(1.0, "seconds between two of them"),
        patience=(20.0, "seconds for slow ways after the last birth, and of idleness"),
        topics=(1_000, "topics that are there in the second part"),
    )
    parser.add_argument(
        "--way", nargs=3, metavar=("NUMBER", "KAFKA", "NAMES"), help="(internal) be one of the consumers"
    )
    options = parser.parse_args()
    if options.way:
        consume(list(WAYS.values())[int(options.way[0])], options.way[1], json.loads(options.way[2]))
        return
    with broker_and_folder() as (broker, folder):
        streams = Streams(broker.bootstrap_servers, folder / "checkpoint").create()
        names = {name: getattr(streams.settings, name) for name in ("updates", "subscription_events", "group_events")}
        topics = Topics(broker.bootstrap_servers)
        topics.create(f"{FAMILY}.first")
        topics.write(f"{FAMILY}.first", stamp())
        watcher = Watcher(broker.bootstrap_servers, streams.settings.topic_events, folder, "--include", PATTERN)
        with running(streams, folder / "job.log", "--client-timeout-ms", "30000") as job, watcher:
            consumers = [Way(number, broker.bootstrap_servers, names, folder) for number in range(len(WAYS))]
            for consumer in consumers:
                assert consumer.has(f"{FAMILY}.first"), consumer.log.read_text()
            figures: dict[str, dict[str, Any]] = {consumer.name: {} for consumer in consumers}
            births(topics, consumers, figures, options, "warm-up")  # of the job, whose first micro-batches are slow
            births(topics, consumers, figures, options, "few")
            many(topics, consumers, figures, options.topics)
            births(topics, consumers, figures, options, "many")
            others = {"broker": broker.pid, "job": job.process.pid, "watcher": watcher.process.pid}
            idle(consumers, figures, others, options.patience)
            for consumer in consumers:
                figures[consumer.name]["assignments"] = consumer.assignments()
                consumer.close()
    show(figures, f"first records of new topics, among few and {options.topics:,} others", as_json=options.json)


def births(topics: Topics, consumers: list["Way"], figures: dict[str, dict[str, Any]], options: Any, part: str) -> None:
    """Create topics one by one, each with a record, and note how long that took to reach each consumer."""
    random, names = Random(1), [f"{FAMILY}.{part}-{number}" for number in range(options.births)]
    for name in names:
        time.sleep(options.pause * (0.5 + random.random()))
        topics.create(name)
        topics.write(name, stamp())
    if part != "warm-up":
        time.sleep(options.patience)
    for consumer in consumers:
        seconds = consumer.seconds()
        found = [seconds[name] for name in names if name in seconds]
        if part != "warm-up":
            each = {f"{name}, {part}": figure for name, figure in (quantiles(found, "s") if found else {}).items()}
            figures[consumer.name] |= {**each, f"seen, {part}": f"{len(found)}/{len(names)}"}


def many(topics: Topics, consumers: list["Way"], figures: dict[str, dict[str, Any]], count: int) -> None:
    """Create many topics at once, and note how long it took until the first records of all were there."""
    names = [f"{FAMILY}.many-{number:05}-old" for number in range(count)]
    began = time.time()
    for start in range(0, count, 100):
        topics.create(*names[start : start + 100])
    for name in names:
        topics.producer.produce(name, stamp())
    topics.producer.flush(60)
    written = time.time()
    fast = [consumer for consumer in consumers if WAYS[consumer.name] != {}]
    eventually(lambda: all(consumer.count(names) == count for consumer in fast), ALL_SECONDS, 0.5)
    for consumer in consumers:
        arrived = [at for name, at in consumer.arrivals().items() if name in set(names)]
        figures[consumer.name][f"all {count:,} s"] = max(arrived) - began if len(arrived) == count else None
    figures["broker"] = {f"all {count:,} s": written - began}


def idle(consumers: list["Way"], figures: dict[str, dict[str, Any]], others: dict[str, int], seconds: float) -> None:
    """Measure the cores in use while nothing happens, with all consumers running."""
    pids = {**{consumer.name: consumer.process.pid for consumer in consumers}, **others}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    for name, pid in pids.items():
        figures.setdefault(name, {})["cores idle"] = (cpu_seconds(pid) - before[name]) / seconds


def stamp() -> bytes:
    return str(time.time()).encode()


class Way:
    """One of the consumers, as a process of its own."""

    def __init__(self, number: int, kafka: str, names: dict[str, str], folder: Path) -> None:
        self.name = list(WAYS)[number]
        self.log = folder / f"way-{number}.log"
        self._out = folder / f"way-{number}.jsonl"
        command = [sys.executable, "-m", "tests.bench.streaming.pattern_consumer"]
        command += ["--way", str(number), kafka, json.dumps(names)]
        with self._out.open("wb") as out, self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log)

    def lines(self) -> list[list[Any]]:
        """What it has printed: topic, time of the record, and time of its arrival; or its assignments."""
        return [json.loads(line) for line in self._out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def arrivals(self) -> dict[str, float]:
        """When the first record of each topic arrived."""
        return {topic: arrived for topic, _, arrived in self.lines() if topic}

    def seconds(self) -> dict[str, float]:
        """How long the first record of each topic took."""
        return {topic: arrived - written for topic, written, arrived in self.lines() if topic}

    def has(self, topic: str) -> bool:
        return eventually(lambda: topic in self.arrivals(), ALL_SECONDS, 0.2)

    def count(self, names: list[str]) -> int:
        return len(self.arrivals().keys() & set(names))

    def assignments(self) -> int:
        return sum(1 for topic, _, _ in self.lines() if not topic)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def consume(options: dict[str, Any] | None, kafka: str, names: dict[str, str]) -> None:
    """Be one of the consumers: print the first record of each topic, and each assignment, until killed."""
    from confluent_kafka import Consumer  # noqa: PLC0415 - each way imports what it uses

    from streaming.client.pattern_consumer import PatternConsumer  # noqa: PLC0415

    consumer: Any
    if options is None:
        consumer = PatternConsumer(kafka, [PATTERN], group="pattern", topics=names, lease_seconds=30)
    else:
        own = {"bootstrap.servers": kafka, "group.id": f"way-{os.getpid()}", "auto.offset.reset": "earliest"}
        consumer = Consumer({**own, **options})
        consumer.subscribe([REGEX], on_assign=lambda *_: print(json.dumps(["", 0, 0]), flush=True))  # noqa: T201
    seen = set()
    while True:
        message = consumer.poll(1)
        if message is not None and not message.error() and message.topic() not in seen:
            seen.add(message.topic())
            print(json.dumps([message.topic(), float(message.value()), time.time()]), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
