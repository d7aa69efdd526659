"""Restore of a checkpoint from a backup."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import orjson

from streaming.errors import BackupDamaged, BackupFailed, BackupRefused
from streaming.operations.backup.manifest import FOLDER, Manifest, Progress, copied, folders_of, settle
from streaming.storage import folder as folders
from streaming.storage.folder import IDENTITY

RESTORING: Final = ".restoring"
"""Suffix of a checkpoint that is being restored."""


class Restored(NamedTuple):
    """A restored checkpoint.

    Attributes:
        manifest: manifest of the backup.
        former: new folder of the replaced checkpoint; None if there was none.
    """

    manifest: Manifest
    former: Path | None


def is_occupied(checkpoint: Path) -> bool:
    """Return True if the folder of a checkpoint exists and is not empty."""
    return checkpoint.exists() and not (checkpoint.is_dir() and not any(checkpoint.iterdir()))


def restore(source: Path, checkpoint: Path, progress: Progress, *, replace: bool = False) -> Restored:
    """Restore a checkpoint after verifying the whole backup.

    Args:
        source: the backup.
        checkpoint: folder of the checkpoint.
        progress: called after each file.
        replace: rename an existing checkpoint.

    Raises:
        CheckpointUnusable: no checkpoint can be created there.
        BackupDamaged: the source is not a backup, or is damaged.
        BackupRefused: a checkpoint exists, and `replace` is not set.
        BackupFailed: a file cannot be read or written.
    """
    folders.check(str(checkpoint.parent), writes=True)
    manifest = Manifest.read(source)
    manifest.check(source, progress)
    occupied = is_occupied(checkpoint)
    if occupied and not replace:
        raise BackupRefused(
            f"{checkpoint} exists. Give --checkpoint for a new folder, or --replace, which renames this checkpoint."
        )
    unfinished = checkpoint.with_name(checkpoint.name + RESTORING)
    try:
        if unfinished.exists():
            shutil.rmtree(unfinished)
        for number, file in enumerate(manifest.files, 1):
            if copied(source / FOLDER / file.path, unfinished / file.path, file.path) != file:
                raise BackupDamaged(f"{source / FOLDER / file.path} changed while it was restored.")
            progress("files restored", number, len(manifest.files))
        _rename(unfinished / IDENTITY)
        settle(folders_of(unfinished))
        former = _put_aside(checkpoint) if occupied else None
        unfinished.rename(checkpoint)
        settle([checkpoint.parent])
    except OSError as error:
        raise BackupFailed(f"{source} cannot be restored to {checkpoint}: {error}.") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Restored(manifest, former)


def _rename(identity: Path) -> None:
    """Give a checkpoint a new id in Kafka.

    Under the old id the broker's markers are ahead of the copy, so new records would be skipped as already written.
    """
    fixed = orjson.loads(identity.read_bytes())
    identity.write_bytes(orjson.dumps({**fixed, "id": str(uuid4())}, option=orjson.OPT_INDENT_2))


def _put_aside(checkpoint: Path) -> Path:
    name = f"{checkpoint.name}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
    return checkpoint.rename(checkpoint.with_name(name))
