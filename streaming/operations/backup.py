"""Backup of a checkpoint while its job may run, and restore.

First the query is copied as of one committed micro-batch, then the parts, because a part is written before the state
that refers to it. The job removes a part only some micro-batches after the last such state, so the copy is complete
unless the job has advanced that far meanwhile; then it is repeated.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlparse
from uuid import uuid4

import orjson

from streaming.errors import BackupDamaged, BackupFailed, BackupRefused, NotVerified
from streaming.operations import checkpoint_files
from streaming.operations.checkpoint import JobCheckpoint, Progress
from streaming.storage import folder as folders
from streaming.storage.folder import IDENTITY, QUERY
from streaming.storage.journal import flaw_of_part
from streaming.tuning import DEFAULT_TUNING

MANIFEST: Final = "manifest.json"
FOLDER: Final = "checkpoint"
"""Folder of a backup with the files of the checkpoint."""

_FORMAT: Final = 1
_BLOCK_BYTES: Final = 1024 * 1024

_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.5


class CopiedFile(NamedTuple):
    """A file of a backup: its path within the checkpoint, with slashes, and its digest in hexadecimal digits."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Content of a backup.

    Attributes:
        checkpoint_id: id of the checkpoint in names in Kafka; empty if it has none.
        micro_batch: the last committed micro-batch of the copy.
        time: time of the copy, with time zone.
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
        """Read a backup's manifest; raise `BackupDamaged` if that is impossible."""
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
        for path in (PurePosixPath(each.path) for each in files):
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"it names {path}, which is outside the backup")
        return cls(**found, files=files)

    def check(self, backup: Path, progress: Progress) -> None:
        """Raise `BackupDamaged` with the name of a file that is missing or differs."""
        for number, file in enumerate(self.files, 1):
            path = backup / FOLDER / file.path
            try:
                found = copied(path, None, file.path)
            except OSError as error:
                raise BackupDamaged(f"{path} cannot be read: {error}. Restore another backup.") from None
            if found != file:
                raise BackupDamaged(f"{path} is damaged: its digest differs from the manifest. Restore another backup.")
            progress("files checked", number, len(self.files))


def copied(source: Path, target: Path | None, name: str) -> CopiedFile:
    """Copy a file to the disk, or only read it without a target, and return its size and digest under this name."""
    with source.open("rb") as read:
        if target is None:
            digest = hashlib.file_digest(read, "sha256")
            return CopiedFile(name, read.tell(), digest.hexdigest())
        digest = hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True)
        # Private until it gets the permissions of the source.
        with open(target, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as written:
            while block := read.read(_BLOCK_BYTES):
                digest.update(block)
                written.write(block)
            written.flush()
            os.fsync(written.fileno())
        shutil.copymode(source, target)
        return CopiedFile(name, read.tell(), digest.hexdigest())


@contextmanager
def _new_folder(folder: Path, suffix: str, failure: str, former: Path | None = None) -> Iterator[Path]:
    """Yield an unfinished folder that gets its name at the end; rename the present folder of this name to `former`."""
    unfinished = folder.with_name(folder.name + suffix)
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        yield unfinished
        for each in (unfinished, *(each for each in unfinished.rglob("*") if each.is_dir())):
            folders.sync(each)
        if former is not None:
            folder.rename(former)
        unfinished.rename(folder)
        folders.sync(folder.parent)
    except OSError as error:
        raise BackupFailed(f"{failure}: {error}.") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def local(checkpoint: str) -> Path:
    """Return the folder of a local checkpoint; raise `BackupRefused` for a URI."""
    if urlparse(checkpoint).scheme:
        raise BackupRefused(
            f"the checkpoint {checkpoint} is a URI, but only local folders can be backed up. "
            "Stop the job, and copy it with the tools of its file system."
        )
    return Path(checkpoint).resolve()


def backup(checkpoint: Path, destination: Path, progress: Progress) -> Manifest:
    """Copy a checkpoint, whose job may run, to a new folder, which appears when it is complete.

    Raises:
        CheckpointUnusable: the checkpoint is not a folder, or cannot be read.
        BackupRefused: there is nothing to copy, or the destination exists.
        BackupDamaged: the checkpoint or its copy is damaged.
        BackupFailed: a file cannot be read or written, or the job changes files faster than they are copied.
    """
    folders.check(str(checkpoint), writes=False)
    found = JobCheckpoint(str(checkpoint))
    try:
        partitions, checkpoint_id = found.partitions, found.id or ""
    except NotVerified as error:
        raise BackupRefused(str(error)) from None
    if destination.exists():
        raise BackupRefused(f"{destination} exists; give the name of a new folder.")
    with _new_folder(destination, ".unfinished", f"{checkpoint} cannot be copied to {destination}") as unfinished:
        micro_batch, files = _Copy(checkpoint, unfinished / FOLDER, partitions, progress).make()
        manifest = Manifest(
            checkpoint_id=checkpoint_id,
            checkpoint=str(checkpoint),
            micro_batch=micro_batch,
            time=datetime.now().astimezone().isoformat(timespec="seconds"),
            release=version("reexpand"),
            files=tuple(sorted(files)),
        )
        (unfinished / MANIFEST).write_bytes(manifest.dump())
        Manifest.read(unfinished).check(unfinished, progress)
    return manifest


class _Copy:
    def __init__(self, checkpoint: Path, target: Path, partitions: int, progress: Progress) -> None:
        self._checkpoint = checkpoint
        self._target = target
        self._partitions = partitions
        self._progress = progress
        self._parts: dict[Path, CopiedFile] = {}

    def make(self) -> tuple[int, list[CopiedFile]]:
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_SECONDS)
            micro_batch = JobCheckpoint(str(self._checkpoint)).last("commits")
            if micro_batch is None:
                raise BackupRefused(f"the job of {self._checkpoint} has not committed a micro-batch yet.")
            try:
                files = self._copy(micro_batch)
            except FileNotFoundError as error:
                problem = str(error)
                continue
            if self._is_complete(micro_batch):
                return micro_batch, files
            problem = f"the job has committed more than {DEFAULT_TUNING.retained_micro_batches} micro-batches meanwhile"
        raise BackupFailed(
            f"{self._checkpoint} cannot be copied: {problem}, {_ATTEMPTS} times in a row. If its job runs, make the "
            "backup in a quieter hour, or stop the job. Otherwise the checkpoint is damaged: restore a backup."
        )

    def _copy(self, micro_batch: int) -> list[CopiedFile]:
        shutil.rmtree(self._target / QUERY, ignore_errors=True)
        needed = checkpoint_files.query_files(self._checkpoint, micro_batch, self._partitions)
        files = [self._file(path, done) for done, path in enumerate(needed, 1)]
        for path in list(checkpoint_files.part_files(self._checkpoint)):
            self._part(path, len(files) + len(self._parts))
        # After the query: their content about the clock is valid for any later micro-batch.
        others = map(self._file, checkpoint_files.root_files(self._checkpoint))
        return [*files, *self._parts.values(), *others]

    def _file(self, path: Path, done: int = 0) -> CopiedFile:
        self._progress("files copied", done, None)
        return copied(self._checkpoint / path, self._target / path, path.as_posix())

    def _part(self, path: Path, done: int) -> None:
        """Copy a part, unless it is copied already, or the job has removed it since."""
        if path in self._parts:
            return
        try:
            self._parts[path] = self._file(path, done)
        except FileNotFoundError:
            return
        flaw = flaw_of_part(path.name, (self._target / path).read_bytes())
        if flaw:
            raise BackupDamaged(
                f"{self._checkpoint / path} is damaged: {flaw}. If `reexpand verify --no-inputs` reports no damaged "
                "state, delete the file."
            )

    def _is_complete(self, micro_batch: int) -> bool:
        """Return True if the job cannot have removed a part that the copied state needs."""
        begun = JobCheckpoint(str(self._checkpoint)).last("offsets")
        return begun is not None and begun <= micro_batch + DEFAULT_TUNING.retained_micro_batches


def is_occupied(checkpoint: Path) -> bool:
    """Return True if the folder of a checkpoint exists and is not empty."""
    return checkpoint.exists() and not (checkpoint.is_dir() and not any(checkpoint.iterdir()))


def restore(
    source: Path, checkpoint: Path, progress: Progress, *, replace: bool = False
) -> tuple[Manifest, Path | None]:
    """Restore a checkpoint after verifying the whole backup; with `replace`, rename an existing checkpoint.

    Returns:
        The manifest of the backup, and the new folder of the replaced checkpoint; None if there was none.

    Raises:
        CheckpointUnusable: no checkpoint can be created there.
        BackupDamaged: the source is not a backup, or is damaged.
        BackupRefused: a checkpoint exists, and `replace` is not set.
        BackupFailed: a file cannot be read or written.
    """
    folders.check(str(checkpoint.parent), writes=True)
    if checkpoint.is_mount():
        raise BackupRefused(
            f"{checkpoint} is the root of a mounted file system, which cannot be renamed. Give --checkpoint for a "
            "folder in it."
        )
    manifest = Manifest.read(source)
    manifest.check(source, progress)
    former = None
    if is_occupied(checkpoint):
        if not replace:
            raise BackupRefused(
                f"{checkpoint} exists. Give --checkpoint for a new folder, or --replace, which renames this checkpoint."
            )
        former = checkpoint.with_name(f"{checkpoint.name}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    failure = f"{source} cannot be restored to {checkpoint}"
    with _new_folder(checkpoint, ".restoring", failure, former) as unfinished:
        for number, file in enumerate(manifest.files, 1):
            if copied(source / FOLDER / file.path, unfinished / file.path, file.path) != file:
                raise BackupDamaged(f"{source / FOLDER / file.path} changed while it was restored.")
            progress("files restored", number, len(manifest.files))
        # Under the old id in Kafka the broker's markers are ahead of the copy, so new records would be skipped as
        # already written.
        fixed = orjson.loads((unfinished / IDENTITY).read_bytes())
        renamed = orjson.dumps({**fixed, "id": str(uuid4())}, option=orjson.OPT_INDENT_2)
        (unfinished / IDENTITY).write_bytes(renamed)
    return manifest, former
