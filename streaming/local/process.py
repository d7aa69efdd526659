"""Child processes and temporary files that end with this process, and the cache folder of downloads with its locks."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from streaming.errors import JarsUnavailable
from streaming.local.guardian import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

POLL_SECONDS = 0.05

_LOG_LINES_SHOWN = 20
"""Number of log lines in an error message."""

_LOG_BYTES_READ = 65_536


def cache_folder() -> Path:
    """Return the folder of all downloads: `$XDG_CACHE_HOME/reexpand`, by default `~/.cache/reexpand`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return base / "reexpand"


@contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Wait for the lock file `path` and hold it. The kernel releases it when all its holders have ended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def scratch_folder(parent: Path) -> Path:
    """Create a folder for temporary files, which is removed when this process ends.

    If the process is killed, the next call removes it: the kernel releases its lock. Raises `OSError`.
    """
    with locked(parent / "lock"):
        for each in parent.iterdir():
            if each.is_dir() and not _is_held(each / "lock"):
                shutil.rmtree(each, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix="", dir=parent))
        lock = (folder / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()

    atexit.register(remove)
    return folder


def _is_held(lock_file: Path) -> bool:
    try:
        with lock_file.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


@contextmanager
def storing(what: str, lock_file: Path) -> Iterator[IO[str]]:
    """Hold a lock of the cache, and convert `OSError` to `JarsUnavailable`."""
    try:
        with locked(lock_file) as lock:
            yield lock
    except OSError as error:
        raise JarsUnavailable(
            f"{what} cannot be stored in {lock_file.parent}: {error.strerror}. "
            "Free some space there, or set XDG_CACHE_HOME to a writable folder."
        ) from error


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file atomically: readers see all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.chmod(mode)
    temporary.replace(path)


def run(command: list[str], lock: IO[str], on_line: Callable[[str], object], folder: Path | None = None) -> int:
    """Run a program, pass each line of its output to `on_line`, and return its exit code.

    The program is killed if `on_line` raises or this process is killed. The file `lock` stays locked until the program
    has ended.
    """
    with subprocess.Popen(
        guarded(command),
        cwd=folder,
        stdin=subprocess.PIPE,  # closed at the end of this block, which makes the guardian kill the program
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches only this process, which then ends the program
        pass_fds=[lock.fileno()],
    ) as process:
        for line in process.stderr or ():
            on_line(line)
        return process.wait()


def run_tool(
    command: list[str], lock: IO[str], failure: str, on_line: Callable[[str], object] = lambda _: None
) -> None:
    """Run a program as `run` does; raise `JarsUnavailable` if its exit code is not 0.

    The error contains `failure` and the end of the output.
    """
    output: deque[str] = deque(maxlen=_LOG_LINES_SHOWN)

    def keep(line: str) -> None:
        if line.strip(" .\t\n"):  # progress of a download is dots
            output.append(line.rstrip())
        on_line(line)

    if run(command, lock, keep):
        raise JarsUnavailable(f"{failure} The end of the output:\n{_indented(output)}")


class Child:
    """A process under a guardian, which kills it when this process ends.

    The guardian, the process, and children of the process are one process group.

    Args:
        environment: environment variables; None to inherit them.
        lock: file that stays locked until the process has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        log_file: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        lock: IO[str] | None = None,
    ) -> None:
        with log_file.open("wb") as log:
            self._guardian = subprocess.Popen(
                guarded(list(command)),
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # Ctrl-C reaches only this process, which then stops the child
                pass_fds=[] if lock is None else [lock.fileno()],
            )
        self.pid = int(self._guardian.stdout.readline() or 0) if self._guardian.stdout else 0

    @property
    def running(self) -> bool:
        """True while the process exists, paused or not."""
        return self._guardian.poll() is None

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit code; None if the process still runs after `seconds`."""
        with suppress(subprocess.TimeoutExpired):
            return self._guardian.wait(seconds)
        return None

    def wait_for(self, check: Callable[[], T], seconds: float) -> T | None:
        """Poll `check` while the process runs, for `seconds`; return a true result."""
        deadline = time.monotonic() + seconds
        while self.running and time.monotonic() < deadline:
            if found := check():
                return found
            time.sleep(POLL_SECONDS)
        return None

    def send(self, number: signal.Signals) -> None:
        """Send a signal through the guardian. Only a parent can be sure that a process id is its child's."""
        if self._guardian.stdin is not None:
            with suppress(BrokenPipeError):
                self._guardian.stdin.write(bytes([number]))

    def kill(self) -> None:
        """Kill the process."""
        self.send(signal.SIGKILL)
        self._guardian.communicate()

    def send_group(self, number: signal.Signals) -> None:
        """Send a signal to the process group; raise `ProcessLookupError` if it has no members."""
        os.killpg(self._guardian.pid, number)

    def kill_group(self) -> None:
        """Kill the process group."""
        with suppress(ProcessLookupError, PermissionError):
            self.send_group(signal.SIGKILL)
        self._guardian.communicate()

    def group_exists(self) -> bool:
        """Return True if the process group has members."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guardian.pid, 0)
            return True
        return False


def tail(log_file: Path) -> str:
    """Return the end of a log."""
    with log_file.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - _LOG_BYTES_READ))
        return log.read().decode(errors="replace")


def end_of(log_file: Path) -> str:
    """Return the name of a log and its last lines, for an error message."""
    return f"The end of {log_file}:\n{_indented(tail(log_file).splitlines()[-_LOG_LINES_SHOWN:])}"


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)
