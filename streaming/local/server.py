"""A Java server as a child process with the lifetime of its parent, in a folder of its own."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from streaming.errors import BrokerFailed, FolderInUse
from streaming.local.guardian import guarded
from streaming.local.java import Java, environment
from streaming.local.process import end_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POLL_SECONDS = 0.05

_LOCK_SECONDS = 5.0
"""Seconds to wait for the lock of the folder."""


class Server:
    """A server of this machine, which dies with this process, even when this process is killed.

    Not for use from several threads at once.

    Args:
        folder: data folder, created when it does not exist; one server at a time works in it.
        log_name: name of its log file there.
        timeout: seconds within which the server must accept requests.
    """

    def __init__(self, folder: Path | str, log_name: str, timeout: float) -> None:
        self.folder = Path(folder).absolute()
        self.log_file = self.folder / log_name
        self._timeout = timeout
        self._lock: IO[str] | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """True while the process of the server lives, paused or not."""
        return self._guardian is not None and self._guardian.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the server or, when it is not running, of its last process."""
        return self._pid

    def start(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            FolderInUse: another server works in this folder.
            BrokerFailed: the server does not start; the message has the end of its log.
        """
        if self.running:
            return self
        self.kill()  # release what a server that ended by itself has left
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock = self._lock_folder()
            self._begin(lock)
        except OSError as error:
            self.kill()
            raise BrokerFailed(f"The broker cannot work in {self.folder}: {error}.") from error
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self, timeout: float = 30) -> None:
        """Stop the server in an orderly way; kill it if it still runs after `timeout` seconds."""
        if self._guardian is not None:
            self._send(signal.SIGTERM)
            self._send(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._guardian.wait(timeout)
        self.kill()

    def kill(self) -> None:
        """Kill the server, as a crash would."""
        if self._guardian is not None:
            self._send(signal.SIGKILL)
            self._guardian.communicate()
            self._guardian = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def pause(self) -> None:
        """Freeze the server: connections stay open, requests get no answer."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the server go on after `pause`."""
        self._send(signal.SIGCONT)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the server ends by itself; return False when it still runs after `timeout` seconds."""
        if self._guardian is not None:
            try:
                self._guardian.wait(timeout)
            except subprocess.TimeoutExpired:
                return False
        return True

    def _begin(self, lock: IO[str]) -> None:
        """Launch the process, and wait until it answers; the folder exists and is locked."""
        raise NotImplementedError

    def _wait_until(self, answers: Callable[[], bool]) -> None:
        """Wait until the launched server answers.

        Args:
            answers: tells whether it does.

        Raises:
            BrokerFailed: it ends before, or does not answer in time.
        """
        deadline = time.monotonic() + self._timeout
        while not answers():
            if not self.running or time.monotonic() > deadline:
                raise self._failed()
            time.sleep(POLL_SECONDS)

    def _spawn(self, java: Java, command: Sequence[str], lock: IO[str]) -> None:
        """Start the process, with the folder as its working directory and a new log."""
        if self.log_file.exists():
            self.log_file.replace(self.log_file.with_suffix(".log.1"))
        with self.log_file.open("wb") as log:
            self._guardian = subprocess.Popen(
                guarded(list(command)),
                cwd=self.folder,
                env=environment(java),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # Ctrl-C reaches this process only, which then stops the server
                pass_fds=[lock.fileno()],  # the folder stays locked until the server is gone
            )
        self._pid = int(self._guardian.stdout.readline() or 0) if self._guardian.stdout else 0

    def _release(self) -> None:
        """Kill the process; the folder stays locked, for another attempt."""
        if self._guardian is not None:
            self._guardian.communicate()

    def _lock_folder(self) -> IO[str]:
        """Lock the folder; wait `_LOCK_SECONDS` for it, since the server of a killed parent takes a moment to end."""
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
                    f"A broker started by process {holder} works in {self.folder}. "
                    "Stop it, or give this one a folder of its own."
                ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        return lock

    def _failed(self) -> BrokerFailed:
        """Return the error of a server that does not come up."""
        how = f"did not answer within {self._timeout:.0f} s" if self.running else "ended while starting"
        return BrokerFailed(f"The broker {how}. The end of {self.log_file}:\n{end_of(self.log_file)}")

    def _log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def _send(self, number: signal.Signals) -> None:
        """Send a signal through the guardian: only a parent knows that a process id is still its child's."""
        if self._guardian is not None and self._guardian.stdin is not None:
            with suppress(BrokenPipeError):
                self._guardian.stdin.write(bytes([number]))
