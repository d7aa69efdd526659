"""Removal of input records that a backup covers."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from streaming.errors import BackupRefused, NotVerified
from streaming.kafka import topics
from streaming.kafka.reader import Partition, TopicReader
from streaming.operations.backup import FOLDER, Manifest
from streaming.operations.checkpoint import JobCheckpoint, Progress
from streaming.storage import folder as folders


class InputRemoval(NamedTuple):
    """Records of a partition: offset up to which they are removed, number of removed ones, and number of all."""

    partition: Partition
    end: int
    records: int
    size: int


def plan(
    bootstrap_servers: str, options: Mapping[str, str], checkpoint: str, backup: Path, progress: Progress
) -> list[InputRemoval]:
    """Return the records that a checkpoint's job had read when its backup was made; report each file of the backup.

    Raises:
        CheckpointUnusable: the checkpoint is not a folder, or cannot be read.
        BackupDamaged: the backup is incomplete or damaged.
        BackupRefused: it is of another checkpoint, or of other Kafka topics.
        TopicsUnusable: Kafka does not answer.
        TopicUnreadable: the same, or an input does not exist.
    """
    folders.check(checkpoint, writes=False)
    manifest = Manifest.read(backup)
    manifest.check(backup, progress)
    copy, live = JobCheckpoint(str(backup / FOLDER)), JobCheckpoint(checkpoint)
    try:
        if copy.id is None or copy.id != live.id:
            raise BackupRefused(
                f"{backup} is not a backup of {checkpoint}, but of {manifest.checkpoint}, or of a checkpoint restored "
                "since. Make a new backup with `reexpand backup`."
            )
        read = copy.offsets(manifest.micro_batch)
        noted = {topic.name: topic.id for topic in copy.noted.values() if topic.name in copy.topics}
    except NotVerified as error:
        raise BackupRefused(str(error)) from None
    found = topics.ids(bootstrap_servers, copy.topics, client_options=options)
    others = [name for name, topic_id in noted.items() if found[name] != topic_id]
    if others or len(noted) < len(copy.topics):
        raise BackupRefused(
            f"the backup lacks {', '.join(others or copy.topics)}: the topic was created again since then, or "
            "the backup is of an older release. Make a new backup with `reexpand backup`."
        )
    with TopicReader(bootstrap_servers, options) as reader:
        spans = reader.spans(list(copy.topics))
    ends = {partition: min(read.get(partition, 0), span.end) for partition, span in spans.items()}
    return [
        InputRemoval(partition, ends[partition], max(0, ends[partition] - span.start), span.end - span.start)
        for partition, span in sorted(spans.items())
    ]


def remove(bootstrap_servers: str, options: Mapping[str, str], removals: list[InputRemoval]) -> None:
    """Remove the records; raise `TopicsUnusable` if Kafka does not. Idempotent."""
    ends = {each.partition: each.end for each in removals if each.records}
    if ends:
        topics.remove_records(bootstrap_servers, ends, client_options=options)
