"""States of a checkpoint, written for another checkpoint, perhaps under another routing."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from streaming import coordinator, state
from streaming.coordinator import COORDINATOR, CoordinatorDelta, CoordinatorState
from streaming.operations.rebuild.resharding import reshard
from streaming.records.routing import Routing
from streaming.records.writing import KafkaRecord
from streaming.state import Shard, ShardDelta, ShardState
from streaming.storage.journal import Archive, Journal
from streaming.storage.store import Archives


class Layout(NamedTuple):
    """Routing of a checkpoint, and the archives of its states."""

    routing: Routing
    archives: Archives


class Renewed(NamedTuple):
    """A key of the new checkpoint.

    Attributes:
        parent: the parent topic.
        number: the shard.
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
    moved = _moved_parents(former.routing, later.routing)
    shards: defaultdict[str, list[ShardState]] = defaultdict(list)
    for parent, number, value in values:
        journal = Journal.open(value, former.archives.of(parent, number))
        archive = later.archives.of(parent, number)
        if parent == COORDINATOR:
            yield from _renewed_coordinator(number, journal, archive)
        elif parent in moved:
            shards[parent].append(_shard(journal, inner_multi=inner_multi))
        else:
            yield from _renewed(parent, number, _shard(journal, inner_multi=inner_multi), archive)
    for parent, states in shards.items():
        count = later.routing.shard_count(parent)
        made = reshard(states, (Shard(parent, number, later.routing, inner_multi) for number in range(count)))
        for number, shard in made.items():
            yield from _renewed(parent, number, shard, later.archives.of(parent, number))


def _moved_parents(former: Routing, later: Routing) -> set[str]:
    """Return the parents whose topics are in other shards."""
    return {
        parent
        for parent in {**former.shards, **later.shards}
        if former.shard_count(parent) != later.shard_count(parent)
        or (former.depth != later.depth and former.shard_count(parent) > 1)
    }


def _shard(journal: Journal, *, inner_multi: bool) -> ShardState:
    shard = ShardState(inner_multi=inner_multi)
    state.replay(shard, journal.changes())
    shard.complete_backfills()
    return shard


def _renewed_coordinator(number: int, former: Journal, archive: Archive) -> Iterator[Renewed]:
    """Yield a bucket of the coordinator as it is; repeated or needless alarms do no harm."""
    bucket = CoordinatorState()
    coordinator.replay(bucket, former.changes())
    value = coordinator.append(Journal.open(None, archive), bucket, CoordinatorDelta(bucket.clock)).stored
    if value is not None:
        yield Renewed(COORDINATOR, number, value, [])


def _renewed(parent: str, number: int, shard: ShardState, archive: Archive) -> Iterator[Renewed]:
    value = state.append(Journal.open(None, archive), shard, ShardDelta()).stored
    if value is not None:
        alarms = [coordinator.alarm(parent, number, time) for time in shard.alarms]
        yield Renewed(parent, number, value, [*alarms, coordinator.wake(parent, number, 0)])
