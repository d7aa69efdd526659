"""Sizes of a running job, measured from outside."""

import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rich.table import Table

from tests.chaos.stage import Stage
from tests.support.processes import resident_bytes

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 40
"""Number of samples that a line of bars shows."""


@dataclass(frozen=True)
class Sample:
    """Memory, sizes and rows at one time, and the updates repeated since the sample before."""

    seconds: int
    jvm_mb: int
    driver_mb: int
    workers_mb: int
    state_kb: int
    files: int
    broker_mb: int
    rows: int
    missing: int
    surplus: int
    repeated: int
    faults: int


def sample(stage: Stage, begun: float, faults: int) -> Sample:
    """Compare the relation at a quiet point, and measure."""
    verdict = stage.is_right()
    job, checkpoint = stage.running, stage.streams.checkpoint
    state = [*_sizes(checkpoint / "query" / "state"), *_sizes(checkpoint / "parts")]
    return Sample(
        seconds=int(time.monotonic() - begun),
        jvm_mb=resident_bytes(job.jvm()) >> 20,
        driver_mb=resident_bytes(job.process.pid) >> 20,
        workers_mb=sum(map(resident_bytes, job.workers())) >> 20,
        state_kb=sum(state) >> 10,
        files=sum(1 for _ in _sizes(checkpoint)),
        broker_mb=sum(_sizes(stage.broker.folder / "data")) >> 20,
        rows=verdict.rows,
        missing=verdict.missing,
        surplus=verdict.surplus,
        repeated=verdict.committed,
        faults=faults,
    )


def write(samples: Sequence[Sample], file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as output:
        writer = csv.DictWriter(output, [field.name for field in fields(Sample)])
        writer.writeheader()
        writer.writerows(asdict(each) for each in samples)


def as_screen(samples: Sequence[Sample]) -> Table:
    """Return a table of the course of each size: first, largest and last value, and bars."""
    table = Table("size", "first", "largest", "last", "course")
    for field in fields(Sample)[1:]:
        values = [getattr(each, field.name) for each in samples]
        table.add_row(field.name, *(f"{value:,}" for value in (values[0], max(values), values[-1])), bars(values))
    return table


def bars(values: Sequence[int]) -> str:
    """Return a line of bars, from nothing to the largest value; of many values, every n-th."""
    shown = values[:: -(-len(values) // _WIDTH)]
    top = max(*shown, 1)
    return "".join(_BARS[value * (len(_BARS) - 1) // top] for value in shown)


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the sizes of the files in a folder, in bytes; files may go meanwhile."""
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except FileNotFoundError:
            continue
