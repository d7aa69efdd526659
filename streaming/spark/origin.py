"""The secret in a checkpoint by which a job recognizes its own records."""

import secrets

from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import CheckpointMismatch
from streaming.spark import positions
from streaming.spark.checkpoint import CheckpointFiles
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.storage.folder import QUERY, local_path, make_private, write_private
from streaming.worker.signature import SIGNATURE, Signer

_SECRET_BYTES = 32


def signer(spark: SparkSession, settings: Settings, admin: KafkaAdmin) -> Signer:
    """Return the signer of a checkpoint, and create it if there is none.

    A checkpoint that has begun without a signer was written by a release without signatures. Then the records that are
    in the inputs at this moment are accepted unsigned.

    Raises:
        CheckpointMismatch: the file of the signer cannot be read.
        KafkaUnavailable: no broker answers.
    """
    files = CheckpointFiles(spark, settings.checkpoint)
    if files.exists(SIGNATURE):
        return _read(files, settings)
    has_begun = bool(files.numbers(f"{QUERY}/offsets"))
    unsigned = admin.ends([settings.group_events, settings.subscription_events]) if has_begun else {}
    made = Signer(secrets.token_bytes(_SECRET_BYTES), unsigned)
    fields = made.secret.hex().encode(), positions.dump(unsigned).encode()
    write(files, settings.checkpoint, b'{"secret":"%b","unsigned":%b}' % fields)
    return made


def write(files: CheckpointFiles, checkpoint: str, content: bytes) -> None:
    """Write the file of the signer, which holds a secret; on a local file system only its owner may read it.

    Args:
        files: files of the checkpoint.
        checkpoint: location of the checkpoint.
        content: content of the file.
    """
    folder = local_path(checkpoint)
    if folder is None:
        files.write(SIGNATURE, content)
    else:
        write_private(folder / SIGNATURE, content)


def _read(files: CheckpointFiles, settings: Settings) -> Signer:
    folder = local_path(settings.checkpoint)
    if folder is not None:
        make_private(folder / SIGNATURE)
    try:
        return Signer.parse(files.read(SIGNATURE))
    except (OSError, ValueError) as error:
        raise CheckpointMismatch(
            f"{settings.checkpoint.rstrip('/')}/{SIGNATURE} cannot be read: {error}. Restore the file from a copy of "
            "the checkpoint, or delete it while the job is stopped: the job then makes a new one."
        ) from None
