"""The driver that holds a checkpoint, as it describes itself to others."""

import os
import socket
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import orjson

LEASE_SECONDS: Final = 10.0
"""Seconds without a beat after which a driver counts as gone."""

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Holder:
    """A driver, and whether it still holds the checkpoint.

    Attributes:
        generation: number of the driver; a later driver of the same checkpoint has a larger one.
        host: name of its machine.
        pid: its process id there.
        since: time of its start, with the zone.
        process: the process among all that this machine and its containers ever had; empty where this cannot be told.
        released: True once it has ended in order.
    """

    generation: int
    host: str
    pid: int
    since: str
    process: str
    released: bool = False

    @classmethod
    def of_this_process(cls, generation: int) -> Self:
        """Return this process as holder."""
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        return cls(generation, socket.gethostname(), os.getpid(), since, _process(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the holder of a text made by `text`."""
        return cls(**orjson.loads(text))

    def text(self) -> str:
        """Return the holder as JSON."""
        return orjson.dumps(asdict(self)).decode()

    def as_released(self) -> Self:
        """Return the same driver after its orderly end."""
        return replace(self, released=True)

    def has_ended(self) -> bool:
        """Tell whether it has surely ended: in order, or it was a process of this machine that is gone."""
        if self.released:
            return True
        mine = _process(os.getpid())
        return (
            bool(self.process and mine) and _place(self.process) == _place(mine) and _process(self.pid) != self.process
        )

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def _process(pid: int) -> str:
    """Return a name of a process that no other one has: boot, namespace of ids, id, and start in ticks since the boot.

    It is empty where there is no /proc, or no such process.
    """
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = (_PROC / "self/ns/pid").readlink()
        ticks = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot} {namespace} {pid} {ticks}"


def _place(process: str) -> list[str]:
    """Return boot and namespace of a process: ids are comparable where both are the same."""
    return process.split()[:2]
