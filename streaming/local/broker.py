"""A real Kafka broker of one node, as a child process with the lifetime of its parent."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streaming.errors import BrokerFailed
from streaming.local import jars
from streaming.local.java import find_java
from streaming.local.node import HOST, Node, format_storage, load_node, move_node, write_configuration
from streaming.local.server import POLL_SECONDS, Server

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = Path(__file__).parent

_ATTEMPTS = 3
"""Number of attempts to start while other processes take the chosen ports."""


class Broker(Server):
    """A Kafka broker (KRaft); its data and its address survive restarts.

    | Usage | What happens |
    |---|---|
    | `with Broker() as broker:` | data in `.reexpand/kafka`, stopped at the end |
    | `Broker(folder).start()` ... `.stop()` | the same by hand |
    | `Broker(folder, settings={"log.cleaner.backoff.ms": "500"})` | any broker setting |
    | `.kill()`, `.pause()`, `.resume()`, `.start()` | for tests of clients during faults of the broker |

    It listens on the loopback interface only.

    Args:
        folder: data folder, created when it does not exist; one broker at a time works in it.
        settings: broker settings that win over the usual ones.
        heap: maximum size of Java's heap, as `-Xmx` takes it.
        timeout: seconds within which the broker must accept requests.
    """

    def __init__(
        self,
        folder: Path | str = Path(".reexpand/kafka"),
        *,
        settings: Mapping[str, str] | None = None,
        heap: str = "512m",
        timeout: float = 90,
    ) -> None:
        super().__init__(folder, "broker.log", timeout)
        self._settings = dict(settings or {})
        self._heap = heap
        self._node: Node | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Address of the broker, as clients take it."""
        if self._node is None:
            raise BrokerFailed(f"The broker of {self.folder} was not started.")
        return self._node.address

    def _begin(self, lock: IO[str]) -> None:
        """Start the process and wait until it answers; choose other ports when another process has taken these."""
        java = find_java()
        command = [str(java.executable), *self._java_options(), "-cp", os.pathsep.join(map(str, jars.kafka()))]
        node = load_node(self.folder)
        format_storage(self.folder, node, command, lock)
        for attempt in range(_ATTEMPTS):
            self._node = node
            configuration = write_configuration(self.folder, node, self._settings)
            self._spawn(java, [*command, "kafka.Kafka", configuration.name], lock)
            if self._answers(node):
                return
            if "java.net.BindException" not in self._log() or attempt == _ATTEMPTS - 1:
                break
            self._release()
            node = move_node(self.folder, node)
        raise self._failed()

    def _java_options(self) -> list[str]:
        return [
            f"-Xmx{self._heap}",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
        ]

    def _answers(self, node: Node) -> bool:
        """Wait until this broker, and no other one on the same port, answers; return False when it does not."""
        deadline = time.monotonic() + self._timeout
        while self.running and time.monotonic() < deadline:
            with suppress(OSError, KafkaException), socket.create_connection((HOST, node.port), timeout=1):
                # Created only now: librdkafka prints errors about a port on which nobody listens.
                client = AdminClient({"bootstrap.servers": node.address}, logger=_SILENT)
                if str(client.list_topics(timeout=5).cluster_id) == node.cluster_id:  # its type says None
                    return True
            time.sleep(POLL_SECONDS)
        return False


_SILENT = logging.getLogger(f"{__name__}.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
