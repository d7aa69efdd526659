"""The operator in Quix Streams; runs until SIGTERM, with the job's own settings from the environment.

It needs a Python with `requirements.txt`. An application of Quix Streams is one thread of Python, so there are as many
processes in one consumer group as `REEXPAND_PROCESSES` says.
"""

import signal
import time
from collections.abc import Iterator
from multiprocessing import Process
from multiprocessing.connection import wait
from pathlib import Path

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient
from quixstreams import Application, State, message_context
from quixstreams.models import Serializer

from streaming.records.model import Source
from streaming.records.record import KafkaRecord
from tests.bench.peers.decisions import Entry, Event, Operator, placed, say_ready, setting

JOIN_SECONDS = 60
POLL_SECONDS = 0.01
"""Streams that are joined are read in batches that wait so long to fill; with the default, 1 s, each event does."""
STREAMS = ("GROUP_EVENTS", "SUBSCRIPTION_EVENTS")


class ValueOfRecord(Serializer):  # type: ignore[misc]  # checked without Quix Streams
    """Writes the value of an update that is ready to be written."""

    def __call__(self, value: KafkaRecord, ctx: object) -> bytes | None:  # noqa: ARG002 - as it is called
        """The bytes; None is a tombstone."""
        return value.value


class NumberedState:
    """The state of one parent, which has no scan, so its topics are numbered.

    | key | value |
    |---|---|
    | `head` | how often the subscriptions have changed, and how many topics have been numbered |
    | `subscriptions` | the subscriptions |
    | `t` and a topic | its number |
    | `n` and a number | its topic |
    """

    def __init__(self, state: State) -> None:
        self._state = state
        # Another process may have worked on the parent since the last event.
        head: tuple[int, int] = state.get("head", (0, 0))
        self._changes, self._numbered = head

    def add(self, topic: str) -> bool:
        if self._state.get("t" + topic) is not None:
            return False
        self._state.set("t" + topic, self._numbered)
        self._state.set(f"n{self._numbered}", topic)
        self._numbered += 1
        self._state.set("head", (self._changes, self._numbered))
        return True

    def remove(self, topic: str) -> bool:
        number = self._state.get("t" + topic)
        if number is None:
            return False
        self._state.delete("t" + topic)
        self._state.delete(f"n{number}")
        return True

    def topics(self) -> Iterator[str]:
        for number in range(self._numbered):
            topic = self._state.get(f"n{number}")
            if topic is not None:
                yield topic

    def subscriptions(self) -> Entry | None:
        kept: Entry | None = self._state.get("subscriptions")
        return kept

    def subscribe(self, subscriptions: Entry) -> None:
        self._state.set("subscriptions", subscriptions)
        self._changes += 1
        self._state.set("head", (self._changes, self._numbered))

    def changes(self) -> int:
        return self._changes


class NumberedOperator:
    """The operator as a frame calls it."""

    def __init__(self) -> None:
        self._operator = Operator()

    def __call__(self, value: Entry, parent: str, timestamp: int, _headers: object, state: State) -> list[KafkaRecord]:
        """The updates that an event causes."""
        source = source_of(0, timestamp) if "event" in value else Source(*value["source"])
        return list(self._operator(Event(value, parent, source, NumberedState(state))))


def source_of(entry: int, timestamp: int) -> Source:
    """Where an entry of the present record comes from."""
    place = message_context()
    return Source(place.topic, place.partition, place.offset, entry, timestamp)


def entries(value: Entry, _key: str, timestamp: int, _headers: object) -> list[Entry]:
    """The entries of a group event or a request, each with its parent and where it comes from."""
    return [
        {**entry, "parent": parent, "source": tuple(source_of(number, timestamp))}
        for parent, number, entry in placed(value)
    ]


def work(number: int) -> None:
    app = Application(
        setting("BOOTSTRAP_SERVERS"),
        consumer_group=Path(setting("CHECKPOINT")).name,
        state_dir=Path(setting("CHECKPOINT")) / str(number),
        auto_offset_reset="earliest",
        producer_extra_config={"linger.ms": 5},
        consumer_poll_timeout=POLL_SECONDS,
        loglevel="WARNING",
    )
    frame = app.dataframe(app.topic(setting("TOPIC_EVENTS"), key_deserializer="str"))
    for name in STREAMS:
        events = app.dataframe(app.topic(setting(name), key_deserializer="str"))
        each = events.apply(entries, expand=True, metadata=True)
        frame = frame.concat(each.group_by("parent", key_serializer="str", key_deserializer="str"))
    updates = app.topic(setting("UPDATES"), key_serializer="bytes", value_serializer=ValueOfRecord())
    changes = frame.apply(NumberedOperator(), stateful=True, metadata=True, expand=True)
    changes.to_topic(updates, key=lambda record: record.key)
    app.run()


def wait_for_members(count: int) -> None:
    """Wait until so many processes share the partitions: earlier, records would be read twice."""
    admin = AdminClient({"bootstrap.servers": setting("BOOTSTRAP_SERVERS")})
    group = Path(setting("CHECKPOINT")).name
    deadline = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < deadline:
        found = admin.describe_consumer_groups([group])[group].result()
        shared = [member for member in found.members if member.assignment.topic_partitions]
        if found.state == ConsumerGroupState.STABLE and len(shared) == count:
            return
        time.sleep(0.2)
    raise SystemExit(f"{count} processes do not share the partitions within {JOIN_SECONDS} s")


def main() -> None:
    """Start the processes, and end them with this one."""
    processes = [Process(target=work, args=[number]) for number in range(int(setting("PROCESSES")))]
    for process in processes:
        process.start()

    def end(*_: object) -> None:
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, end)
    wait_for_members(len(processes))
    say_ready()
    wait([process.sentinel for process in processes])
    end()  # one that fails is not to be hidden by the other
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
