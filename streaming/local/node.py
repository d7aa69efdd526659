"""Folder of a broker: identity, ports, configuration, formatted storage."""

from __future__ import annotations

import base64
import json
import logging
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

log = logging.getLogger("reexpand")

HOST = "127.0.0.1"
"""Address of the loopback interface, the only one on which the broker listens."""

_PORTS = range(20_000, 32_768)
"""Ports for brokers, below those that kernels give to outgoing connections.

A client that retries while its broker is away could otherwise be given the broker's own port, connect to itself, and
keep the port from the broker for ever.
"""

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
    "group.initial.rebalance.delay.ms": "0",  # no further consumers are going to join
    # A killed broker is let in again when its last session has ended; with the default that takes 9 s.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "33554432",  # the default, 128 MB, is a quarter of the heap
}
"""Usual settings of the broker.

Paths are relative to the folder, which is the broker's working directory: the folder can be moved, and its name needs
no escaping.
"""


@dataclass(frozen=True)
class Node:
    """Identity and ports of a broker, kept in its folder."""

    cluster_id: str
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        """Address of the broker, as clients take it."""
        return f"{HOST}:{self.port}"


def new_cluster_id() -> str:
    """Return a random cluster id without a leading dash: Kafka's tools would take it for an option."""
    first, *others = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *others])).decode("ascii").rstrip("=")


def load_node(folder: Path) -> Node:
    """Return the node of this folder, a new one for a new folder; replace ports in use by others."""
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
    """Give a node new ports, and store them in its folder."""
    port = free_port()
    moved = Node(node.cluster_id, port, free_port(besides=port))
    if node.port:
        log.warning("a port of the broker is taken: its address changes from %s to %s", node.address, moved.address)
    write_whole(folder / "node.json", json.dumps(asdict(moved)).encode())
    return moved


def is_free(port: int) -> bool:
    """Return True if a server could listen on this port now."""
    with socket.socket() as probe:
        # As Java does: the connections of a broker that has just ended do not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(besides: int = 0) -> int:
    """Return a random free port; another process may take it before the caller does."""
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        if port != besides and is_free(port):
            return port
    raise BrokerFailed(f"No port of {_PORTS.start} to {_PORTS.stop - 1} is free on {HOST}.")


def write_configuration(folder: Path, node: Node, settings: Mapping[str, str], data: str = "data") -> Path:
    """Write the broker's configuration file; `settings` win over the usual ones, and may add listeners."""
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
    """Format the storage of a new folder.

    Args:
        folder: the folder.
        node: its identity.
        java: command line of Java up to the main class.
        lock: lock file of the folder, held by the caller.

    Raises:
        BrokerFailed: Kafka's tool fails; the message has its output.
    """
    if (folder / "data").exists():
        return
    # Formatted in another folder and renamed: an interrupted attempt leaves nothing that looks like storage.
    shutil.rmtree(folder / "unformatted", ignore_errors=True)
    configuration = write_configuration(folder, node, {}, data="unformatted")
    output: list[str] = []
    command = [*java, "kafka.tools.StorageTool", "format", "-t", node.cluster_id, "-c", configuration.name]
    if run(command, lock, output.append, folder):
        raise BrokerFailed(f"Kafka's storage cannot be formatted in {folder}:\n{''.join(output)}")
    (folder / "unformatted").rename(folder / "data")
