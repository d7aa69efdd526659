"""The client and the example dispatcher, on the real job and a real Kafka."""

import doctest
import json
import re
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from starlette.testclient import TestClient

import streaming.client
from streaming.client import UPDATES, Change, NotReady, SubscriptionClient, UpdatesUnreadable
from streaming.console.app import ConsoleSources, console
from streaming.console.explaining import explain_by_updates
from streaming.console.letters import LetterTail
from streaming.console.live import LiveRelation
from streaming.kafka.specs import COMPACTION
from streaming.kafka.topics import TopicSpec, create_topics
from streaming.oracle import Effective
from tests.support.brokers import SharedBroker, StartBroker
from tests.support.histories import expected, history
from tests.support.processes import child, eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Streams, running
from tests.support.scene import Scene
from tests.support.topics import add_partitions, delete, remove_records
from tests.support.update_records import Record, add, gone, key, remove, value

PAGE = Path(streaming.client.__file__).with_name("README.md")


class Updates:
    """An updates topic that the test writes."""

    def __init__(
        self, address: str, partitions: int = 1, name: str | None = None, config: dict[str, str] | None = None
    ) -> None:
        self.address = address
        self.streams = Streams(address, Path())
        self.name = name or f"u-{uuid.uuid4().hex[:12]}"
        create_topics(address, [TopicSpec(self.name, partitions, {**COMPACTION, **(config or {})})])
        self._producer = Producer({"bootstrap.servers": address, "log_level": 0})

    def write(self, *records: Record, **options: Any) -> None:
        for record_key, record_value in records:
            self._producer.produce(self.name, key=record_key, value=record_value, **options)
        assert self._producer.flush(60) == 0

    def client(self, **options: Any) -> SubscriptionClient:
        return SubscriptionClient(self.address, self.name, **options)


class Delivery(NamedTuple):
    """What the dispatcher wrote."""

    client: str
    value: bytes
    headers: dict[str, bytes]


class Dispatching:
    """The example dispatcher as a process, and what it delivers."""

    def __init__(self, streams: Streams, parent: str, log: Path) -> None:
        self._streams, self._parent, self._log = streams, parent, log
        self._producer = Producer({"bootstrap.servers": streams.bootstrap_servers})
        create_topics(streams.bootstrap_servers, [TopicSpec(parent, 2), TopicSpec(f"{parent}-delivered", 2)])

    def send(self, lite_topic: str, *values: bytes) -> None:
        for each in values:
            self._producer.produce(self._parent, each, lite_topic, headers=[("trace", b"1")])
        assert self._producer.flush(60) == 0

    def delivered(self) -> list[Delivery]:
        return [
            Delivery((message.key() or b"").decode(), message.value() or b"", dict(message.headers() or []))  # type: ignore[arg-type]
            for message in self._streams.read(f"{self._parent}-delivered")
        ]

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "streaming.examples.dispatcher", "--parent", self._parent]
        command += ["--bootstrap-servers", self._streams.bootstrap_servers, "--updates", self._streams.settings.updates]
        command += ["--group-id", self._parent, "--option", "session.timeout.ms=30000"]
        with self._log.open("wb") as log, child(command, stdout=log, stderr=log) as process:
            eventually(lambda: b"ready: " in self._log.read_bytes() or process.poll() is not None, SETTLE_SECONDS)
            assert process.poll() is None, self._log.read_text()
            yield process


@pytest.mark.main
def test_the_dispatcher_delivers_to_whom_the_job_says(streams: Streams, tmp_path: Path) -> None:
    """Patterns, names, shares and subscriptions that count by themselves; a topic born later; a restart in between."""
    parent = f"{streams.prefix}-orders"
    dispatching = Dispatching(streams, parent, tmp_path / "dispatcher.log")
    scene = Scene(streams)
    for group, subscriber, entries in [
        ("billing", "b1", ["eu__*"]),
        ("billing", "b2", ["eu__**", "us__created"]),
        ("audit", "a1", []),
        ("warehouse", "w1", ["eu__shipped"]),
    ]:
        if group != "warehouse":
            scene.group(group, parent)
        scene.asks(subscriber, group, parent, *entries)
    scene.born(parent, "eu__created", "us__created", "asia__created")
    scene.sent()
    by_hand = Updates(streams.bootstrap_servers, name=streams.settings.updates)

    with running(streams, tmp_path / "job.log"), by_hand.client() as client:
        for member, part in [
            *(("m1", "share:s/#"), ("m2", "share:s/#")),
            *(("m3", "wamp:prefix:asia"), ("m3", "wamp:exact:asia__created")),
        ]:
            by_hand.write(add("asia__created", client=member, group="devices", parent=parent, part=part))
        assert eventually(lambda: len(client.relation) == 10, SETTLE_SECONDS)
        assert client.topics(parent, "billing", "b2") == {"eu__created", "us__created"}
        with dispatching.running() as process:
            dispatching.send("eu__created", *[b"e%d" % number for number in range(6)])
            dispatching.send("us__created", b"u")
            dispatching.send("asia__created", b"x1", b"x2")
            dispatching.send("nobody", b"lost")
            eventually(lambda: len(dispatching.delivered()) >= 22, SETTLE_SECONDS)
            delivered = dispatching.delivered()
            process.terminate()
            assert process.wait(60) == 0
        found = Counter((each.client, each.value[:1]) for each in delivered)
        assert {name: found.pop((name, b"e")) for name in ("b1", "b2", "a1")} == {"b1": 3, "b2": 3, "a1": 6}
        assert {name: found.pop((name, b"u")) for name in ("b2", "a1")} == {"b2": 1, "a1": 1}
        assert {name: found.pop((name, b"x")) for name in ("a1", "m1", "m2", "m3")} == {
            "a1": 2,
            "m1": 1,
            "m2": 1,
            "m3": 4,
        }
        assert not found
        (to_b2,) = [each for each in delivered if (each.client, each.value) == ("b2", b"u")]
        names = {"group": b"billing", "client": b"b2", "liteTopic": b"us__created", "patterns": b'["us__created"]'}
        assert to_b2.headers == {"trace": b"1", **names}

        dispatching.send("us__created", b"while it was away")
        with dispatching.running():
            scene.born(parent, "eu__shipped")
            scene.sent()
            assert eventually(lambda: client.topics(parent, "warehouse", "w1") == {"eu__shipped"}, SETTLE_SECONDS)

            def arrives() -> bool:
                """Sent again until the dispatcher, too, knows of the topic."""
                dispatching.send("eu__shipped", b"born later")
                found = [each for each in dispatching.delivered() if each.value == b"born later"]
                return {"w1", "a1"} < {each.client for each in found}

            assert eventually(arrives, SETTLE_SECONDS, POLL_SECONDS)
        since = [each for each in dispatching.delivered() if each not in delivered]
        away = [each.client for each in since if each.value == b"while it was away"]
        assert sorted(away) == ["a1", "b2"]
        assert {each.value for each in since} == {b"while it was away", b"born later"}


def test_two_libraries_fold_to_the_relation_of_the_oracle(streams: Streams, tmp_path: Path) -> None:
    """The client, a plain loop over what kafka-python reads, and the console: same rows, same reasons."""
    records = history(Random(7), 600)
    feed = streams.producer()
    for record in records:
        feed.send(record.stream, record.value, "one key for all")  # the history's order
    feed.flush()
    wanted = expected([records]).relation()
    with running(streams, tmp_path / "job.log"):
        streams.becomes(wanted)

    other: dict[tuple[str, ...], dict[str, Any]] = {}
    options = {"bootstrap_servers": streams.bootstrap_servers, "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(streams.settings.updates, consumer_timeout_ms=5_000, **options)) as consumer:
        for message in consumer:
            update = json.loads(message.value) if message.value is not None else {"op": "REMOVE"}
            other.pop(tuple(json.loads(message.key)), None)
            if update["op"] == "ADD":
                other[tuple(json.loads(message.key))] = update
    changes: list[Change] = []
    with SubscriptionClient(streams.bootstrap_servers, streams.settings.updates, on_change=changes.append) as client:
        client.wait_ready(60)
    rows = {(row.parent, row.group, row.client_id, row.lite_topic): row for row in client.relation.rows()}
    assert {Effective(*names) for names in rows} == {Effective(*names) for names in other} == wanted
    for names, row in rows.items():
        update = other[names]
        assert (row.patterns, row.cause) == (tuple(update["patterns"]), update["cause"])
        assert (row.version, row.event_id, row.lmq_name) == (update["version"], update["eventId"], update["lmqName"])
    assert len(changes) == len(streams.updates()), "each update is one change"
    assert client.malformed == 0
    assert console_rows(streams) == {names: list(row.patterns) for names, row in rows.items()}


def console_rows(streams: Streams) -> dict[tuple[str, ...], list[str]]:
    """Read the rows as the page of the console does, topic by topic; and look at its dead letters."""
    settings = streams.settings
    servers, written = settings.bootstrap_servers, len({str(letter["source"]) for letter in streams.dead_letters()})
    with LiveRelation(servers, settings.updates) as live, LetterTail(servers, settings.dead_letters, {}) as letters:
        live.wait_ready(60)
        page = TestClient(
            console(ConsoleSources(live, partial(explain_by_updates, live), letters.page)), base_url="http://localhost"
        )
        assert eventually(lambda: page.get("/api/letters").json()["total"] == written)
        found: dict[tuple[str, ...], list[str]] = {}
        for parent in live.rows.parents():
            for each in page.get("/api/topics", params={"parent": parent, "size": 500}).json()["topics"]:
                topic = each["topic"]
                for row in page.get("/api/receivers", params={"parent": parent, "topic": topic}).json()["rows"]:
                    found[parent, row["group"], row["client"], topic] = row["patterns"]
                    asked = {"parent": parent, "group": row["group"], "client": row["client"], "topic": topic}
                    assert page.get("/api/explain", params=asked).json()["receives"]
        return found


def test_the_page_of_the_client_holds(broker: SharedBroker) -> None:
    """Its sessions give what is printed there."""
    updates = Updates(broker.bootstrap_servers, name=UPDATES)
    updates.write(add("eu__created", client="c1", group="billing", parent="orders", changes={"patterns": ["eu__*"]}))
    sessions = re.sub(r"^```.*$", "", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    variables = {"bootstrap_servers": broker.bootstrap_servers}
    results = doctest.DocTestRunner().run(
        doctest.DocTestParser().get_doctest(sessions, variables, PAGE.name, str(PAGE), 0)
    )
    assert results.attempted == sessions.count(">>>")
    assert results.failed == 0


def test_what_a_transaction_did_not_commit_is_not_there(broker: SharedBroker) -> None:
    """And its marks, which are no records, do not keep the client from being ready. No option changes that."""
    updates = Updates(broker.bootstrap_servers)
    writer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": updates.name})
    writer.init_transactions(30)
    for topic, end in (("kept", writer.commit_transaction), ("dropped", writer.abort_transaction)):
        writer.begin_transaction()
        writer.produce(updates.name, key=key(topic), value=value())
        writer.flush(60)
        end(30)
    with updates.client(options={"isolation.level": "read_uncommitted"}) as client:
        client.wait_ready(60)
        assert client.topics("p", "g", "c") == {"kept"}


def test_partitions_that_are_added_are_read(broker: SharedBroker) -> None:
    updates = Updates(broker.bootstrap_servers)
    updates.write(add("before"))
    with updates.client(refresh_seconds=0.5) as client:
        client.wait_ready(60)
        add_partitions(updates.streams, updates.name, 3)
        fresh = Updates(broker.bootstrap_servers, name=updates.name)
        for partition in range(3):
            fresh.write(add(f"in {partition}"), partition=partition)
        wanted = {"before", "in 0", "in 1", "in 2"}
        assert eventually(lambda: client.topics("p", "g", "c") == wanted, 60)


def test_a_topic_that_is_deleted_is_said(broker: SharedBroker) -> None:
    """Rather than to answer for ever from what it said last."""
    updates = Updates(broker.bootstrap_servers)
    updates.write(add())
    with updates.client(options={"topic.metadata.propagation.max.ms": 1_000}) as client:
        client.wait_ready(60)
        delete(updates.streams, updates.name)
        assert eventually(lambda: client.error is not None, 60)
        with pytest.raises(UpdatesUnreadable, match=updates.name):
            client.wait_ready(0)
        assert client.topics("p", "g", "c") == {"t"}


def test_records_that_are_gone_before_they_are_read_are_said(broker: SharedBroker) -> None:
    """A removal may have been among them."""
    updates = Updates(broker.bootstrap_servers, config={"cleanup.policy": "compact,delete"})
    updates.write(add("first"))
    held = {"queued.min.messages": 1, "fetch.message.max.bytes": 1_000, "fetch.wait.max.ms": 10}
    waits = deleted = False

    def wait(change: Change) -> None:
        nonlocal waits
        if change.row.lite_topic == "first":
            waits = True
            assert eventually(lambda: deleted, 60)

    with updates.client(options=held, on_change=wait) as client:
        assert eventually(lambda: waits, 60)  # else it might begin behind what is gone, and miss nothing
        for start in range(0, 5_000, 100):  # in many fetches, of which the client has at most the next in its memory
            updates.write(*(add(f"t{number}") for number in range(start, start + 100)))
        remove_records(updates.streams, updates.name, 4_900)
        deleted = True
        assert eventually(lambda: client.error is not None, 60)
        assert isinstance(client.error, UpdatesUnreadable)


def test_a_broker_that_comes_back_is_read_on(own_broker: StartBroker) -> None:
    """One that is away at the start, and one that crashes later."""
    broker = own_broker()
    address = broker.bootstrap_servers
    updates = Updates(address, partitions=3)
    updates.write(add("t1"), add("t2"))
    broker.stop()
    with updates.client() as client:
        with pytest.raises(NotReady):
            client.wait_ready(1)
        broker.start()
        client.wait_ready(60)
        assert client.topics("p", "g", "c") == {"t1", "t2"}
        broker.kill()
        time.sleep(1)
        assert client.topics("p", "g", "c") == {"t1", "t2"}
        assert own_broker(broker.folder).bootstrap_servers == address
        updates.write(remove("t1"), gone("t1"), add("t3"))
        assert eventually(lambda: client.topics("p", "g", "c") == {"t2", "t3"}, 60)
        assert client.error is None


def test_a_topic_that_kafka_has_compacted_gives_the_same_relation(own_broker: StartBroker) -> None:
    """The cleaner of a real broker, at work while one client follows and before another one starts."""
    broker = own_broker(settings={"log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "100"})
    eager = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
    updates = Updates(broker.bootstrap_servers, config=eager)
    random, written = Random(3), 1
    with updates.client() as client:
        client.wait_ready(60)
        for _ in range(12):
            for _ in range(100):
                topic = f"t{random.randrange(40)}"
                records = [add(topic)] if random.random() < 0.6 else [remove(topic), gone(topic)]
                written += len(records)
                updates.write(*records)
            time.sleep(0.3)
        updates.write(add("last"))
        assert eventually(lambda: "last" in client.topics("p", "g", "c"))
        with updates.client() as later:
            later.wait_ready(60)
        assert set(later.relation.rows()) == set(client.relation.rows())
    assert eventually(lambda: len(updates.streams.read(updates.name)) < written / 2), "it was not compacted"
