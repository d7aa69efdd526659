"""Transfer of states to a new checkpoint, if the inputs lack their beginning."""

import logging
from collections.abc import Iterator
from typing import Any

from streaming.config import Settings
from streaming.errors import NotVerified, RebuildRefused
from streaming.kafka import facts
from streaming.kafka.facts import Offsets
from streaming.operations.rebuild.renewal import Layout, renewed_states
from streaming.operations.verify.progress import JobCheckpoint
from streaming.operations.verify.witnesses import Progress
from streaming.records.routing import Routing
from streaming.records.writing import KafkaRecord
from streaming.spark import origin, positions
from streaming.spark.checkpoint import CheckpointFiles
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.producer import Producer
from streaming.spark.states import StateReader
from streaming.storage.archive import Folder
from streaming.storage.store import ADOPTED
from streaming.worker.limits_note import LIMITS
from streaming.worker.signature import SIGNATURE

log = logging.getLogger("reexpand")


def check(settings: Settings, former: JobCheckpoint) -> None:
    """Check that a new checkpoint can use the states of a former checkpoint.

    Raises:
        RebuildRefused: it has no states, or other settings.
    """
    if not former.has_state():
        raise RebuildRefused(
            f"{former.location} has committed no micro-batch, so it has no state. Run the same command without "
            "--from-state: it reads the inputs from their beginning."
        )
    if former.topics != settings.inputs:
        raise RebuildRefused(
            f"the inputs of {former.location} are {', '.join(former.topics)}, not {', '.join(settings.inputs)}. "
            "Its state belongs to its own inputs: set their names back."
        )
    if former.inner_multi and not settings.allow_inner_multi:
        raise RebuildRefused(
            f"{former.location} allows ** inside a pattern, and may have such patterns. Set allow_inner_multi."
        )


def adopt(spark: Any, settings: Settings, former: JobCheckpoint, progress: Progress) -> str:
    """Write the states of a former checkpoint to a new checkpoint; return their offsets as JSON.

    Idempotent: the files of an interrupted attempt are removed first.

    Args:
        spark: session from `service.started`.
        settings: settings of the job, with the new checkpoint.
        former: the former checkpoint, whose job has ended.
        progress: called with the progress.

    Raises:
        RebuildRefused: the new checkpoint cannot use the states.
        TopicReplaced: an input was deleted or created again.
        KafkaUnavailable: no broker answers.
        StateError: a state cannot be read.
        NotWritten: Kafka rejected a clock record.
    """
    archives = Folder(settings.checkpoint)
    problem = archives.problem()
    if problem is not None:
        raise RebuildRefused(f"--from-state needs Python access to {settings.checkpoint}: {problem}")
    archives.clear()
    try:
        micro_batch = former.micro_batches().committed
        read = _by_topic(former, micro_batch)
    except NotVerified as error:
        raise RebuildRefused(str(error)) from None
    with KafkaAdmin(spark, settings) as admin:
        begins_at = _valid(settings, former, read, admin)
    log.info("taking over the states of %s after micro-batch %d", former.location, micro_batch)
    layouts = Layout(former.routing, Folder(former.location)), Layout(_routing(settings), archives)

    def records() -> Iterator[KafkaRecord]:
        values = StateReader(spark, former.location).values(micro_batch)
        for count, key in enumerate(renewed_states(values, *layouts, inner_multi=settings.allow_inner_multi), 1):
            archives.of(key.parent, key.number).write(ADOPTED, key.value)
            yield from key.records
            progress("states", count, None)

    with Producer(spark, settings) as producer:
        producer.send_all(settings.clock, records())
    # The inputs may have unread records that the former job wrote to itself.
    old, new = (CheckpointFiles(spark, location) for location in (former.location, settings.checkpoint))
    if old.exists(SIGNATURE):
        origin.write(new, settings.checkpoint, old.read(SIGNATURE))
    if old.exists(LIMITS):
        new.write(LIMITS, old.read(LIMITS))
    return positions.dump(begins_at)


def forget(settings: Settings) -> None:
    """Remove the transferred states after each key has read its state."""
    Folder(settings.checkpoint).remove_everywhere(ADOPTED)


def _routing(settings: Settings) -> Routing:
    return Routing(settings.shards, settings.route_depth)


def _by_topic(former: JobCheckpoint, micro_batch: int) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for partition, offset in former.offsets(micro_batch).items():
        found.setdefault(partition.topic, {})[partition.number] = offset
    return found


def _valid(settings: Settings, former: JobCheckpoint, read: Offsets, admin: KafkaAdmin) -> Offsets:
    """Return the offsets from which the new job continues.

    If the clock topic has lost them, the job starts at its end, because the shards write their alarms again.
    """
    present = admin.names()
    inputs = facts.events(settings)
    noted = {role: topic for role, topic in former.noted.items() if topic.name in inputs}
    found = admin.ids([name for name in inputs if name in present])
    facts.check_identity(settings, noted, found, [name for name in inputs if name not in present])
    if settings.clock not in present:
        raise RebuildRefused(
            f"the topic {settings.clock} does not exist. Start the job once on {former.location}: it creates the topic."
        )
    beginnings, ends = (spans[settings.clock] for spans in admin.spans([settings.clock]))
    clock = read.get(settings.clock, {})
    is_there = all(beginnings.get(number, 0) <= at <= ends.get(number, 0) for number, at in clock.items())
    return {**read, settings.clock: clock if is_there else ends}
