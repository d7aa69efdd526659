"""A real Kafka broker for the tests of this folder: in a container where an engine answers, embedded elsewhere.

`REEXPAND_TEST_BROKER=embedded` or `=container` forces one; `REEXPAND_KAFKA_IMAGE` names the container's image, which
takes the KAFKA_* variables that Apache's and Confluent's images document.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streaming.local import classes, jars
from streaming.local.broker import Broker
from streaming.local.java import short_lived
from streaming.local.server import free_port
from tests.support.brokers import SharedBroker
from tests.support.engine import obstacle
from tests.support.guarded_streams import GuardedStreams
from tests.support.running_job import Streams
from tests.support.secured import SecuredBroker, secured
from tests.support.spark_session import local_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.brokers import StartBroker

_HERE = Path(__file__).parent
_IMAGE = os.environ.get("REEXPAND_KAFKA_IMAGE", "apache/kafka:4.3.1")
_KAFKA_PORT = 9092
_START_SECONDS = 300


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.xdist_group("broker"))  # of `make test`: one process has the broker


def pytest_report_collectionfinish(items: list[pytest.Item]) -> str | None:
    """Say which broker is used. The header proper is printed before pytest knows this file."""
    if any("broker" in getattr(item, "fixturenames", ()) for item in items):
        kind, reason = _choice()
        return f"broker: {kind} ({reason})"
    return None


@pytest.fixture(scope="session", autouse=True)
def _short_lived() -> Iterator[None]:
    """Jobs here live for seconds: the second tier of Java's compiler costs a quarter of the time, and never pays."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in short_lived(os.environ).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBroker]:
    """A broker for topics of one's own; it must not be stopped or killed."""
    kind, _ = _choice()
    if kind == "container":
        with _container() as address:
            yield SharedBroker(address, kind)
    else:
        with Broker(tmp_path_factory.mktemp("kafka")) as embedded:
            yield SharedBroker(embedded.bootstrap_servers, kind)


@pytest.fixture
def streams(broker: SharedBroker, tmp_path: Path) -> Streams:
    """Six topics of the test's own on the shared broker."""
    return Streams(broker.bootstrap_servers, tmp_path / "checkpoint").create()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts embedded brokers that the test may kill, in `tmp_path/kafka` unless told otherwise."""
    started: list[Broker] = []

    def start(folder: Path = tmp_path / "kafka", **options: Any) -> Broker:
        started.append(Broker(folder, **options))
        return started[-1].start()

    yield start
    for each in started:
        each.kill()


@pytest.fixture(scope="module")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that requires TLS, credentials and permissions."""
    with secured(tmp_path_factory.mktemp("secured")) as started:
        yield started


@pytest.fixture
def guarded(secured_broker: SecuredBroker, tmp_path: Path) -> GuardedStreams:
    """Six topics of the test's own on that broker, and its users."""
    found = GuardedStreams(secured_broker, tmp_path)
    found.streams.create(1)
    return found


@cache
def _choice() -> tuple[str, str]:
    forced = os.environ.get("REEXPAND_TEST_BROKER", "")
    if forced in {"embedded", "container"}:
        return forced, f"REEXPAND_TEST_BROKER={forced}"
    if forced:
        raise pytest.UsageError(f"REEXPAND_TEST_BROKER is {forced!r}; it can be 'embedded' or 'container'.")
    found = obstacle([_IMAGE])
    return ("container", _IMAGE) if found is None else ("embedded", found)


@contextmanager
def _container() -> Iterator[str]:
    """The address of a broker in a container.

    The container class that testcontainers has for Kafka runs scripts that only Confluent's image has, and takes the
    version 4.3.1 for one of Confluent's and thus for too old. Hence its general one, with documented variables.
    """
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 -- as slow as docker

    port = free_port()
    container = DockerContainer(_IMAGE)
    address = f"{container.get_docker_client().host()}:{port}"
    variables = {
        "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{_KAFKA_PORT},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{address}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "4",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS": "4",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    for name, value in variables.items():
        container.with_env(name, value)
    with container.with_bind_ports(_KAFKA_PORT, port):
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                client.list_topics(timeout=2)
                break
            except KafkaException as error:
                if time.monotonic() > deadline:
                    out, err = container.get_logs()
                    pytest.fail(f"{_IMAGE} does not answer at {address}: {error}\n{(out + err).decode()[-3000:]}")
        yield address


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark as the job has it."""
    with local_spark(
        Streams("b:1", Path("/c")).settings, tmp_path_factory.mktemp("warehouse"), [*jars.spark(), classes.sink()]
    ) as built:
        yield built
