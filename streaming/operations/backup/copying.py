"""A consistent copy of a checkpoint, made while the job may run.

First the query is copied as of one committed micro-batch, then the parts, because a part is written before the state
that refers to it. The job removes a part only some micro-batches after the last such state, so the copy is complete
unless the job has advanced that far meanwhile; then it is repeated.
"""

import shutil
import time
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

from streaming.errors import BackupDamaged, BackupFailed, BackupRefused
from streaming.operations.backup import selection
from streaming.operations.backup.manifest import (
    FOLDER,
    MANIFEST,
    CopiedFile,
    Manifest,
    Progress,
    copied,
    folders_of,
    settle,
)
from streaming.storage import folder as folders
from streaming.storage.folder import QUERY
from streaming.storage.journal import flaw_of_part
from streaming.tuning import DEFAULT_TUNING

UNFINISHED: Final = ".unfinished"
"""Suffix of an unfinished copy."""

_ATTEMPTS: Final = 5
_PAUSE_SECONDS: Final = 0.5


def local(checkpoint: str) -> Path:
    """Return the folder of a local checkpoint.

    Raises:
        BackupRefused: it is a URI.
    """
    if urlparse(checkpoint).scheme:
        raise BackupRefused(
            f"the checkpoint {checkpoint} is a URI, but only local folders can be backed up. "
            "Stop the job, and copy it with the tools of its file system."
        )
    return Path(checkpoint).resolve()


def backup(checkpoint: Path, destination: Path, progress: Progress) -> Manifest:
    """Copy a checkpoint to a new folder, and return the manifest of the copy.

    Args:
        checkpoint: folder of the checkpoint; the job may run.
        destination: the copy, which gets its name when it is complete and verified.
        progress: called after each file.

    Raises:
        CheckpointUnusable: the checkpoint is not a folder, or cannot be read.
        BackupRefused: there is nothing to copy, or the destination exists.
        BackupDamaged: the checkpoint or its copy is damaged.
        BackupFailed: a file cannot be read or written, or the job changes files faster than they are copied.
    """
    folders.check(str(checkpoint), writes=False)
    found = selection.identity(checkpoint)
    if destination.exists():
        raise BackupRefused(f"{destination} exists; give the name of a new folder.")
    unfinished = destination.with_name(destination.name + UNFINISHED)
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        micro_batch, files = _Copy(checkpoint, unfinished / FOLDER, int(found["shuffle_partitions"]), progress).make()
        manifest = Manifest(
            checkpoint_id=str(found.get("id", "")),
            checkpoint=str(checkpoint),
            micro_batch=micro_batch,
            time=datetime.now().astimezone().isoformat(timespec="seconds"),
            release=version("reexpand"),
            files=tuple(sorted(files)),
        )
        (unfinished / MANIFEST).write_bytes(manifest.dump())
        Manifest.read(unfinished).check(unfinished, progress)
        settle(folders_of(unfinished))
        unfinished.rename(destination)
        settle([destination.parent])
    except OSError as error:
        raise BackupFailed(f"{checkpoint} cannot be copied to {destination}: {error}.") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return manifest


class _Copy:
    """An unfinished copy.

    Args:
        checkpoint: folder of the checkpoint.
        target: folder of the copy.
        partitions: number of state partitions.
        progress: called after each file.
    """

    def __init__(self, checkpoint: Path, target: Path, partitions: int, progress: Progress) -> None:
        self._checkpoint = checkpoint
        self._target = target
        self._partitions = partitions
        self._progress = progress
        self._parts: dict[Path, CopiedFile] = {}

    def make(self) -> tuple[int, list[CopiedFile]]:
        """Copy until the copy is complete, and return its micro-batch and files."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_SECONDS)
            micro_batch = selection.last_micro_batch(self._checkpoint)
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
        files = [
            self._file(path, done)
            for done, path in enumerate(selection.query_files(self._checkpoint, micro_batch, self._partitions), 1)
        ]
        present = list(selection.part_files(self._checkpoint))
        for path in present:
            self._part(path, len(files) + len(self._parts))
        # After the query: their content about the clock is valid for any later micro-batch.
        return [*files, *self._parts.values(), *(self._file(path) for path in selection.root_files(self._checkpoint))]

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
        begun = selection.last_micro_batch(self._checkpoint, "offsets")
        return begun is not None and begun <= micro_batch + DEFAULT_TUNING.retained_micro_batches
