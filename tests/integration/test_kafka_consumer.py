"""`PatternConsumer` on a real broker: with updates that the test writes, and with the real job."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Message

from streaming.client.pattern_consumer import PatternConsumer
from streaming.config import Settings, load
from streaming.errors import ConsumerClosed, NotCommitted, UpdatesUnreadable
from streaming.records.model import Action
from tests.support.brokers import StartBroker
from tests.support.processes import eventually
from tests.support.running_job import Streams, running
from tests.support.terminals import blocks
from tests.support.topics import committed
from tests.support.update_records import Record, add, gone, remove
from tests.support.watched_kafka import Topics, Watcher

PAGE = Path(__file__).parents[2] / "docs/kafka-consumer.md"
PARENT = "kafka"
SECONDS = 60


class Played:
    """A group whose rows the test writes, in place of the job."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.group = f"{streams.prefix}-group"
        self.topics = Topics(streams.bootstrap_servers)

    def consumer(self, client: str, updates: str = "", **arguments: Any) -> PatternConsumer:
        settings = self.streams.settings
        names = {name: getattr(settings, name) for name in ("updates", "subscription_events", "group_events")}
        names["updates"] = updates or names["updates"]
        given = {
            "group": self.group,
            "client_id": client,
            "topics": names,
            "lease_seconds": 60,
            "handover_seconds": 60,
            **arguments,
        }
        return PatternConsumer(self.streams.bootstrap_servers, [f"{self.streams.prefix}.>"], **given)

    def topic(self, name: str, *values: bytes, partitions: int = 1) -> str:
        full = f"{self.streams.prefix}.{name}"
        self.topics.create(full, partitions=partitions)
        self.topics.write(full, *values)
        return full

    def says(self, *changes: tuple[str, str, str]) -> None:
        """Write updates: op, client and topic."""
        written: list[Record] = []
        for op, client, topic in changes:
            names: dict[str, Any] = {"client": client, "group": self.group, "parent": PARENT}
            if op == "REMOVE":
                written += [remove(topic, **names), gone(topic, **names)]
            else:
                written.append(add(topic, changes={"cause": op}, **names))
        producer = self.topics.producer
        for key, value in written:
            producer.produce(self.streams.settings.updates, key=key, value=value, partition=0)
        assert producer.flush(60) == 0

    def committed(self, topic: str, partition: int = 0) -> int:
        return committed(self.streams, self.group, topic)[partition]


@pytest.fixture
def played(streams: Streams) -> Played:
    return Played(streams)


def receives(*consumers: PatternConsumer, count: int, seconds: float = SECONDS) -> list[list[bytes]]:
    """The values of so many records, and of what comes until nothing comes any more, by consumer."""
    found: list[list[bytes]] = [[] for _ in consumers]
    deadline, quiet_at = time.monotonic() + seconds, time.monotonic() + 0.3
    while time.monotonic() < (deadline if sum(map(len, found)) < count else quiet_at):
        for consumer, values in zip(consumers, found, strict=True):
            message: Message | None = consumer.poll(0.02)
            if message is not None:
                values.append(message.value() or b"")
                quiet_at = time.monotonic() + 0.3
    return found


def all_poll(*consumers: PatternConsumer, until: Any, seconds: float = SECONDS) -> bool:
    """Whether something comes to hold while the consumers poll, and receive nothing."""

    def look() -> bool:
        assert [consumer.poll(0.02) for consumer in consumers] == [None] * len(consumers)
        return bool(until())

    return eventually(look, seconds)


@pytest.mark.main
def test_topics_are_read_from_their_first_record_and_offsets_are_those_of_the_group(played: Played) -> None:
    """A topic that was there, one that is born later, one that goes; and the next consumer resumes."""
    old = played.topic("old", b"o1", b"o2")
    played.topic("foreign", b"never")
    with played.consumer("a") as consumer:
        played.says(("SUBSCRIBED", "a", old), ("SUBSCRIBED", "b-of-nobody", f"{old}-elsewhere"))
        assert receives(consumer, count=2) == [[b"o1", b"o2"]]
        new = played.topic("new", b"n1")
        played.says(("TOPIC_CREATED", "a", new))
        assert receives(consumer, count=1) == [[b"n1"]]
        assert consumer.topics == {old, new}
        assert eventually(lambda: consumer.poll(0.1) is None and played.committed(new) == 1)
        played.says(("REMOVE", "a", old))
        assert all_poll(consumer, until=lambda: consumer.topics == {new})
        played.topics.write(old, b"o3")
        played.topics.write(new, b"n2")
        assert receives(consumer, count=1) == [[b"n2"]]
    assert (played.committed(old), played.committed(new)) == (2, 2)
    with pytest.raises(ConsumerClosed, match="the group"):
        consumer.poll(0)
    sent = [
        json.loads(message.value() or b"")
        for message in played.streams.read(played.streams.settings.subscription_events)
    ]
    assert (sent[0]["action"], sent[-1]["action"]) == (Action.COMPLETE_ADD, Action.COMPLETE_REMOVE)
    (declared,) = played.streams.read(played.streams.settings.group_events)
    assert json.loads(declared.value() or b"")["attributes"]["lite.bind.topic"] == PARENT

    played.topics.write(new, b"n3")
    with played.consumer("a", declare=False) as again:
        assert receives(again, count=1) == [[b"n3"]]


def test_the_past_of_the_updates_counts_for_nothing(played: Played) -> None:
    """A client that starts anew reads that it once had the topic, and takes no part in it."""
    topic = played.topic("t", b"1")
    others = [("SUBSCRIBED", "other", f"t{number}") for number in range(30_000)]
    played.says(("SUBSCRIBED", "a", topic), *others, ("REMOVE", "a", topic))
    with played.consumer("a") as consumer:
        assert receives(consumer, count=1, seconds=1.5) == [[]]
    assert played.committed(topic) < 0


@pytest.mark.rule("handover")
def test_what_changes_hands_between_living_clients_is_neither_lost_nor_repeated(played: Played) -> None:
    """Of an exclusive group: the holder gives up its offsets first, and the next one waits for that."""
    topics = [played.topic(f"t{number}", b"1", partitions=2) for number in range(5)]
    with played.consumer("a") as first, played.consumer("b") as second:
        played.says(*(("SUBSCRIBED", "a", topic) for topic in topics))
        assert receives(first, second, count=5) == [[b"1"] * 5, []]
        played.says(*((op, who, topic) for topic in topics for op, who in (("REMOVE", "a"), ("SUBSCRIBED", "b"))))
        assert all_poll(first, second, until=lambda: not first.topics and second.topics == set(topics))
        for topic in topics:
            played.topics.write(topic, b"2")
        assert receives(first, second, count=5) == [[], [b"2"] * 5]


@pytest.mark.rule("partition-owner")
def test_clients_of_a_shared_group_divide_the_partitions(played: Played) -> None:
    topics = [played.topic(f"t{number}", partitions=4) for number in range(5)]
    parts = {(topic, number) for topic in topics for number in range(4)}
    with ExitStack() as stack:
        consumers = [stack.enter_context(played.consumer(client)) for client in "abc"]
        played.says(*(("SUBSCRIBED", client, topic) for client in "ab" for topic in topics))
        a, b, c = consumers
        assert all_poll(a, b, c, until=lambda: a.assignment | b.assignment == parts and not a.assignment & b.assignment)
        assert a.assignment
        assert b.assignment
        for topic, number in parts:
            played.topics.write(topic, b"1", partition=number)
        assert sum(map(len, receives(a, b, c, count=20))) == 20
        former = a.assignment, b.assignment
        played.says(*(("SUBSCRIBED", "c", topic) for topic in topics))
        assert all_poll(a, b, c, until=lambda: len(a.assignment | b.assignment | c.assignment) == 20 and c.assignment)
        assert a.assignment <= former[0]
        assert b.assignment <= former[1]
        assert len(a.assignment) + len(b.assignment) + len(c.assignment) == 20


@pytest.mark.long
def test_only_what_was_committed_counts_where_commits_are_by_hand(played: Played) -> None:
    topic = played.topic("t", b"1", b"2", b"3")
    played.says(("SUBSCRIBED", "a", topic))
    with played.consumer("a", auto_commit_seconds=None) as consumer:
        message = consumer.poll(SECONDS)
        assert message is not None
        consumer.commit()
        assert receives(consumer, count=2) == [[b"2", b"3"]]
    assert played.committed(topic) == 1
    with played.consumer("a", auto_commit_seconds=None) as again:
        assert receives(again, count=2) == [[b"2", b"3"]]


@pytest.mark.rule("deleted-kafka-topic")
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_topic_that_is_deleted_before_its_last_record_is_committed_ends_nothing(
    played: Played,
    by_hand: bool,  # noqa: FBT001 - a case
) -> None:
    """Kafka takes no offset of a topic that is gone; other topics are read on."""
    kept, gone_soon = played.topic("kept"), played.topic("gone", b"g1")
    with played.consumer("a", auto_commit_seconds=None if by_hand else 600) as consumer:
        played.says(("SUBSCRIBED", "a", gone_soon), ("SUBSCRIBED", "a", kept))
        assert receives(consumer, count=1) == [[b"g1"]]
        assert eventually(lambda: consumer.poll(0.1) is None and consumer.topics == {kept, gone_soon})
        played.topics.delete(gone_soon)
        if by_hand:
            consumer.commit()
        played.says(("REMOVE", "a", gone_soon))
        assert all_poll(consumer, until=lambda: consumer.topics == {kept})
        played.topics.write(kept, b"k1")
        assert receives(consumer, count=1) == [[b"k1"]]
        consumer.commit()
    assert played.committed(kept) == 1


def test_a_record_whose_handling_fails_is_not_committed(played: Played) -> None:
    topic = played.topic("t", b"1", b"2")
    played.says(("SUBSCRIBED", "a", topic))
    with pytest.raises(ZeroDivisionError), played.consumer("a") as consumer:  # noqa: PT012 - the block is the case
        for message in consumer:
            1 // (message.offset() == 0)
    assert played.committed(topic) == 1


@pytest.mark.rule("consumer-lease")
@pytest.mark.long
def test_who_was_away_for_longer_than_its_lease_begins_anew(played: Played) -> None:
    """What it had not committed comes again; what others read by then is theirs."""
    kept, moved = played.topic("kept", b"k1"), played.topic("moved", b"m1")
    played.says(("SUBSCRIBED", "a", kept), ("SUBSCRIBED", "a", moved))
    with played.consumer("a", lease_seconds=1, max_poll_seconds=0.3, handover_seconds=0.3) as consumer:
        assert sorted(receives(consumer, count=2)[0]) == [b"k1", b"m1"]
        played.says(("REMOVE", "a", moved))
        time.sleep(2)
        played.topics.write(moved, b"m2")
        played.topics.write(kept, b"k2")
        assert consumer.poll(0.05) is None
        assert consumer.topics == set()
        found = receives(consumer, count=1)[0]
        assert found[-1] == b"k2"
        assert consumer.topics == {kept}


@pytest.mark.rule("newer-topic")
@pytest.mark.long
def test_latest_passes_over_what_was_there_and_nothing_else(played: Played) -> None:
    old = played.topic("old", b"o1")
    with played.consumer("a", options={"auto.offset.reset": "latest"}) as consumer:
        played.says(("SUBSCRIBED", "a", old))
        assert all_poll(consumer, until=lambda: consumer.topics == {old})
        new = played.topic("new", b"n1")
        played.says(("TOPIC_CREATED", "a", new))
        played.topics.write(old, b"o2")
        assert sorted(receives(consumer, count=2)[0]) == [b"n1", b"o2"]


def test_a_group_whose_members_subscribe_takes_no_offsets(played: Played) -> None:
    topic = played.topic("t", b"1")
    member = Consumer({"bootstrap.servers": played.streams.bootstrap_servers, "group.id": played.group, "log_level": 0})
    try:
        member.subscribe([topic])
        assert eventually(lambda: member.poll(0.1) is None and bool(member.assignment()), SECONDS)
        played.says(("SUBSCRIBED", "a", topic))
        consumer = played.consumer("a")
        with pytest.raises(NotCommitted, match="Give this consumer a group_id of its own"):
            eventually(lambda: bool(consumer.poll(0.1) and False), SECONDS)
        with pytest.raises(NotCommitted):
            consumer.close()
    finally:
        member.close()


@pytest.mark.long
def test_an_updates_topic_that_is_not_there_is_said(played: Played) -> None:
    with pytest.raises(UpdatesUnreadable, match="none-"), played.consumer("a", updates="none-such") as consumer:
        eventually(lambda: bool(consumer.poll(0.1) and False), SECONDS)


class UsualStreams(Streams):
    """The six topics under their usual names, on a broker of the test's own."""

    @cached_property
    def settings(self) -> Settings:
        return load({"bootstrap_servers": self.bootstrap_servers, "checkpoint": str(self.checkpoint)})


class Printing:
    """A program that prints what it receives, as a process."""

    def __init__(self, code: str, kafka: str, log: Path) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code], stdout=out, stderr=out, env={**os.environ, "KAFKA": kafka}
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text()

    def says(self, *lines: str) -> bool:
        """Whether it comes to have printed these."""
        eventually(lambda: set(lines) <= set(self.said().splitlines()) or self.process.poll() is not None, SECONDS)
        return set(lines) <= set(self.said().splitlines())


EXCLUSIVE = """
import os
from streaming.client.pattern_consumer import PatternConsumer
with PatternConsumer(os.environ["KAFKA"], ["orders.>"], group="audit", exclusive=True, client_id="b", lease_seconds=4,
                     auto_commit_seconds=0.1) as consumer:
    for message in consumer:
        print(message.value().decode(), flush=True)
"""


@pytest.mark.long
def test_with_the_real_job_new_topics_come_in_a_second_and_those_of_a_dead_client_after_its_lease(
    own_broker: StartBroker, tmp_path: Path
) -> None:
    """The program of the page, and an exclusive group of which a client is killed."""
    streams = UsualStreams(own_broker().bootstrap_servers, tmp_path / "checkpoint").create()
    topics = Topics(streams.bootstrap_servers)
    kafka = streams.bootstrap_servers
    text = PAGE.read_text(encoding="utf-8")
    (code,) = blocks(text, "python")
    *_, writing = blocks(text)
    options = ("--client-timeout-ms", "4000", "--tick-interval-ms", "500")
    with (
        running(streams, tmp_path / "job.log", *options),
        Watcher(kafka, streams.settings.topic_events, tmp_path),
        Printing(code, kafka, tmp_path / "page.log") as page,
    ):
        topics.create("orders.eu.shipped")
        topics.write("orders.eu.shipped", b"not for it")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(["bash", "-c", writing], env={**os.environ, "KAFKA": kafka, "PATH": path}, check=True)
        assert page.says("orders.eu.created hello"), page.said()
        topics.create("orders.us.created", partitions=2)
        topics.write("orders.us.created", b"2", partition=1)
        assert page.says("orders.us.created 2"), page.said()
        page.process.send_signal(signal.SIGINT)
        page.process.wait(SECONDS)
        assert "not for it" not in page.said()

        everything = {"orders.eu.created", "orders.eu.shipped", "orders.us.created"}
        arguments: dict[str, Any] = {"group": "audit", "exclusive": True, "client_id": "a", "lease_seconds": 4}
        with PatternConsumer(kafka, ["orders.>"], **arguments) as survivor:
            assert sorted(receives(survivor, count=3)[0]) == [b"2", b"hello", b"not for it"]
            assert survivor.topics == everything
            with Printing(EXCLUSIVE, kafka, tmp_path / "b.log") as other:
                assert all_poll(survivor, until=lambda: not survivor.topics), other.said()
                topics.write("orders.eu.created", b"3", b"4")
                assert all_poll(survivor, until=lambda: "4" in other.said().splitlines()), other.said()
                assert all_poll(survivor, until=lambda: committed(streams, "audit", "orders.eu.created")[0] == 3)
                other.process.kill()
                killed_at = time.monotonic()
                topics.write("orders.eu.created", b"5")
                assert receives(survivor, count=1) == [[b"5"]]
                print(f"from SIGKILL to the next holder: {time.monotonic() - killed_at:.1f} s")  # noqa: T201
                assert other.said().split() == ["3", "4"]
            assert survivor.topics == everything
        assert eventually(lambda: streams.relation() == set(), SECONDS)
        assert streams.dead_letters() == []
