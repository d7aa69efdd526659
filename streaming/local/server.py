"""A local Java server as a child process, which locks its folder, and the ports of such servers."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import socket
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from streaming.errors import BrokerFailed, FolderInUse
from streaming.local.java import Java, environment
from streaming.local.process import POLL_SECONDS, Child, end_of, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HOST = "127.0.0.1"
"""Address of the loopback interface."""

_PORTS = range(20_000, 32_768)
"""Ports for servers, below the ephemeral ports of the kernel.

With an ephemeral port, a client that reconnects while its broker is down could be assigned the broker's own port,
connect to itself, and block the port.
"""

_LOCK_SECONDS = 5.0
"""Timeout of the folder's lock, in seconds."""


class Server:
    """A local server that ends with this process, even if this process is killed. Not thread-safe.

    Args:
        folder: data folder, created if needed. It is locked while the server runs.
        timeout: seconds within which the server must answer.

    Attributes:
        pid: process id of the server or, if it is not running, of its last process.
    """

    def __init__(self, folder: Path | str, log_name: str, timeout: float) -> None:
        self.folder = Path(folder).absolute()
        self.log_file = self.folder / log_name
        self._timeout = timeout
        self._lock: IO[str] | None = None
        self._child: Child | None = None
        self.pid = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """True while the process of the server exists, paused or not."""
        return self._child is not None and self._child.running

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            FolderInUse: another server uses this folder.
            BrokerFailed: the server does not start. The error contains the end of its log.
        """
        if self.running:
            return self
        self.kill()  # release the resources of a server that has ended
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock = self._lock_folder()
            self._begin(lock)
        except BaseException as error:
            self.kill()
            if isinstance(error, OSError):
                raise BrokerFailed(f"The broker cannot work in {self.folder}: {error}.") from error
            raise
        return self

    def stop(self, timeout: float = 30) -> None:
        """Stop the server gracefully; kill it after `timeout` seconds."""
        if self._child is not None:
            self._child.send(signal.SIGTERM)
            self._child.send(signal.SIGCONT)
            self._child.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        if self._child is not None:
            self._child.kill()
            self._child = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def pause(self) -> None:
        """Freeze the server: connections stay open, and requests are not answered."""
        if self._child is not None:
            self._child.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the server after `pause`."""
        if self._child is not None:
            self._child.send(signal.SIGCONT)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server ends; return False if it still runs after `timeout` seconds."""
        return self._child is None or self._child.wait(timeout) is not None

    def _begin(self, lock: IO[str]) -> None:
        """Start the process and wait until it answers. The folder exists and is locked."""
        raise NotImplementedError

    def _spawned(self, java: Java, command: Sequence[str], lock: IO[str], answers: Callable[[], bool]) -> bool:
        """Start the process; return False if it ends, or does not answer in time."""
        if self._child is not None:
            self._child.kill()
        if self.log_file.exists():
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        self._child = Child(command, self.log_file, environment=environment(java), folder=self.folder, lock=lock)
        self.pid = self._child.pid
        return bool(self._child.wait_for(answers, self._timeout))

    def _lock_folder(self) -> IO[str]:
        """Lock the folder. Wait for the server of a killed parent, which takes a moment to end."""
        lock = (self.folder / "lock").open("a+", encoding="utf-8")
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(POLL_SECONDS)
                    continue
                lock.seek(0)
                holder = lock.read().strip()
                lock.close()
                raise FolderInUse(
                    f"A broker started by process {holder} uses {self.folder}. Stop it, or choose another folder."
                ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def _failed(self) -> BrokerFailed:
        how = f"did not answer within {self._timeout:.0f} s" if self.running else "ended while starting"
        return BrokerFailed(f"The broker {how}. {end_of(self.log_file)}")

    def _log(self) -> str:
        return tail(self.log_file)


def is_free(port: int) -> bool:
    """Return True if a server could listen on this port now."""
    with socket.socket() as probe:
        # Like Java: the closed connections of a broker that has just ended do not block its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(besides: int = 0) -> int:
    """Return a random free port. Another process may take it before the caller does."""
    for _ in range(1000):
        port = secrets.choice(_PORTS)
        if port != besides and is_free(port):
            return port
    raise BrokerFailed(f"No port of {_PORTS.start} to {_PORTS.stop - 1} is free on {HOST}.")
