"""Transfer of states to a new checkpoint, perhaps under another routing, if the inputs lack their beginning."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from streaming import coordinator, state
from streaming.config import Settings
from streaming.coordinator import COORDINATOR, CoordinatorDelta, CoordinatorState
from streaming.errors import NotVerified, RebuildRefused
from streaming.kafka import facts
from streaming.kafka.facts import Offsets
from streaming.operations.checkpoint import JobCheckpoint
from streaming.operations.resharding import reshard
from streaming.operations.verify.comparison import Progress
from streaming.records.routing import Routing
from streaming.records.writing import KafkaRecord
from streaming.spark import notes, positions
from streaming.spark.checkpoint import CheckpointFiles
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.kafka_clients import Producer
from streaming.spark.states import StateReader
from streaming.state import Shard, ShardDelta, ShardState
from streaming.storage.archive import Folder
from streaming.storage.journal import Archive, Journal
from streaming.storage.store import ADOPTED, Archives
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
    read: dict[str, dict[int, int]] = {}
    try:
        micro_batch = former.micro_batches().committed
        for partition, offset in former.offsets(micro_batch).items():
            read.setdefault(partition.topic, {})[partition.number] = offset
    except NotVerified as error:
        raise RebuildRefused(str(error)) from None
    with KafkaAdmin(spark, settings) as admin:
        begins_at = _valid(settings, former, read, admin)
    log.info("taking over the states of %s after micro-batch %d", former.location, micro_batch)
    routing = Routing(settings.shards, settings.route_depth)
    layouts = Layout(former.routing, Folder(former.location)), Layout(routing, archives)

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
        notes.write_signer(new, settings.checkpoint, old.read(SIGNATURE))
    if old.exists(LIMITS):
        new.write(LIMITS, old.read(LIMITS))
    return positions.dump(begins_at)


def forget(settings: Settings) -> None:
    """Remove the transferred states after each key has read its state."""
    Folder(settings.checkpoint).remove_everywhere(ADOPTED)


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


class Layout(NamedTuple):
    """Routing of a checkpoint, and the archives of its states."""

    routing: Routing
    archives: Archives


class Renewed(NamedTuple):
    """A key of the new checkpoint.

    Attributes:
        value: its state bytes, whose parts are in the archive of the key.
        records: clock records by which the shard is visited once, and reminded of the times for which it waits.
    """

    parent: str
    number: int
    value: bytes
    records: list[KafkaRecord]


def renewed_states(
    values: Iterable[tuple[str, int, bytes]], former: Layout, later: Layout, *, inner_multi: bool
) -> Iterator[Renewed]:
    """Yield the states of a new checkpoint, and write their parts.

    Changes that several micro-batches carry out count as carried out; no updates are written for them.

    Args:
        values: parent, number and state bytes of each key of the former checkpoint.
        former: its layout.
        later: layout of the new checkpoint.
        inner_multi: `**` is allowed inside a pattern.

    Raises:
        StateCorrupted: a state is damaged.
    """
    one, other = former.routing, later.routing
    moved = {
        parent
        for parent in {**one.shards, **other.shards}
        if one.shard_count(parent) != other.shard_count(parent)
        or (one.depth != other.depth and one.shard_count(parent) > 1)
    }
    shards: defaultdict[str, list[ShardState]] = defaultdict(list)
    for parent, number, value in values:
        journal = Journal.open(value, former.archives.of(parent, number))
        archive = later.archives.of(parent, number)
        if parent == COORDINATOR:
            bucket = CoordinatorState()  # repeated or needless alarms do no harm
            coordinator.replay(bucket, journal.changes())
            renewed = coordinator.append(Journal.open(None, archive), bucket, CoordinatorDelta(bucket.clock)).stored
            if renewed is not None:
                yield Renewed(COORDINATOR, number, renewed, [])
        elif parent in moved:
            shards[parent].append(_shard(journal, inner_multi=inner_multi))
        else:
            yield from _renewed(parent, number, _shard(journal, inner_multi=inner_multi), archive)
    for parent, states in shards.items():
        count = later.routing.shard_count(parent)
        made = reshard(states, (Shard(parent, number, later.routing, inner_multi) for number in range(count)))
        for number, shard in made.items():
            yield from _renewed(parent, number, shard, later.archives.of(parent, number))


def _shard(journal: Journal, *, inner_multi: bool) -> ShardState:
    shard = ShardState(inner_multi=inner_multi)
    state.replay(shard, journal.changes())
    shard.complete_backfills()
    return shard


def _renewed(parent: str, number: int, shard: ShardState, archive: Archive) -> Iterator[Renewed]:
    value = state.append(Journal.open(None, archive), shard, ShardDelta()).stored
    if value is not None:
        alarms = [coordinator.alarm(parent, number, time) for time in shard.alarms]
        yield Renewed(parent, number, value, [*alarms, coordinator.wake(parent, number, 0)])
