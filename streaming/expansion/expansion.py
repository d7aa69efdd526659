"""The changes of the subscribers of the topics of one shard by a micro-batch of events.

`expand` is a pure function of the state and the events. It compares the relation before and after the whole
micro-batch, so each (client, topic) pair is evaluated once:

- new topics are matched against the stored patterns, removed topics as well (`lazy`, or `bulk` for many at once);
- changed clients are expanded over the topics that stay (`eager`), in steps if there are very many (`backfill`);
- topics beyond the quota of a client are taken out at the end (`quota`).
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from streaming.expansion.backfill import GroupBackfills, step_columns
from streaming.expansion.bulk import BulkUpdates
from streaming.expansion.compare import Announcer, Beyond, eager_updates, lazy_updates
from streaming.expansion.micro_batch import MicroBatch, apply_events
from streaming.expansion.quota import capped_updates
from streaming.records.columns import Event
from streaming.records.model import Source
from streaming.records.updates import Problem, Update, UpdateColumns
from streaming.state import Shard, ShardDelta, ShardState
from streaming.state.client import Ignored
from streaming.state.interests import Interests
from streaming.tuning import DEFAULT_TUNING, Tuning

Updates = list[Update] | UpdateColumns
"""Some updates: one by one, or by column."""


class Expansion(NamedTuple):
    """Delta for the state, entries for dead letters, and number of ignored entries by reason."""

    delta: ShardDelta
    problems: list[Problem]
    ignored: Counter[Ignored]


def expand(
    state: ShardState, events: Iterable[tuple[Source, Event]], shard: Shard, tuning: Tuning = DEFAULT_TUNING
) -> Generator[Updates, None, Expansion]:
    """Yield the updates of a micro-batch, at most one per subscriber and topic.

    The state is not changed, but its indexes may get built; the caller applies the returned delta. Events are valid,
    and come groups first, then subscriptions, topics, and the time, in offset order. Updates are computed lazily.
    """
    batch = apply_events(state, events, shard, tuning)
    announcer = Announcer(batch)
    renewed = _renewed(batch)
    steps: list[GroupBackfills] = []
    beyond: Beyond | None = {} if _may_exceed_quotas(batch) else None
    single: Iterator[Update] = lazy_updates(batch, announcer, renewed) if batch.topics.single else iter(())
    if batch.changed or state.backfills:
        single = chain(single, eager_updates(batch, announcer, steps, beyond))
    columns: Iterator[UpdateColumns] = chain.from_iterable(map(step_columns, steps))
    if beyond is not None:
        bulk = BulkUpdates(batch, renewed)
        single, columns = capped_updates(batch, announcer, single, bulk, beyond), chain(bulk.columns(), columns)
    else:
        state.counts = None  # which are no longer kept up to date
        if batch.topics.bulks:
            columns = chain(BulkUpdates(batch, renewed).columns(), columns)
    if announcer.needs_bitmaps:  # a bitmap differs by topic
        one_by_one = chain.from_iterable(map(UpdateColumns.one_by_one, columns))
        single, columns = map(announcer.with_bitmap, chain(single, one_by_one)), iter(())
    while chunk := list(islice(single, tuning.updates_per_chunk)):
        yield chunk
    yield from columns
    return Expansion(batch.delta, batch.problems, batch.ignored)


def _may_exceed_quotas(batch: MicroBatch) -> bool:
    """Return True if a client may have more topics than its quota, before or after a micro-batch."""
    count, delta = len(batch.state.topics), batch.delta
    return max(count, count - len(delta.removed) + len(delta.added)) > batch.view.lowest_share


def _renewed(batch: MicroBatch) -> Interests | None:
    """Return the interests of changed clients after a micro-batch, if new topics may match them; None for none."""
    if not (batch.changed and batch.delta.added):
        return None
    renewed = batch.state.new_interests()
    for key, change in batch.changed.items():
        renewed.add(key, change.after)
    return renewed
