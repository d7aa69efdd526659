"""The operator in Bytewax; runs until SIGTERM, with the job's own settings from the environment.

It needs a Python with `requirements-bytewax.txt`. One process per address in `REEXPAND_ADDRESSES` forms the cluster.
"""

import signal
from collections.abc import Iterator
from multiprocessing import Process, Semaphore
from multiprocessing.connection import wait
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from streaming.records.model import Source
from tests.bench.peers.decisions import Entry, Event, Operator, placed, say_ready, setting

READY_SECONDS = 60
INPUTS = ("TOPIC_EVENTS", "GROUP_EVENTS", "SUBSCRIPTION_EVENTS")
Placed = tuple[str, tuple[str, int, int, int, int], bytes]
"""A parent, the fields of the value's source, and the value as JSON."""
Snapshot = tuple[frozenset[str], bytes]
"""The topics of a parent, and its subscriptions as JSON."""

opened = Semaphore(0)
"""Number of input partitions that are open, in all processes."""


class Inputs(KafkaSource):  # type: ignore[misc]  # checked without Bytewax
    """A Kafka source that counts its open partitions."""

    def build_part(self, *arguments: object) -> object:
        partition = super().build_part(*arguments)
        opened.release()
        return partition


class Parent(StatefulBatchLogic):  # type: ignore[misc]  # checked without Bytewax
    """State of one parent, in memory. At the end of an epoch, Bytewax writes it to SQLite if the parent had events."""

    def __init__(self, operator: Operator, snapshot: Snapshot | None) -> None:
        topics, self._subscriptions = snapshot or ((), b"null")
        self._topics = set(topics)
        self._operator = operator
        self._changes = 0

    def on_batch(self, values: list[Placed]) -> tuple[list[KafkaSinkMessage], bool]:
        """Return the updates of a batch; keep the state."""
        updates = [
            KafkaSinkMessage(*record)
            for parent, source, text in values
            for record in self._operator(Event(orjson.loads(text), parent, Source(*source), self))
        ]
        return updates, StatefulBatchLogic.RETAIN

    def snapshot(self) -> Snapshot:
        return frozenset(self._topics), self._subscriptions

    def add(self, topic: str) -> bool:
        before = len(self._topics)
        self._topics.add(topic)
        return len(self._topics) > before

    def remove(self, topic: str) -> bool:
        before = len(self._topics)
        self._topics.discard(topic)
        return len(self._topics) < before

    def topics(self) -> Iterator[str]:
        return iter(self._topics)

    def subscriptions(self) -> Entry | None:
        kept: Entry | None = orjson.loads(self._subscriptions)
        return kept

    def subscribe(self, subscriptions: Entry) -> None:
        self._subscriptions = orjson.dumps(subscriptions)
        self._changes += 1

    def changes(self) -> int:
        """How often the subscriptions have changed since this process started."""
        return self._changes


def place(message: KafkaSourceMessage) -> Iterator[tuple[str, Placed]]:
    """A topic event, or the entries of a group event or a request, each under its parent."""
    topic, partition, offset, timestamp = message.topic, message.partition, message.offset, message.timestamp[1]
    if topic == setting("TOPIC_EVENTS"):
        parent = message.key.decode()
        yield parent, (parent, (topic, partition, offset, 0, timestamp), message.value)
        return
    for parent, number, entry in placed(orjson.loads(message.value)):
        yield parent, (parent, (topic, partition, offset, number, timestamp), orjson.dumps(entry))


def inputs() -> Inputs:
    return Inputs([setting("BOOTSTRAP_SERVERS")], [setting(name) for name in INPUTS])


def work(number: int, addresses: list[str]) -> None:
    operator = Operator()
    flow = Dataflow("reexpand")
    values = op.flat_map("place", op.input("events", flow, inputs()), place)
    updates = op.stateful_batch("decide", values, lambda snapshot: Parent(operator, snapshot))
    op.output("updates", op.key_rm("values", updates), KafkaSink([setting("BOOTSTRAP_SERVERS")], setting("UPDATES")))
    recovery = RecoveryConfig(setting("CHECKPOINT"))
    cli_main(flow, process_id=number, addresses=addresses, recovery_config=recovery)


def main() -> None:
    """Start the processes, and end them with this one."""
    addresses, folder = setting("ADDRESSES").split(), Path(setting("CHECKPOINT"))
    if not folder.exists():
        folder.mkdir(parents=True)
        init_db_dir(folder, len(addresses))
    processes = [Process(target=work, args=[number, addresses]) for number in range(len(addresses))]
    for process in processes:
        process.start()

    def end(*_: object) -> None:
        for process in processes:
            process.kill()  # it handles no SIGTERM

    signal.signal(signal.SIGTERM, end)
    for _ in inputs().list_parts():
        if not opened.acquire(timeout=READY_SECONDS):
            end()
            raise SystemExit(f"not all partitions are open within {READY_SECONDS} s")
    say_ready()
    wait([process.sentinel for process in processes])
    end()  # one that fails is not to be hidden by the other
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
