"""`reexpand verify`: compare a job's inputs, state and updates, and repair the updates on request."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from streaming.config import Settings
from streaming.kafka.reader import TopicReader
from streaming.operations.checkpoint import JobCheckpoint
from streaming.operations.verify.findings import Findings
from streaming.operations.verify.repair import Corrector, merged
from streaming.operations.verify.replay import Rules
from streaming.operations.verify.verifier import Look, look
from streaming.operations.verify.witnesses import JobView, Progress, States
from streaming.spark import states
from streaming.storage import folder as folders
from streaming.worker.bounds import bounds_of
from streaming.worker.limits_note import Limits

_ROUNDS: Final = 5
"""Attempts at a repair: a running job may change the rows in between."""

log = logging.getLogger("reexpand")


@dataclass(frozen=True, slots=True)
class Choices:
    """Options of a verification.

    Attributes:
        parents: parents to compare; empty: all.
        inputs: also process the inputs.
        repair: write corrections to the updates topic.
        client: Kafka client options of librdkafka.
    """

    parents: frozenset[str] = frozenset()
    inputs: bool = True
    repair: bool = False
    client: Mapping[str, str] = field(default_factory=dict)


def verify(
    settings: Settings,
    options: Choices,
    progress: Progress,
    reading: Callable[[Settings], AbstractContextManager[States]] = states.reading,
) -> Findings:
    """Compare inputs, state and updates of a job, which may run meanwhile.

    Args:
        settings: address of Kafka, checkpoint, and names of the output topics; for checkpoints of earlier releases
            without `limits.json` also the limits of input records. All else is in the checkpoint.
        options: options of the verification.
        progress: called with the progress.
        reading: opens the states of the checkpoint; by default in a new Spark session.

    Raises:
        CheckpointUnusable: the checkpoint is not a folder, or cannot be read.
        NotVerified: the checkpoint cannot be read, or Kafka rejects a correction.
        TopicUnreadable: Kafka does not answer, or lacks a topic.
        SparkUnavailable: Spark, which reads the state, does not start.
    """
    folders.check(settings.checkpoint, writes=False)
    checkpoint = JobCheckpoint(settings.checkpoint)
    given = Limits(bounds_of(settings), settings.cap_requests)
    rules = Rules(
        checkpoint.topics,
        checkpoint.routing,
        checkpoint.inner_multi,
        options.parents,
        checkpoint.limits or (given,),
        checkpoint.signer,
        {each.place: each.exempt for each in checkpoint.quarantine.decisions},
        checkpoint.partitions,
    )
    checkpoint.micro_batches()  # raises early if there is nothing to verify
    with (
        TopicReader(settings.bootstrap_servers, options.client) as reader,
        TemporaryDirectory(prefix="reexpand-verify-") as temporary,
    ):
        reader.spans([*rules.topics, settings.updates])  # raises early if a topic is missing
        progress("the state: Spark starts", 0, None)
        with reading(settings) as stored:
            job = JobView(checkpoint, stored, reader, settings.updates, settings.dead_letters, rules)
            folder = Path(temporary)
            found = _confirmed(job, look(job, folder, progress, inputs=options.inputs), folder, progress)
            if options.repair and found.findings.repairable:
                corrector = Corrector(job, settings.bootstrap_servers, options.client, folder)
                found = _repaired(job, found, corrector, folder, progress)
            return found.findings


def _confirmed(job: JobView, first: Look, folder: Path, progress: Progress) -> Look:
    """Compare again if the job has continued, to drop differences that were in flight."""
    went_on = job.checkpoint.micro_batches() != first.moment.batches
    if not (first.findings.repairable and went_on):
        return first
    return merged(first, look(job, folder, progress, inputs=False, doubted=first.findings.doubted), set())


def _repaired(job: JobView, found: Look, corrector: Corrector, folder: Path, progress: Progress) -> Look:
    """Write corrections and compare again, until nothing is left to correct."""
    written: set[bytes] = set()
    first, latest = found, found
    for attempt in range(_ROUNDS):
        corrected = corrector.correct(latest)
        written |= corrected
        log.info("round %d: %d rows corrected in %s", attempt + 1, len(corrected), job.updates)
        again = look(job, folder, progress, inputs=False, doubted=first.findings.doubted)
        latest = merged(first, again, written)
        if not latest.findings.repairable:
            break
    return latest
