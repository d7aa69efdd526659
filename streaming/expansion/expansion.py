"""The heart: how a micro-batch of events changes the subscribers of the topics of one shard.

`expand` is a pure function of the state and the events. It compares the relation before and after the whole
micro-batch, so each (client, topic) pair is judged once, whatever happened to it in between:

- new topics are matched against the stored patterns, removed topics as well (`lazy`, or `bulk` for many at once);
- changed clients are expanded over the topics that stay (`eager`), in steps where these are very many (`backfill`);
- topics beyond the quota of a client are taken out at the end (`quota`).
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from streaming.events.columns import Event
from streaming.events.model import Source
from streaming.expansion.announce import Announcer
from streaming.expansion.backfill import backfill_updates, due
from streaming.expansion.bulk import BulkUpdates
from streaming.expansion.eager import eager_updates
from streaming.expansion.lazy import lazy_updates
from streaming.expansion.micro_batch import apply_events
from streaming.expansion.quota import capped_updates
from streaming.state import Shard, ShardDelta, ShardState
from streaming.subscription.client import Ignored
from streaming.tuning import DEFAULT_TUNING, Tuning
from streaming.updates.model import Problem, Update, UpdateColumns

Updates = list[Update] | UpdateColumns
"""Some updates: one by one, or by column."""


class Expansion(NamedTuple):
    """Result of a micro-batch on a shard.

    Attributes:
        delta: to be applied to the state.
        problems: entries for dead letters.
        ignored: number of ignored entries by reason.
    """

    delta: ShardDelta
    problems: list[Problem]
    ignored: Counter[Ignored]


def expand(
    state: ShardState, events: Iterable[tuple[Source, Event]], shard: Shard, tuning: Tuning = DEFAULT_TUNING
) -> Generator[Updates, None, Expansion]:
    """Compute the changes of a micro-batch; the caller applies the delta.

    Args:
        state: the shard before the micro-batch; not changed, but its indexes may get built.
        events: valid ones; groups first, then subscriptions, topics, and the time, in offset order.
        shard: its place.
        tuning: sizes and thresholds.

    Yields:
        The updates, at most one for each subscriber and topic. They are found while they are read.

    Returns:
        The delta, the problems and the ignored entries.
    """
    batch = apply_events(state, events, shard, tuning)
    announcer = Announcer(batch)
    renewed = state.new_interests()
    if batch.delta.added:
        for key, change in batch.changed.items():
            renewed.add(key, change.after)
    backfills = due(batch)
    bulk = BulkUpdates(batch, renewed)
    judged = chain(lazy_updates(batch, announcer, renewed), eager_updates(batch, announcer, backfills))
    single = capped_updates(batch, announcer, judged, bulk)
    columns: Iterator[UpdateColumns] = chain(bulk.columns(), backfill_updates(batch, backfills))
    if announcer.needs_bitmaps:  # a bitmap differs by topic
        one_by_one = chain.from_iterable(map(UpdateColumns.one_by_one, columns))
        single, columns = map(announcer.with_bitmap, chain(single, one_by_one)), iter(())
    while chunk := list(islice(single, tuning.updates_per_chunk)):
        yield chunk
    yield from columns
    return Expansion(batch.delta, batch.problems, batch.ignored)
