"""Notes in the checkpoint: limits and settings of the last start, the job's signature, and the state of a rebuild."""

import logging
import secrets
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import CheckpointUnfinished
from streaming.kafka.facts import Offsets
from streaming.spark import checkpoint, kafka_admin, positions
from streaming.spark.checkpoint import Agreement, CheckpointFiles, read_note
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.storage.folder import QUERY, local_path, make_private, write_private
from streaming.worker.bounds import bounds_of
from streaming.worker.limits_note import LIMITS, Limits, dump, parse
from streaming.worker.signature import SIGNATURE, Signer

log = logging.getLogger("reexpand")

_RESTORE: Final = "Restore the file from a copy of the checkpoint, or delete it while the job is stopped: the job then"

PLANNED: Final = "planned.json"
"""File of the checkpoint with the settings with which a micro-batch was planned."""

_RESTORE_PLANNED = (
    "Restore it from a copy of the checkpoint, or delete it while the job is stopped, if the settings are those of the "
    "last start."
)

DECIDING: Final = (
    "max_value_bytes",
    "max_requests",
    "max_entries",
    "max_name_bytes",
    "client_timeout_ms",
    "cap_requests",
)
"""Settings that decide results, and may differ from start to start."""

_SECRET_BYTES = 32

REBUILD: Final = "rebuild.json"
"""File of a checkpoint that was made or replaced by a rebuild."""


def note_limits(spark: SparkSession, settings: Settings, adopted: Offsets | None = None) -> None:
    """Note the limits in the checkpoint, unless its latest are the same.

    A checkpoint that a former release has begun has no note: its former limits are assumed to be the present limits.
    `adopted` are the positions that the states have read with which a new checkpoint begins. Raises
    `CheckpointMismatch` if the note cannot be read.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    known = read_note(files, settings.checkpoint, LIMITS, parse, f"{_RESTORE} writes a new one.") or ()
    limits = Limits(bounds_of(settings), settings.cap_requests)
    if known and known[-1]._replace(since={}) == limits:
        return
    since = {} if not known else checkpoint.progress(spark, settings).read or adopted or {}
    former = [each for each in known if each.since != since]  # under these, no record was read
    files.write(LIMITS, dump([*former, limits._replace(since=since)]))


class Terms(NamedTuple):
    """Settings with which a query starts, and the micro-batch after which the start's settings apply if not at once."""

    settings: Settings
    through: int | None = None


def settings_of_plan(spark: SparkSession, settings: Settings, admin: KafkaAdmin, agreed: Agreement) -> Terms:
    """Return the settings with which the query starts, and note those with which it plans.

    They determine the records of a micro-batch. A micro-batch that is written in part and not committed must be
    repeated with the same settings: written records are skipped, and the state would follow other rules.

    Raises:
        CheckpointMismatch: the note cannot be read.
        KafkaUnavailable: no broker answers.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    wanted = {name: getattr(settings, name) for name in DECIDING}
    noted = read_note(files, settings.checkpoint, PLANNED, _deciding, _RESTORE_PLANNED)
    if noted == wanted:
        return Terms(settings)
    progress = checkpoint.progress(spark, settings)
    number = progress.micro_batches - 1
    if noted and progress.planned != progress.read:
        written = kafka_admin.written(settings, admin, agreed.partition_names)
        if written is None or any(count > number for count in written):
            log.warning(
                "micro-batch %d is written in part, with %s: it is repeated with that first",
                number,
                ", ".join(f"{name}={noted[name]}" for name in DECIDING if noted[name] != wanted[name]),
            )
            return Terms(settings.model_copy(update=noted), number)
    files.write(PLANNED, orjson.dumps(wanted, option=orjson.OPT_INDENT_2))
    return Terms(settings)


def _deciding(content: bytes) -> dict[str, Any]:
    found = orjson.loads(content)
    return {name: found[name] for name in DECIDING}


def signer(spark: SparkSession, settings: Settings, admin: KafkaAdmin) -> Signer:
    """Return the signer of a checkpoint, and create it if there is none.

    A checkpoint that has begun without a signer was written by a release without signatures. Then the records that are
    in the inputs at this moment are accepted unsigned.

    Raises:
        CheckpointMismatch: the file of the signer cannot be read.
        KafkaUnavailable: no broker answers.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    folder = local_path(settings.checkpoint)
    if folder is not None and files.exists(SIGNATURE):
        make_private(folder / SIGNATURE)
    noted = read_note(files, settings.checkpoint, SIGNATURE, Signer.parse, f"{_RESTORE} makes a new one.")
    if noted is not None:
        return noted
    has_begun = bool(files.numbers(f"{QUERY}/offsets"))
    unsigned = admin.ends([settings.group_events, settings.subscription_events]) if has_begun else {}
    made = Signer(secrets.token_bytes(_SECRET_BYTES), unsigned)
    fields = made.secret.hex().encode(), positions.dump(unsigned).encode()
    write_signer(files, settings.checkpoint, b'{"secret":"%b","unsigned":%b}' % fields)
    return made


def write_signer(files: CheckpointFiles, checkpoint: str, content: bytes) -> None:
    """Write the file of the signer, which holds a secret; on a local file system only its owner may read it."""
    folder = local_path(checkpoint)
    if folder is None:
        files.write(SIGNATURE, content)
    else:
        write_private(folder / SIGNATURE, content)


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

    @staticmethod
    def read(files: CheckpointFiles, checkpoint: str) -> "RebuildNote | None":
        """Return the note of a checkpoint, if any; raise `CheckpointMismatch`."""

        def parse(content: bytes) -> RebuildNote:
            found = orjson.loads(content)
            return RebuildNote(**{**found, "stage": Stage(found["stage"])})

        remedy = "Delete the checkpoint, and rebuild it with `reexpand rebuild`."
        return read_note(files, checkpoint, REBUILD, parse, remedy)

    def write(self, files: CheckpointFiles) -> None:
        """Write the note."""
        files.write(REBUILD, orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))


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
