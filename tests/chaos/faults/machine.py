"""The machine runs out of disk or of memory; these need root, and cgroups of version 1 for the memory."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.model import Struck, fault
from tests.chaos.stage import SETTLE_SECONDS, Stage
from tests.support.processes import eventually, resident_bytes
from tests.support.running_job import POLL_SECONDS

SPARE_BYTES = 48 << 20
SPARE_MEMORY_BYTES = 40 << 20
BURST = 40_000
CGROUPS = Path("/sys/fs/cgroup/memory")


@contextmanager
def _small_disk(folder: Path, size: int) -> Iterator[Path]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(folder: Path) -> Path:
    """Fill a file system to its last byte with a file; return that."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as output:
        while True:
            try:
                output.write(b"x" * 4096)
            except OSError:
                return file


@fault("disk-full-checkpoint", "the file system of the checkpoint is full", "make room, and start the job")
def _(stage: Stage) -> Struck:
    stage.stop()
    folder = stage.streams.checkpoint
    original = folder.rename(stage.folder / "original")
    folder.mkdir()
    size = sum(file.stat().st_size + 4096 for file in original.rglob("*")) + SPARE_BYTES
    with _small_disk(folder, size):
        shutil.copytree(original, folder, dirs_exist_ok=True)
        stage.start()
        stage.load.go()
        stage.answers()
        proof = stage.strikes(lambda: _fill(folder))
        said = stage.ending(SETTLE_SECONDS)
        assert said, "the job goes on"
        (folder / "filler").unlink()
        stage.start()
        stage.answers()
        stage.quiet()
        stage.stop()
        shutil.rmtree(original)
        shutil.copytree(folder, original)
    folder.rmdir()
    original.rename(folder)
    stage.start()
    stage.load.go()
    return Struck(proof, f"{said}; with room again, the next start repeats the batch")


@fault(
    "disk-full-scratch",
    "the file system of Spark's temporary files is full",
    "make room, and start the job if it has ended",
)
def _(stage: Stage) -> Struck:
    stage.stop()
    folder = stage.folder / "scratch"
    folder.mkdir(exist_ok=True)
    with _small_disk(folder, SPARE_BYTES), pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_DIRS", str(folder))
        stage.start()
        stage.load.go()
        stage.answers()
        proof = stage.strikes(lambda: _fill(folder))
        stage.burst(BURST // 10)
        said = stage.ending(30)
        if not said:
            stage.running.kill()
    stage.start()
    return Struck(proof, f"{said or 'goes on'}; with room again, the next start goes on")


@fault(
    "memory-capped",
    "the job may use 40 MB more than it has, and gets a burst of events",
    "give it more memory, and start it",
)
def _(stage: Stage) -> Struck:
    group = CGROUPS / f"chaos-{stage.streams.prefix}"
    group.mkdir()
    try:
        used = 0
        for pid in stage.running.processes():
            (group / "cgroup.procs").write_text(str(pid))
            used += resident_bytes(pid)
        (group / "memory.limit_in_bytes").write_text(str(SPARE_MEMORY_BYTES))
        stage.burst(BURST)
        proof = stage.proof()
        said = stage.ending(45)
        if not said:
            stage.running.kill()
        stage.start()
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text().strip(), 30, POLL_SECONDS)
        group.rmdir()
    return Struck(proof, f"{said or 'goes on'}; the next start without the cap goes on")
