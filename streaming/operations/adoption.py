"""Transfer of states to a new checkpoint, perhaps under another routing, if the inputs lack their beginning."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, NamedTuple

from streaming import coordinator
from streaming.config import Settings
from streaming.coordinator import COORDINATOR, CoordinatorDelta, CoordinatorState
from streaming.errors import NotVerified, RebuildRefused
from streaming.kafka import facts
from streaming.kafka.facts import Offsets
from streaming.operations.checkpoint import JobCheckpoint, Progress
from streaming.records.record import KafkaRecord
from streaming.records.routing import Routing
from streaming.records.subscribers import ClientKey
from streaming.spark import notes, positions
from streaming.spark.checkpoint import CheckpointFiles
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.kafka_clients import Producer
from streaming.spark.states import StateReader
from streaming.state import Shard, ShardDelta, ShardState, append, replay
from streaming.state.blocks import Block
from streaming.state.client import Client, LastRequest, Mode, Subscription
from streaming.state.delta import carried_out
from streaming.state.notes import Repeated
from streaming.storage.archive import Folder
from streaming.storage.journal import Archive, Journal
from streaming.storage.store import ADOPTED, Archives
from streaming.worker.limits_note import LIMITS
from streaming.worker.signature import SIGNATURE

log = logging.getLogger("reexpand")

RequestPlace = tuple[int, int]
"""Partition and position of a request in the subscription stream."""

Numbers = Mapping[RequestPlace, int]
"""Number of each request that something remembers, as `Block.order`."""


def check(settings: Settings, former: JobCheckpoint) -> None:
    """Raise `RebuildRefused` if a former checkpoint has no states, or other settings."""
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

    Changes that several micro-batches carry out count as carried out; no updates are written for them. `values` are
    parent, number and state bytes of each key of the former checkpoint.

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
    replay(shard, journal.changes())
    shard.apply(carried_out(shard.backfills))
    return shard


def _renewed(parent: str, number: int, shard: ShardState, archive: Archive) -> Iterator[Renewed]:
    value = append(Journal.open(None, archive), shard, ShardDelta()).stored
    if value is not None:
        alarms = [coordinator.alarm(parent, number, time) for time in shard.alarms]
        yield Renewed(parent, number, value, [*alarms, coordinator.wake(parent, number, 0)])


def reshard(former: Sequence[ShardState], shards: Iterable[Shard]) -> dict[int, ShardState]:
    """Return the states of a parent's shards under another routing, by number; shards without state are left out.

    A change that several micro-batches carry out counts as carried out. Topics of one shard keep their order of
    creation, after the topics of the previous shard, because no order between shards is known.
    """
    whole = _whole(former)
    renewed = {shard.number: _part(whole, shard) for shard in shards}
    return {number: state for number, state in renewed.items() if state}


def _whole(former: Sequence[ShardState]) -> ShardDelta:
    """Return all that the shards hold, as one change."""
    numbers = _numbers(former)
    is_one = len(former) == 1  # of several shards none refuses a request, so their groups have no logs
    clients = dict.fromkeys(key for state in former for key in state.clients)
    return ShardDelta(
        added={topic: metadata for state in former for topic, metadata in state.topics.items()},
        groups={name: group for state in former for name, group in state.groups.items()},
        clients={
            key: _merged_client(
                [(state.clients[key], state.last_requests.get(key)) for state in former if key in state.clients],
                numbers,
            )
            for key in clients
        },
        last_requests={
            key: _renumbered(last, numbers) for state in former for key, last in state.last_requests.items()
        },
        selectors={name: selectors for state in former for name, selectors in state.selectors.items()},
        latest_order=len(numbers),
        notes={key: notes for state in former for key, notes in state.notes.items() if key.client_id or is_one},
        repeated={
            at: _renumbered_part(each, state, numbers)
            for state in former
            for at, each in state.repeated.items()
            if at[0].client_id or is_one
        },
    )


def _numbers(former: Sequence[ShardState]) -> Numbers:
    """Return numbers for the requests, in the order of each shard.

    A shard counts the requests that it receives while it has something to keep, so shards count differently. If they
    disagree about requests in different partitions, which have no order, the positions decide.
    """
    followers: dict[RequestPlace, dict[RequestPlace, None]] = {}
    for state in former:
        orders = dict(_orders(state))
        ordered = sorted(orders, key=lambda place: (orders[place], place))
        for place in ordered:
            followers.setdefault(place, {})
        for before, after in pairwise(ordered):
            followers[after][before] = None
    try:
        places = list(TopologicalSorter(followers).static_order())
    except CycleError:
        places = sorted(followers, key=lambda place: place[::-1])
    return {place: number for number, place in enumerate(places, 1)}


def _orders(state: ShardState) -> Iterator[tuple[RequestPlace, float]]:
    """Yield place and number of each request that something in a shard remembers."""
    judged = [(part, part.judged) for part in state.repeated.values() if part.judged is not None]
    yield from (((part.place.partition, part.place.position), each.order) for part, each in judged)
    formers = [
        (ClientKey(part.request.group, part.request.client_id), each.former)
        for part, each in judged
        if each.former is not None
    ]
    for key, client in [*state.clients.items(), *formers]:
        last = state.last_requests.get(key)
        for subscription in {client.literal, client.wildcard}:
            yield from (((block.partition, block.position), block.order) for block in subscription.blocks)
            if subscription.everything is not None:
                yield _place_of_everything(subscription, last), subscription.everything
        if last is not None:
            yield from (((last.partition, position), order) for position, order in map(last.began, Mode) if order)


def _place_of_everything(subscription: Subscription, last: LastRequest | None) -> RequestPlace:
    return 0 if last is None else last.partition, subscription.everything_at


def _merged_client(parts: Sequence[tuple[Client, LastRequest | None]], numbers: Numbers) -> Client:
    literal, wildcard = (
        _merged([client.subscription(mode) for client, _ in parts], parts[0][1], numbers) for mode in Mode
    )
    return Client.of(literal, wildcard)


def _merged(parts: Sequence[Subscription], last: LastRequest | None, numbers: Numbers) -> Subscription:
    first = parts[0]
    found = dict[tuple[object, ...], tuple[Block, dict[str, None]]]()
    for block in (block for part in parts for block in part.blocks):
        _, entries = found.setdefault((block.partition, block.position, block.notation), (block, {}))
        entries.update(dict.fromkeys(block.entries))
    blocks = (
        block._replace(order=numbers[block.partition, block.position], entries=tuple(entries))
        for block, entries in found.values()
    )
    everything = None if first.everything is None else numbers[_place_of_everything(first, last)]
    return first._replace(blocks=tuple(sorted(blocks, key=lambda block: block.order)), everything=everything)


def _renumbered(last: LastRequest, numbers: Numbers) -> LastRequest:
    literal, wildcard = (numbers[last.partition, at] if order else 0 for at, order in map(last.began, Mode))
    return last._replace(literal_order=literal, wildcard_order=wildcard)


def _renumbered_part(part: Repeated, state: ShardState, numbers: Numbers) -> Repeated:
    """Return a part of an end as it is, or a request in the log of a group with its new number."""
    place, request, judged = part
    if judged is None:
        return part
    last = state.last_requests.get(ClientKey(request.group, request.client_id))
    former = None if judged.former is None else _merged_client([(judged.former, last)], numbers)
    return part._replace(judged=judged._replace(order=numbers[place.partition, place.position], former=former))


def _part(whole: ShardDelta, shard: Shard) -> ShardState:
    def relevant(client: Client) -> Client:
        literal = _relevant(client.literal, shard, Mode.LITERAL)
        shared = client.wildcard is client.literal
        return Client.of(literal, literal if shared else _relevant(client.wildcard, shard, Mode.WILDCARD))

    place = shard.routing.shard_of
    topics = {topic: each for topic, each in whole.added.items() if place(shard.parent, topic) == shard.number}
    deadlines = sorted({each.deadline for each in topics.values() if each.deadline is not None})
    state = ShardState(inner_multi=shard.inner_multi)
    state.apply(
        ShardDelta(
            added=topics,
            groups=whole.groups,
            clients={key: client and relevant(client) for key, client in whole.clients.items()},
            last_requests=whole.last_requests,
            selectors=whole.selectors,
            alarms=dict.fromkeys(deadlines, True),
            latest_order=whole.latest_order,
            notes=whole.notes,
            repeated=whole.repeated,
        )
    )
    return state


def _relevant(subscription: Subscription, shard: Shard, mode: Mode) -> Subscription:
    """Return a subscription without entries that cannot touch the shard."""
    relevant = shard.rules(mode).relevant
    if relevant is None:
        return subscription
    blocks = (
        block._replace(entries=tuple(entry for entry in block.entries if relevant(entry, block.notation)))
        for block in subscription.blocks
    )
    return subscription._replace(blocks=tuple(block for block in blocks if block.entries))
