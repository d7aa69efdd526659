"""Files of a checkpoint that a committed micro-batch needs.

A running job adds and removes files all the time. A micro-batch needs its offsets, its commit, and in each state
partition a snapshot with all changelogs up to its version. These files have numbers in their names, never change, and
are kept by Spark for some micro-batches.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zipfile import BadZipFile, ZipFile

import orjson

from streaming.errors import BackupDamaged
from streaming.storage.folder import IDENTITY, PARTS, QUERY

_PART: Final = re.compile(r"[0-9a-f]{32}-\d+")
"""Name of a finished part; unfinished parts have a suffix."""

_SNAPSHOT: Final = re.compile(r"(\d+)\.(?:zip|snapshot)")
_CHANGES: Final = re.compile(r"(\d+)\.(?:changelog|delta)")

_SHARED: Final = {"sstFiles": ("SSTs", "dfsSstFileName"), "logFiles": ("logs", "dfsLogFileName")}
"""Folder of the files that a snapshot shares with others, and the field with their names, by field of its metadata."""


def query_files(checkpoint: Path, micro_batch: int, partitions: int) -> Iterator[Path]:
    """Yield the query files that a committed micro-batch needs, relative to the checkpoint.

    Raises:
        FileNotFoundError: a file is missing; a running job may have just removed it.
        BackupDamaged: a snapshot cannot be read.
    """
    query = checkpoint / QUERY
    for log in ("offsets", "commits"):
        # Spark also reads the previous micro-batch when it starts.
        yield from (Path(QUERY, log, str(number)) for number in (micro_batch - 1, micro_batch) if number >= 0)
    yield Path(QUERY, "metadata")
    yield from _all(checkpoint, query / "sources")
    for operator in _folders(query / "state"):
        yield from _all(checkpoint, *(each for each in _folders(operator) if not each.name.isdecimal()))
        for number in range(partitions):
            folder = operator / str(number)
            yield from _all(checkpoint, folder / "_metadata")
            yield from (each.relative_to(checkpoint) for each in _state_files(folder, micro_batch + 1))


def _state_files(folder: Path, version: int) -> Iterator[Path]:
    """Yield the files of a state partition from which Spark loads one version."""
    snapshots, changes = dict[int, Path](), dict[int, Path]()
    for file in folder.iterdir():
        for pattern, found in ((_SNAPSHOT, snapshots), (_CHANGES, changes)):
            if named := pattern.fullmatch(file.name):
                found[int(named[1])] = file
    base = max((number for number in snapshots if number <= version), default=0)
    if base:
        yield snapshots[base]
        yield from _shared_files(folder, snapshots[base])
    for number in range(base + 1, version + 1):
        if number not in changes:
            raise FileNotFoundError(f"{folder} lacks the changes of version {number}")
        yield changes[number]


def _shared_files(folder: Path, snapshot: Path) -> Iterator[Path]:
    if snapshot.suffix != ".zip":
        return
    try:
        with ZipFile(snapshot) as archive:
            metadata = orjson.loads(archive.read("metadata").partition(b"\n")[2])
        for field, (place, name) in _SHARED.items():
            for each in metadata.get(field) or ():
                file = folder / place / each[name]
                if file.stat().st_size != each["sizeBytes"]:
                    raise BackupDamaged(f"{file} is damaged: it should have {each['sizeBytes']:,} bytes.")
                yield file
    except (BadZipFile, KeyError, ValueError) as error:
        raise BackupDamaged(f"the snapshot {snapshot} cannot be read: {error}.") from None


def part_files(checkpoint: Path) -> Iterator[Path]:
    """Yield all current finished parts, relative to the checkpoint."""
    for folder in _folders(checkpoint / PARTS):
        yield from (each.relative_to(checkpoint) for each in sorted(folder.iterdir()) if _PART.fullmatch(each.name))


def root_files(checkpoint: Path) -> Iterator[Path]:
    """Yield the job's files in the root folder, the identity last."""
    names = [each.name for each in checkpoint.iterdir() if each.is_file() and not each.name.startswith(".")]
    yield from (Path(name) for name in sorted(names, key=lambda name: (name == IDENTITY, name)))


def _folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else []


def _all(checkpoint: Path, *folders: Path) -> Iterator[Path]:
    """Yield all files below folders, without Hadoop's checksum files, which the manifest replaces."""
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not file.name.startswith("."):
                yield file.relative_to(checkpoint)
