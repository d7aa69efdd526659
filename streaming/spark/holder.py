"""The driver that holds a checkpoint, as it describes itself to others."""

import os
import socket
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import orjson

LEASE_SECONDS: Final = 10.0
"""Seconds without a beat after which a driver counts as gone."""

_PROC = Path("/proc")
_ENDED = "ZX"
"""States of a process in /proc that has ended."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A driver, and whether it still holds the checkpoint.

    Attributes:
        generation: number of the driver; larger for each later driver of the same checkpoint.
        host: name of its machine.
        pid: its process id there.
        since: time of its start, with the zone.
        process: unique name of the process on this machine and in its containers; empty if unknown.
        released: True once it has ended in order.
        spark: unique name of its Spark's JVM, which may outlive it for a moment.
    """

    generation: int
    host: str
    pid: int
    since: str
    process: str
    released: bool = False
    spark: str = ""

    @classmethod
    def of_this_process(cls, generation: int, jvm: int | None = None) -> Self:
        """Return this process as holder, with the process id of its Spark's JVM."""
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        return cls(
            generation,
            socket.gethostname(),
            os.getpid(),
            since,
            _process(os.getpid()),
            spark=_process(jvm) if jvm else "",
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the holder of a text made by `text`, of any release."""
        found = orjson.loads(text)
        return cls(**{each.name: found[each.name] for each in fields(cls) if each.name in found})

    def text(self) -> str:
        """Return the holder as JSON."""
        return orjson.dumps(asdict(self)).decode()

    def as_released(self) -> Self:
        """Return the same driver after its orderly end."""
        return replace(self, released=True)

    def has_ended(self) -> bool:
        """Return whether it has surely ended: in order, or its processes were of this machine and are gone."""
        if self.released:
            return True
        mine = _process(os.getpid())
        if not (self.process and mine) or _place(self.process) != _place(mine):
            return False
        return all(_process(int(name.split()[2])) != name for name in (self.process, self.spark) if name)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def _process(pid: int) -> str:
    """Return a unique name of a process: boot, namespace of ids, id, and start in ticks since the boot.

    It is empty if there is no /proc, or no such process. A process that has ended may be there until it is waited for.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
        status, *words = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        ticks = words[18]
    except (OSError, IndexError, ValueError):
        return ""
    return "" if status in _ENDED else f"{boot} {namespace} {pid} {ticks}"


def _place(process: str) -> list[str]:
    """Return boot and namespace of a process: ids are comparable if both are the same."""
    return process.split()[:2]
