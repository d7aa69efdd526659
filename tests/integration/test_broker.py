"""The brokers that the other tests, the demo and `reexpand local` rely on."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import kafka
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from streaming.cli import main
from streaming.errors import BrokerFailed, FolderInUse, TopicsUnusable
from streaming.kafka import reach
from streaming.kafka.specs import INPUT
from streaming.kafka.topics import TopicSpec, configurations, configure, create_topics
from streaming.local import broker as broker_module
from streaming.local import server
from streaming.local.broker import Broker
from streaming.local.server import HOST
from tests.support.brokers import SharedBroker, StartBroker
from tests.support.compose import is_healthy
from tests.support.processes import alive, eventually
from tests.support.running_job import PRODUCERS_TIME, TOPIC_SETTINGS, Streams


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def produce(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    options = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "log_level": 0}
    with closing(Consumer({"bootstrap.servers": bootstrap_servers, **options})) as consumer:
        consumer.subscribe([topic])
        messages = consumer.consume(count, timeout=60)
        return [message.value() or b"" for message in messages if message.error() is None]


def consume_with_kafka_python(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    options = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 60_000}
    with closing(kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, **options)) as consumer:
        return [message.value for _, message in zip(range(count), consumer, strict=False)]


def produce_with_kafka_python(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    with closing(kafka.KafkaProducer(bootstrap_servers=bootstrap_servers)) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush(60)


def answers(bootstrap_servers: str, timeout: float = 60) -> bool:
    try:
        AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}).list_topics(timeout=timeout)
    except KafkaException:
        return False
    return True


@pytest.mark.parametrize("write", [produce, produce_with_kafka_python])
@pytest.mark.parametrize("read", [consume, consume_with_kafka_python])
def test_what_one_client_writes_the_other_reads(
    broker: SharedBroker,
    topic: str,
    write: Callable[[str, str, list[bytes]], None],
    read: Callable[[str, str, int], list[bytes]],
) -> None:
    create_topics(broker.bootstrap_servers, [TopicSpec(topic)])
    values = [b"%d" % number for number in range(100)]
    write(broker.bootstrap_servers, topic, values)
    assert read(broker.bootstrap_servers, topic, len(values)) == values


def test_topics_are_created_once(broker: SharedBroker, topic: str) -> None:
    specs = [TopicSpec(topic, 3), TopicSpec(f"{topic}-updates", 2, {"cleanup.policy": "compact"})]
    assert create_topics(broker.bootstrap_servers, specs) == [spec.name for spec in specs]
    assert create_topics(broker.bootstrap_servers, specs) == []
    described = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=60).topics
    assert [len(described[spec.name].partitions) for spec in specs] == [3, 2]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_is_refused(broker: SharedBroker, topic: str, policy: str) -> None:
    """An existing updates topic whose records disappear with age is named, with the way to mend it."""
    create_topics(broker.bootstrap_servers, [TopicSpec(topic, config={"cleanup.policy": policy})])
    with pytest.raises(
        TopicsUnusable, match=f"'{topic}' exists with cleanup.policy={policy}, but needs compact.*reexpand topics --fix"
    ):
        create_topics(broker.bootstrap_servers, [TopicSpec(topic, config={"cleanup.policy": "compact"})])


def test_unsuitable_topics_are_shown_and_mended_on_request(broker: SharedBroker, tmp_path: Path) -> None:
    """What a producer that writes to a topic makes of it, and more; other options stay as they are."""
    streams = Streams(broker.bootstrap_servers, tmp_path)
    settings = streams.settings
    unsuitable = {"retention.ms": "1000000", "message.timestamp.type": "CreateTime", "segment.ms": "5000000"}
    create_topics(
        broker.bootstrap_servers,
        [
            TopicSpec(settings.topic_events, 1, unsuitable),
            TopicSpec(settings.clock, 1, {"cleanup.policy": "compact,delete", "retention.bytes": "5"}),
            TopicSpec(settings.updates, 1, {"cleanup.policy": "delete"}),
        ],
    )

    def topics(*options: str) -> Result:
        names = {f"REEXPAND_{role.upper()}": getattr(settings, role) for role in TOPIC_SETTINGS}
        command = ["topics", "--bootstrap-servers", broker.bootstrap_servers, *options]
        return CliRunner(env=names).invoke(main, command)

    refused = topics()
    assert refused.exit_code == 1
    assert "reexpand topics --fix" in refused.output
    shown = topics("--fix")
    assert shown.exit_code == 0, shown.output
    assert f"{settings.topic_events}: exists\n  retention.ms: 1000000, now -1\n" in shown.output
    found = configurations(broker.bootstrap_servers, [settings.topic_events, settings.clock, settings.updates])
    for topic in (settings.topic_events, settings.clock):
        assert {option: found[topic][option] for option in INPUT} == INPUT
    assert found[settings.topic_events]["segment.ms"] == "5000000"
    assert found[settings.updates]["cleanup.policy"] == "compact"
    assert {name: topic["flaws"] for name, topic in json.loads(topics("--json").output).items()} == {
        name: [] for name in (*(getattr(settings, role) for role in TOPIC_SETTINGS), settings.answers)
    }
    configure(broker.bootstrap_servers, {settings.group_events: PRODUCERS_TIME})
    again = topics()
    assert again.exit_code == 0, again.output
    assert "message.timestamp.type=CreateTime instead of LogAppendTime: leases" in again.output
    assert again.output.count("--fix") == 1


def test_a_topic_name_that_kafka_refuses_is_reported(broker: SharedBroker) -> None:
    with pytest.raises(TopicsUnusable, match="'no spaces' cannot be created"):
        create_topics(broker.bootstrap_servers, [TopicSpec("no spaces")])


def test_an_address_without_a_broker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "WAIT_SECONDS", 1.0)
    with pytest.raises(TopicsUnusable, match=r"no Kafka broker answers at 127\.0\.0\.1:1 within 1 s"):
        create_topics("127.0.0.1:1", [TopicSpec("any")])


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill], ids=["stopped", "killed"])
def test_a_restart_keeps_data_and_address(own_broker: StartBroker, topic: str, end: Callable[[Broker], None]) -> None:
    """What was acknowledged is there after an end of either kind, at the same address, and no process is left."""
    broker = own_broker()
    address, pid = broker.bootstrap_servers, broker.pid
    create_topics(address, [TopicSpec(topic)])
    produce(address, topic, [b"kept"])
    end(broker)
    assert not broker.running
    assert not alive(pid)
    assert not answers(address, timeout=0.5)

    again = own_broker(broker.folder)
    assert again.bootstrap_servers == address
    assert consume(address, topic, 1) == [b"kept"]


def test_a_port_that_someone_took_is_replaced(own_broker: StartBroker, topic: str) -> None:
    broker = own_broker()
    address = broker.bootstrap_servers
    create_topics(address, [TopicSpec(topic)])
    produce(address, topic, [b"kept"])
    broker.stop()
    with socket.create_server((HOST, int(address.split(":")[1]))):
        moved = broker.start().bootstrap_servers
        assert moved != address
        assert consume(moved, topic, 1) == [b"kept"]


def test_a_port_taken_at_the_last_moment_is_replaced(
    own_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((HOST, 0)) as drain:
        number = drain.getsockname()[1]
        choices = iter([number, 0])

        def free_port(besides: int = 0) -> int:
            return next(choices, 0) or original(besides)

        original = server.free_port
        monkeypatch.setattr(broker_module, "free_port", free_port)
        assert own_broker(tmp_path / "kafka").bootstrap_servers != f"{HOST}:{number}"


def test_a_second_broker_on_a_folder_is_refused(own_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the process that has the folder, and the first broker goes on."""
    monkeypatch.setattr("streaming.local.server._LOCK_SECONDS", 0.2)
    first = own_broker()
    with pytest.raises(FolderInUse, match=rf"process {os.getpid()} uses {first.folder}"):
        own_broker(first.folder)
    assert answers(first.bootstrap_servers)


def test_nothing_outlives_an_owner_that_is_killed(own_broker: StartBroker, tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    script = (
        "import sys, time; from streaming.local.broker import Broker; "
        "broker = Broker(sys.argv[1]).start(); print(broker.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert alive(pid)
        owner.send_signal(signal.SIGKILL)
    assert eventually(lambda: not alive(pid))
    own_broker(folder)


def test_a_broker_that_crashed_is_started_again(own_broker: StartBroker) -> None:
    broker = own_broker()
    address = broker.bootstrap_servers
    assert not broker.wait(0.1)
    os.kill(broker.pid, signal.SIGKILL)
    assert broker.wait(60)
    assert not broker.running
    assert broker.start().bootstrap_servers == address
    assert answers(address)


def test_a_paused_broker_answers_again(own_broker: StartBroker) -> None:
    broker = own_broker()
    port = "/" + broker.bootstrap_servers.rpartition(":")[2]
    assert is_healthy("kafka", "/9092", port)
    broker.pause()
    assert eventually(lambda: not answers(broker.bootstrap_servers, timeout=2))  # another process sends the signal
    assert not is_healthy("kafka", "/9092", port)
    assert broker.running
    broker.resume()
    assert answers(broker.bootstrap_servers)
    broker.pause()
    broker.stop()
    assert not alive(broker.pid)


def test_a_broker_that_cannot_start_shows_its_log(own_broker: StartBroker) -> None:
    """The error holds what the broker said last, and leaves neither a process nor a locked folder."""
    broker = own_broker()
    broker.stop()
    with pytest.raises(BrokerFailed, match=r"(?s)ended while starting.*broker\.log.*compression\.type"):
        own_broker(broker.folder, settings={"compression.type": "none-such"})
    broker.start()
