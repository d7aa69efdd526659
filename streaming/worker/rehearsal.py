"""Dry runs of the work on a key in a child process, and the search for the entry that kills or hangs it.

A worker that was killed leaves no trace of the key on which it worked. So when Spark repeats its task, the work on each
key is first done in a child process whose output is discarded. If the child exits, hangs or grows without bound, the
parent searches for the smallest set of entries without which the work succeeds, by dry runs of parts of the rows.

A child uses only this package's code on rows that are already decoded: parts of states are read by the parent, because
clients of object stores do not survive a fork.
"""

import ctypes
import gc
import mmap
import os
import signal
import struct
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import orjson

from streaming.errors import EntriesLethal, StateCorrupted
from streaming.records.model import Source
from streaming.storage.journal import Archive
from streaming.worker.failures import decision_fields
from streaming.worker.rows import InputRows, position
from streaming.worker.worker import Worker

T = TypeVar("T")

_POLL_SECONDS: Final = 0.05
_SPARE_BYTES: Final = 512 * 1024 * 1024
"""Memory that a dry run leaves to others, or half of what is available if that is less."""

_SEARCH_SHARE: Final = 1 / 15
"""Share of the time without progress that a dry run of a part of the rows is given."""
_AGAIN_SHARE: Final = 1 / 2
"""Share of that time that a second dry run of all rows is given."""
_SHORTEST_SECONDS: Final = 1.0

_MAX_ENTRIES: Final = 10
"""Maximum number of entries of one key to blame. Beyond it, the entries are hardly the cause."""

_PARENT_DEATH_SIGNAL: Final = 1
_STEPS: Final = struct.Struct("<Q")


class Fate(StrEnum):
    """End of a dry run that did not succeed."""

    KILLED = "two workers were killed at this entry"
    HUNG = "two workers made no progress at this entry"
    GREW = "the first worker was killed at this entry, the second one ran out of memory"


class KeyWork(NamedTuple):
    """Work on a key: arguments of `Worker.work`."""

    parent: str
    number: int
    rows: InputRows
    data: bytes | None
    batch: int
    partition: int | None


class _Notes:
    """Progress of a child, in memory that it shares with its parent."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _STEPS.size)

    def add(self) -> None:
        _STEPS.pack_into(self._shared, 0, self.steps() + 1)

    def steps(self) -> int:
        return int(_STEPS.unpack_from(self._shared)[0])

    def follow(self, entries: Iterator[T], count: int) -> Iterator[T]:  # noqa: ARG002 - part of the protocol
        for entry in entries:
            self.add()
            yield entry


@dataclass(frozen=True, slots=True)
class _RemoteArchive:
    """Archives of a child, or one of them: the parent reads, and what is written is kept in memory."""

    line: Connection
    parent: str = ""
    number: int = 0
    written: dict[str, bytes] = field(default_factory=dict)

    def of(self, parent: str, number: int) -> Archive:
        return _RemoteArchive(self.line, parent, number)

    def snapshots(self, _parent: str, _number: int) -> None:
        """Return None: this is a dry run."""

    def write(self, name: str, data: bytes) -> None:
        self.written[name] = data

    def read(self, name: str, start: int = 0) -> bytes:
        if name in self.written:
            return self.written[name][start:]
        self.line.send((self.parent, self.number, name))
        content = self.line.recv()
        if content is None:
            raise StateCorrupted(f"the part {name} cannot be read")
        return bytes(content[start:])

    def remove(self, name: str) -> None:
        """Keep the part: this is a dry run."""


class Rehearsal:
    """Dry runs of keys in child processes, before the worker does the work.

    Args:
        worker: worker that does the work afterwards.
        stall_seconds: time without progress after which a dry run counts as hung; 0 for no limit.
        memory_bytes: memory that a dry run may take; None for a share of what is available.
    """

    def __init__(self, worker: Worker, stall_seconds: float, memory_bytes: int | None = None) -> None:
        self.worker = worker
        self._stall_seconds = stall_seconds
        self._memory_bytes = memory_bytes
        self._child: _Child | None = None

    def check(self, work: KeyWork) -> None:
        """Try the work on a key.

        Raises:
            EntriesLethal: entries of the key kill or hang workers; the text names them (see `lethal_entries`).
        """
        fate = self._play(work, self._stall_seconds)
        if fate is not None and self._play(work, self._part_of_time(_AGAIN_SHARE)) is not None:
            removed = self._search(work._replace(rows=work.rows.ordered()))
            topics, key = self.worker.config.topics, (work.parent, work.number)
            raise EntriesLethal(
                [
                    decision_fields(Source(topics[stream], *place), work.batch, key, work.partition, str(fate))
                    for stream, *place in removed
                ]
            )

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _search(self, work: KeyWork) -> list[tuple[int, ...]]:
        """Return the entries without which the work succeeds, each as stream, partition, offset, entry, timestamp.

        The list is empty if there is no such set of few entries.
        """
        entries = list(dict.fromkeys(_entries(work.rows)))
        removed: list[tuple[int, ...]] = []
        short = self._part_of_time(_SEARCH_SHARE)
        while len(removed) < _MAX_ENTRIES:
            left = [each for each in entries if each not in removed]
            if not left:
                break
            low, high = 0, len(left)  # the first `low` entries succeed, the first `high` do not
            while high - low > 1:
                middle = (low + high) // 2
                if self._play(_part(work, left[:middle]), short) is None:
                    low = middle
                else:
                    high = middle
            removed.append(left[high - 1])
            rest = [each for each in left if each != left[high - 1]]
            if self._play(_part(work, rest), self._stall_seconds) is None:
                return self._guilty(work, rest, removed)
        return []

    def _guilty(
        self, work: KeyWork, rest: list[tuple[int, ...]], removed: list[tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        """Return the removed entries that do not succeed with the rest: others were only slow in the search."""
        guilty = removed[-1:]
        for each in removed[:-1]:
            together = [*rest, each]
            if self._play(_part(work, together), self._stall_seconds) is None:
                rest = together
            else:
                guilty.append(each)
        return sorted(guilty)

    def _part_of_time(self, share: float) -> float:
        return max(_SHORTEST_SECONDS, self._stall_seconds * share) if self._stall_seconds else 0

    def _started(self) -> "_Child":
        """Start a child, twice if it ends at once: Linux may end it first when memory is short."""
        with suppress(EOFError):
            return _Child(self.worker, self._memory_bytes)
        return _Child(self.worker, self._memory_bytes)

    def _play(self, work: KeyWork, seconds: float) -> Fate | None:
        """Return the end of a dry run; None if it succeeds."""
        if not len(work.rows.streams):
            return None
        if self._child is None:
            self._child = self._started()
        fate = self._child.play(work, seconds)
        if fate is not None:
            self.close()
        return fate


def lethal_entries(text: str) -> list[dict[str, Any]] | None:
    """Return the entries named in the text of an error of Spark; None if it is another error.

    The list is empty if the work on a key fails regardless of the entries.
    """
    _, found, rest = text.partition(f"{EntriesLethal.__name__}: ")
    if not found:
        return None
    line = rest.partition("\n")[0].strip()
    with suppress(orjson.JSONDecodeError):
        named = orjson.loads(line)
        if isinstance(named, list):
            return named
    return None


def _entries(rows: InputRows) -> Iterator[tuple[int, ...]]:
    columns = (rows.streams, rows.partitions, rows.offsets, position(rows.entries), rows.timestamps)
    return zip(*(column.tolist() for column in columns), strict=True)


def _part(work: KeyWork, entries: list[tuple[int, ...]]) -> KeyWork:
    """Return the work on some entries of ordered rows."""
    wanted = set(entries)
    return work._replace(rows=work.rows.take(np.array([entry in wanted for entry in _entries(work.rows)], bool)))


class _Child:
    """Child process that works on keys and discards the output."""

    def __init__(self, worker: Worker, memory_bytes: int | None) -> None:
        self._archives = worker.config.archives
        self._notes = _Notes()
        self._line, its_line = Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about threads: the child does not run their code
            self._pid = os.fork()
        if not self._pid:
            with suppress(BaseException):
                self._line.close()
                _serve(worker, its_line, self._notes)
            os._exit(0)
        its_line.close()
        try:
            self._line.recv()
        except EOFError:
            self.kill()
            raise
        available = available_bytes() if memory_bytes is None else None
        grown = memory_bytes if available is None else available - min(available // 2, _SPARE_BYTES)
        size = resident_bytes(self._pid)
        self._max_bytes = None if grown is None or size is None else size + grown

    def play(self, work: KeyWork, seconds: float) -> Fate | None:
        try:
            self._line.send(work)
            return self._attend(seconds)
        except (EOFError, OSError):
            return Fate.KILLED

    def _attend(self, seconds: float) -> Fate | None:
        """Wait for the end of a dry run, and read parts of states for it.

        The time is counted in polls: after a suspend of the machine, the child does not count as hung.
        """
        looks, former = 0, -1
        while True:
            if self._line.poll(_POLL_SECONDS):
                asked = self._line.recv()
                if asked is None:
                    return None
                self._line.send(self._read(*asked))
                looks = 0
            steps = self._notes.steps()
            looks, former = (looks + 1 if steps == former else 0), steps
            if seconds and looks * _POLL_SECONDS >= seconds:
                return Fate.HUNG
            if self._max_bytes is not None and (resident_bytes(self._pid) or 0) > self._max_bytes:
                return Fate.GREW

    def _read(self, parent: str, number: int, name: str) -> bytes | None:
        with suppress(StateCorrupted):
            if self._archives is not None:
                return self._archives.of(parent, number).read(name)
        return None

    def kill(self) -> None:
        self._line.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _serve(worker: Worker, line: Connection, notes: _Notes) -> None:
    """Work on the keys that the parent sends; errors of Python count as success, since a worker survives them."""
    gc.disable()
    _die_first()
    if worker.config.archives is not None:
        worker.states.archives = _RemoteArchive(line)
    line.send(None)
    while True:
        parent, number, rows, data, batch, partition = line.recv()
        with suppress(Exception):
            for output in worker.work(parent, number, rows, data, batch=batch, partition=partition, observer=notes):
                notes.add()
                for _ in output.all_rows():
                    pass
        notes.add()
        line.send(None)


def _die_first() -> None:
    """Let Linux end this process before others when memory runs out, and when its parent has ended."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)


_CGROUP = Path("/sys/fs/cgroup")


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of a process; None if it is unknown."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def available_bytes() -> int | None:
    """Return the memory that processes can still get, within the machine and the container; None if it is unknown."""
    return min(filter(None, (_of_machine(), _of_container())), default=None)


def _of_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("MemAvailable:"))
    return None


def _of_container() -> int | None:
    """Return the memory left in the control group, version 2; its file cache counts as free."""
    with suppress(OSError, ValueError, StopIteration):
        limit = int((_CGROUP / "memory.max").read_text())  # "max" without a limit
        used = int((_CGROUP / "memory.current").read_text())
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        cache = next(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        return max(1, limit - used + cache)
    return None
