"""A local Kafka broker of one node, as a child process, in a folder with its identity, ports and data."""

from __future__ import annotations

import base64
import json
import logging
import os
import shutil
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streaming.errors import BrokerFailed
from streaming.local import jars
from streaming.local.java import find_java
from streaming.local.process import run, write_whole
from streaming.local.server import HOST, Server, free_port, is_free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger("reexpand")

_SILENT = logging.getLogger(f"{__name__}.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

_ATTEMPTS = 3
"""Number of attempts to start if other processes take the chosen ports."""

_SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",  # a misspelt topic is an error
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",  # no other consumers will join
    # A killed broker can register again when its last session has expired: after 9 s by default.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "33554432",  # the default, 128 MB, is a quarter of the heap
}
"""Default settings of the broker.

Paths are relative to the folder, which is the broker's working directory. The folder can be moved, and its name needs
no escaping.
"""


@dataclass(frozen=True)
class Node:
    """Identity and ports of a broker, stored in its folder."""

    cluster_id: str
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        """Address of the broker, for clients."""
        return f"{HOST}:{self.port}"


class Broker(Server):
    """A Kafka broker (KRaft). Data and address survive restarts.

    | Usage | Effect |
    |---|---|
    | `with Broker() as broker:` | data in `.reexpand/kafka`, stopped at the end |
    | `Broker(folder).start()` ... `.stop()` | the same without a `with` block |
    | `Broker(folder, settings={"log.cleaner.backoff.ms": "500"})` | any broker setting |
    | `.kill()`, `.pause()`, `.resume()`, `.start()` | for tests of clients during faults of the broker |

    It listens on the loopback interface only.

    Args:
        folder: data folder, created if needed. It is locked while the broker runs.
        settings: broker settings that override the defaults.
        timeout: seconds within which the broker must accept requests.
    """

    def __init__(
        self,
        folder: Path | str = Path(".reexpand/kafka"),
        *,
        settings: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> None:
        super().__init__(folder, "broker.log", timeout)
        self._settings = dict(settings or {})
        self._node: Node | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Address of the broker, for clients."""
        if self._node is None:
            raise BrokerFailed(f"The broker in {self.folder} is not started.")
        return self._node.address

    def _begin(self, lock: IO[str]) -> None:
        """Start the process and wait until it answers. Choose other ports if another process has taken these."""
        java = find_java()
        command = [
            *(str(java.executable), "-Xmx512m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true"),
            f"-Dlog4j2.configurationFile={Path(__file__).parent / 'log4j2.properties'}",
            *("-cp", os.pathsep.join(map(str, jars.kafka()))),
        ]
        node = load_node(self.folder)
        format_storage(self.folder, node, command, lock)
        for attempt in range(_ATTEMPTS):
            self._node = node
            configuration = write_configuration(self.folder, node, self._settings)
            if self._spawned(java, [*command, "kafka.Kafka", configuration.name], lock, partial(_answers, node)):
                return
            if "java.net.BindException" not in self._log() or attempt == _ATTEMPTS - 1:
                break
            node = move_node(self.folder, node)
        raise self._failed()


def _answers(node: Node) -> bool:
    """Return True if this broker answers. Another broker on its port is ignored."""
    with suppress(OSError, KafkaException), socket.create_connection((HOST, node.port), timeout=1):
        # Created after the connection succeeds, because librdkafka prints errors for a closed port.
        client = AdminClient({"bootstrap.servers": node.address}, logger=_SILENT)
        return str(client.list_topics(timeout=5).cluster_id) == node.cluster_id  # declared as None
    return False


def new_cluster_id() -> str:
    """Return a random cluster id without a leading dash, which Kafka's tools would parse as an option."""
    first, *others = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *others])).decode("ascii").rstrip("=")


def load_node(folder: Path) -> Node:
    """Load the node of a folder, or create it. Replace ports that other processes use."""
    path = folder / "node.json"
    try:
        node = Node(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return move_node(folder, Node(new_cluster_id(), 0, 0))
    except (ValueError, TypeError) as error:
        raise BrokerFailed(
            f"{path} cannot be read ({error}). Remove {folder} to start with an empty broker."
        ) from error
    return node if is_free(node.port) and is_free(node.controller_port) else move_node(folder, node)


def move_node(folder: Path, node: Node) -> Node:
    """Choose new ports for a node, and store them in its folder."""
    port = free_port()
    moved = Node(node.cluster_id, port, free_port(besides=port))
    if node.port:
        log.warning("a port of the broker is in use: its address changes from %s to %s", node.address, moved.address)
    write_whole(folder / "node.json", json.dumps(asdict(moved)).encode())
    return moved


def write_configuration(folder: Path, node: Node, settings: Mapping[str, str], data: str = "data") -> Path:
    """Write the broker's configuration file. `settings` override the defaults, and may add listeners."""
    own = {
        "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{node.address}",
    }
    merged = {
        **_SETTINGS,
        **settings,
        **{name: ",".join(filter(None, (value, settings.get(name)))) for name, value in own.items()},
        "controller.quorum.voters": f"1@{HOST}:{node.controller_port}",
        "log.dirs": data,
    }
    path = folder / "server.properties"
    write_whole(path, "".join(f"{key}={value}\n" for key, value in merged.items()).encode())
    return path


def format_storage(folder: Path, node: Node, java: Sequence[str], lock: IO[str]) -> None:
    """Format the storage of a new, locked folder with a Java command line.

    Raises:
        BrokerFailed: Kafka's tool fails. The error contains its output.
    """
    if (folder / "data").exists():
        return
    # Formatted in another folder and renamed, so an interrupted attempt leaves no partial storage.
    shutil.rmtree(folder / "unformatted", ignore_errors=True)
    configuration = write_configuration(folder, node, {}, data="unformatted")
    output: list[str] = []
    command = [*java, "kafka.tools.StorageTool", "format", "-t", node.cluster_id, "-c", configuration.name]
    if run(command, lock, output.append, folder):
        raise BrokerFailed(f"Kafka's storage cannot be formatted in {folder}:\n{''.join(output)}")
    (folder / "unformatted").rename(folder / "data")
