"""What a broker's folder holds: its identity, its ports, its configuration, its formatted storage."""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import socket
import uuid
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING

from streaming.errors import BrokerFailed
from streaming.local.cache import write_whole
from streaming.local.process import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"

# Below the ports that kernels hand out to outgoing connections: a client that retries while its broker is away could
# otherwise be given the broker's own port, connect to itself, and keep the port from the broker for ever.
_PORTS = range(20_000, 32_768)

# A path here is relative to the folder, which is the broker's working directory: the folder can be moved, and its
# name needs no escaping.
_SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",  # a misspelt topic is an error, not a new topic
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",  # nobody else is going to join
    # A broker that was killed is let in again when its last session has ended; with the default that takes 9 s.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "33554432",  # the default, 128 MB, is a quarter of the heap
}


@dataclass(frozen=True)
class Node:
    """The identity of a broker, kept in its folder."""

    cluster_id: str
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        """Where clients reach the broker."""
        return f"{HOST}:{self.port}"


def new_cluster_id() -> str:
    """A random cluster id as Kafka writes them; none begins with a dash, which its tools take for an option."""
    first, *others = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *others])).decode("ascii").rstrip("=")


def load_node(folder: Path) -> Node:
    """The node of this folder; a new one where there is none, and new ports where someone else has taken them."""
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
    """Give a node new ports, and remember them."""
    port = free_port()
    moved = Node(node.cluster_id, port, free_port(besides=port))
    write_whole(folder / "node.json", json.dumps(asdict(moved)).encode())
    return moved


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        # As Java does: connections of a broker that has just ended do not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(besides: int = 0) -> int:
    """A random port that is free now; who uses it must expect that someone else was faster."""
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        if port != besides and is_free(port):
            return port
    raise BrokerFailed(f"No port of {_PORTS.start} to {_PORTS.stop - 1} is free on {HOST}.")


def write_configuration(folder: Path, node: Node, settings: Mapping[str, str], data: str = "data") -> Path:
    """Write the broker's configuration file, in which `settings` win over the usual ones."""
    listeners = f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}"
    merged = {
        **_SETTINGS,
        **settings,
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "controller.quorum.voters": f"1@{HOST}:{node.controller_port}",
        "log.dirs": data,
    }
    path = folder / "server.properties"
    write_whole(path, "".join(f"{key}={value}\n" for key, value in merged.items()).encode())
    return path


def format_storage(folder: Path, node: Node, java: Sequence[str], lock: IO[str]) -> None:
    """Format the storage of a new folder, whose `lock` is held; `java` is the command up to the main class."""
    if (folder / "data").exists():
        return
    # Formatted aside and renamed: an interrupted attempt leaves nothing that looks like storage.
    shutil.rmtree(folder / "unformatted", ignore_errors=True)
    configuration = write_configuration(folder, node, {}, data="unformatted")
    said: list[str] = []
    command = [*java, "kafka.tools.StorageTool", "format", "-t", node.cluster_id, "-c", configuration.name]
    if run(command, lock, said.append, folder):
        raise BrokerFailed(f"Kafka's storage cannot be formatted in {folder}:\n{''.join(said)}")
    (folder / "unformatted").rename(folder / "data")
