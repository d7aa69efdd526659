"""The manifest of a backup: its files with sizes and digests, and its origin."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, Self

import orjson

from streaming.errors import BackupDamaged

MANIFEST: Final = "manifest.json"
FOLDER: Final = "checkpoint"
"""Folder of a backup with the files of the checkpoint."""

_FORMAT: Final = 1
_BLOCK_BYTES: Final = 1024 * 1024

Progress = Callable[[str, int, int | None], None]
"""Callback with the activity, the number of files so far, and their total (None: unknown)."""


class CopiedFile(NamedTuple):
    """A file of a backup.

    Attributes:
        path: path within the checkpoint, with slashes.
        size: size in bytes.
        sha256: digest of its content, in hexadecimal digits.
    """

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of a backup.

    Attributes:
        checkpoint_id: id of the checkpoint in names in Kafka; empty if it has none.
        checkpoint: folder that was copied.
        micro_batch: the last committed micro-batch of the copy.
        time: time of the copy, with time zone.
        release: release that made the copy.
        files: its files.
    """

    checkpoint_id: str
    checkpoint: str
    micro_batch: int
    time: str
    release: str
    files: tuple[CopiedFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def dump(self) -> bytes:
        """Return the manifest as JSON."""
        files = [file._asdict() for file in self.files]
        return orjson.dumps({"format": _FORMAT, **asdict(self), "files": files}, option=orjson.OPT_INDENT_2)

    @classmethod
    def read(cls, backup: Path) -> Self:
        """Read the manifest of a backup.

        Raises:
            BackupDamaged: the folder is not a backup, or its manifest cannot be read.
        """
        file = backup / MANIFEST
        try:
            return cls._parse(orjson.loads(file.read_bytes()))
        except FileNotFoundError:
            raise BackupDamaged(f"{backup} is not a backup: it has no {MANIFEST}.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackupDamaged(f"{file} cannot be read: {error}.") from None

    @classmethod
    def _parse(cls, found: dict[str, Any]) -> Self:
        if found.pop("format") != _FORMAT:
            raise ValueError("another release wrote it")
        files = tuple(CopiedFile(**each) for each in found.pop("files"))
        if outside := [each.path for each in files if not _is_inside(each.path)]:
            raise ValueError(f"it names {outside[0]}, which is outside the backup")
        return cls(**found, files=files)

    def check(self, backup: Path, progress: Progress) -> None:
        """Compare all files of a backup with the manifest.

        Raises:
            BackupDamaged: a file is missing or differs; the message names it.
        """
        for number, file in enumerate(self.files, 1):
            path = backup / FOLDER / file.path
            try:
                found = copied(path, None, file.path)
            except OSError as error:
                raise BackupDamaged(f"{path} cannot be read: {error}. Restore another backup.") from None
            if found != file:
                raise BackupDamaged(f"{path} is damaged: its digest differs from the manifest. Restore another backup.")
            progress("files checked", number, len(self.files))


def _is_inside(path: str) -> bool:
    return not PurePosixPath(path).is_absolute() and ".." not in PurePosixPath(path).parts


def copied(source: Path, target: Path | None, name: str) -> CopiedFile:
    """Copy a file to the disk, or only read it, and return its size and digest.

    Args:
        source: the file.
        target: the copy; None: only read.
        name: path of the file within the checkpoint.

    Raises:
        OSError: it cannot be read or written.
    """
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as read:
        if target is None:
            while block := read.read(_BLOCK_BYTES):
                digest.update(block)
                size += len(block)
            return CopiedFile(name, size, digest.hexdigest())
        target.parent.mkdir(parents=True, exist_ok=True)
        # Private until it gets the permissions of the source.
        with open(target, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:
            while block := read.read(_BLOCK_BYTES):
                digest.update(block)
                size += written.write(block)
            written.flush()
            os.fsync(written.fileno())
    shutil.copymode(source, target)
    return CopiedFile(name, size, digest.hexdigest())


def settle(folders: Iterable[Path]) -> None:
    """Sync the entries of folders to the disk."""
    for folder in folders:
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def folders_of(root: Path) -> list[Path]:
    """Return a folder and all folders below it."""
    return [root, *(each for each in root.rglob("*") if each.is_dir())]
