"""A real Kafka broker of one node, as a child process with the lifetime of its parent."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streaming.errors import BrokerFailed, FolderInUse
from streaming.local import jars
from streaming.local.guardian import guarded
from streaming.local.java import Java, environment, find_java
from streaming.local.node import HOST, Node, format_storage, load_node, move_node, write_configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = Path(__file__).parent
_LOG_LINES_SHOWN = 15
"""Number of lines of the broker's log in an error message."""

_ATTEMPTS = 3
"""Number of attempts to start while other processes take the chosen ports."""

_POLL_SECONDS = 0.05
_LOCK_SECONDS = 5.0
"""Seconds to wait for the lock of the folder."""


class Broker:
    """A Kafka broker (KRaft); its data and its address survive restarts.

    | Usage | What happens |
    |---|---|
    | `with Broker() as broker:` | data in `.reexpand/kafka`, stopped at the end |
    | `Broker(folder).start()` ... `.stop()` | the same by hand |
    | `Broker(folder, settings={"log.cleaner.backoff.ms": "500"})` | any broker setting |
    | `.kill()`, `.pause()`, `.resume()`, `.start()` | for tests of clients during faults of the broker |

    It listens on the loopback interface only, and dies with this process, even when this process is killed.
    Not for use from several threads at once.

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
        self.folder = Path(folder).absolute()
        self.log_file = self.folder / "broker.log"
        self._settings = dict(settings or {})
        self._heap = heap
        self._timeout = timeout
        self._node: Node | None = None
        self._lock: IO[str] | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Address of the broker, as clients take it."""
        if self._node is None:
            raise BrokerFailed(f"The broker of {self.folder} was not started.")
        return self._node.address

    @property
    def running(self) -> bool:
        """True while the process of the broker lives, paused or not."""
        return self._guardian is not None and self._guardian.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the broker or, when it is not running, of its last process."""
        return self._pid

    def start(self) -> Self:
        """Start the broker and wait until it answers.

        Raises:
            FolderInUse: another broker works in this folder.
            BrokerFailed: the broker does not start; the message has the end of its log.
        """
        if self.running:
            return self
        self.kill()  # release what a broker that ended by itself has left
        classpath = os.pathsep.join(map(str, jars.kafka()))
        java = find_java()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock = self._lock_folder()
            command = [str(java.executable), *self._java_options(), "-cp", classpath]
            node = load_node(self.folder)
            format_storage(self.folder, node, command, lock)
            self._launch(java, command, node, lock)
        except OSError as error:
            self.kill()
            raise BrokerFailed(f"The broker cannot work in {self.folder}: {error}.") from error
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout: float = 30) -> None:
        """Stop the broker in an orderly way; kill it if it still runs after `timeout` seconds."""
        if self._guardian is not None:
            self._send(signal.SIGTERM)
            self._send(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._guardian.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kill the broker, as a crash would."""
        if self._guardian is not None:
            self._send(signal.SIGKILL)
            self._guardian.communicate()
            self._guardian = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def pause(self) -> None:
        """Freeze the broker: connections stay open, requests get no answer."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the broker go on after `pause`."""
        self._send(signal.SIGCONT)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the broker ends by itself; return False when it still runs after `timeout` seconds."""
        if self._guardian is not None:
            try:
                self._guardian.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
        return True

    def _lock_folder(self) -> IO[str]:
        """Lock the folder; wait `_LOCK_SECONDS` for it, since the broker of a killed parent takes a moment to end."""
        lock = (self.folder / "lock").open("a+", encoding="utf-8")
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
                    continue
                lock.seek(0)
                holder = lock.read().strip()
                lock.close()
                raise FolderInUse(
                    f"A broker started by process {holder} works in {self.folder}. "
                    "Stop it, or give this one a folder of its own."
                ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def _java_options(self) -> list[str]:
        return [
            f"-Xmx{self._heap}",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}",
        ]

    def _launch(self, java: Java, command: list[str], node: Node, lock: IO[str]) -> None:
        """Start the process and wait until it answers; choose other ports when another process has taken these."""
        for attempt in range(_ATTEMPTS):
            self._node = node
            configuration = write_configuration(self.folder, node, self._settings)
            if self.log_file.exists():
                self.log_file.replace(self.log_file.with_suffix(".log.1"))
            with self.log_file.open("wb") as log:
                self._guardian = subprocess.Popen(
                    guarded([*command, "kafka.Kafka", configuration.name]),
                    cwd=self.folder,
                    env=environment(java),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    bufsize=0,
                    start_new_session=True,  # Ctrl-C reaches this process only, which then stops the broker
                    pass_fds=[lock.fileno()],  # the folder stays locked until the broker is gone
                )
            self._pid = int(self._guardian.stdout.readline() or 0) if self._guardian.stdout else 0
            if self._answers(node):
                return
            if "java.net.BindException" not in self._log() or attempt == _ATTEMPTS - 1:
                break
            self._guardian.communicate()
            node = move_node(self.folder, node)
        how = f"did not answer within {self._timeout:.0f} s" if self.running else "ended while starting"
        end = "\n".join(f"    {line}" for line in self._log().splitlines()[-_LOG_LINES_SHOWN:])
        raise BrokerFailed(f"The broker {how}. The end of {self.log_file}:\n{end}")

    def _answers(self, node: Node) -> bool:
        """Wait until this broker, and no other one on the same port, answers; return False when it does not."""
        deadline = time.monotonic() + self._timeout
        while self.running and time.monotonic() < deadline:
            with suppress(OSError, KafkaException), socket.create_connection((HOST, node.port), timeout=1):
                # Created only now: librdkafka prints errors about a port on which nobody listens.
                client = AdminClient({"bootstrap.servers": node.address}, logger=_SILENT)
                if str(client.list_topics(timeout=5).cluster_id) == node.cluster_id:  # its type says None
                    return True
            time.sleep(_POLL_SECONDS)
        return False

    def _log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def _send(self, number: signal.Signals) -> None:
        """Send a signal through the guardian: only a parent knows that a process id is still its child's."""
        if self._guardian is not None and self._guardian.stdin is not None:
            with suppress(BrokenPipeError):
                self._guardian.stdin.write(bytes([number]))


_SILENT = logging.getLogger(f"{__name__}.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
