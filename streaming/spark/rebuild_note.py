"""The note of a rebuild in a checkpoint: how far it has come, and so whether a job may start."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, Self

import orjson
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import CheckpointMismatch, CheckpointUnfinished
from streaming.spark.checkpoint import CheckpointFiles

NOTE: Final = "rebuild.json"
"""File of a checkpoint that was made or replaced by a rebuild."""


class Stage(StrEnum):
    """Stage of a rebuild.

    Attributes:
        ADOPTING: states are copied from the former to the new checkpoint.
        READING: the inputs are read, and no updates are written.
        CORRECTING: differences are written to the updates topic.
        COMPLETE: the job may start.
        REPLACED: the note is in the former checkpoint, and names its successor.
    """

    ADOPTING = "adopting"
    READING = "reading"
    CORRECTING = "correcting"
    COMPLETE = "complete"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class RebuildNote:
    """Content of the note.

    Attributes:
        updates: updates topic for which the checkpoint is made.
        begins_at: positions that the states have read with which it begins, as JSON; empty without such states.
        added: number of ADDs that the rebuild wrote.
        removed: number of REMOVEs that it wrote.
        rows: number of rows that hold.
        seconds: time that it took.
        successor: checkpoint that replaces it; empty if none does.
    """

    stage: Stage
    updates: str = ""
    begins_at: str = ""
    added: int = 0
    removed: int = 0
    rows: int = 0
    seconds: float = 0.0
    successor: str = ""

    @classmethod
    def read(cls, files: CheckpointFiles, checkpoint: str) -> Self | None:
        """Return the note of a checkpoint; None if there is none.

        Raises:
            CheckpointMismatch: it cannot be read.
        """
        if not files.exists(NOTE):
            return None
        try:
            found = orjson.loads(files.read(NOTE))
            return cls(**{**found, "stage": Stage(found["stage"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointMismatch(
                f"{checkpoint.rstrip('/')}/{NOTE} cannot be read: {error}. Delete the checkpoint, and rebuild it with "
                "`reexpand rebuild`."
            ) from None

    def write(self, files: CheckpointFiles) -> None:
        """Write the note."""
        files.write(NOTE, orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))


def check_usable(spark: SparkSession, settings: Settings) -> None:
    """Check that a job may start on a checkpoint.

    Raises:
        CheckpointUnfinished: it is being rebuilt, or was replaced.
        CheckpointMismatch: its note cannot be read.
    """
    note = RebuildNote.read(CheckpointFiles(spark, settings.checkpoint), settings.checkpoint)
    if note is None or note.stage is Stage.COMPLETE:
        return
    if note.stage is Stage.REPLACED:
        raise CheckpointUnfinished(
            f"the checkpoint {settings.checkpoint} was replaced by {note.successor}, which `reexpand rebuild` has made "
            f"for the same updates topic. Start the job with --checkpoint {note.successor}."
        )
    raise CheckpointUnfinished(
        f"the rebuild of the checkpoint {settings.checkpoint} is not complete (stage: {note.stage}). "
        "Run the same `reexpand rebuild` again: it goes on."
    )
