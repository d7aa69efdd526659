"""Wide changes, in slices: what one client asks for must not keep all others waiting.

A request may be about millions of topics. Where the policy of its group lets everybody receive, each topic can be
judged by itself, so a micro-batch of a shard goes through no more than `BACKFILL_TOPICS` of them. Topics that come
meanwhile follow the new request at once; topics that are still to be gone through follow the former one. The shard
writes itself a record to be woken by, and goes on with the next micro-batch. Whatever else happens to the client or
its group carries out at once what is left.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from streaming.events.columns import SourceColumns
from streaming.expansion import quota
from streaming.state.state import Backfill
from streaming.subscription.interests import Interests
from streaming.subscription.subscribers import ClientKey
from streaming.updates.model import Op, UpdateColumns

if TYPE_CHECKING:
    from streaming.expansion.batch import Batch, InterestChange

BACKFILL_TOPICS = 20_000
"""Topics of one client that a micro-batch goes through; some half a second with all that Spark does."""


def due(batch: "Batch") -> dict[ClientKey, Backfill]:
    """The clients whose change goes on in this batch, or begins, in slices."""
    under_way = {key: pending for key, pending in batch.state.backfills.items() if key not in batch.changed}
    begun = {
        key: Backfill(change.before, "", "", change.source, change.cause_add, change.cause_remove, change.offset_option)
        for key, change in batch.changed.items()
        if _is_wide(batch, key, change)
    }
    return {**under_way, **begun}


def carry_on(batch: "Batch") -> Iterator[UpdateColumns]:
    """The updates of the next slices; notes in the batch's delta what is left."""
    state, removed = batch.state, batch.delta.removed
    for key, pending in batch.sliced.items():
        topics = state.remaining(key) if key in state.backfills else state.topics
        stay = (topic for topic in topics if topic not in removed)
        now = list(islice(stay, BACKFILL_TOPICS))
        was, will = Interests(batch.shard.inner_multi), Interests(batch.shard.inner_multi)
        was.add(key, pending.before)
        will.add(key, batch.interest(key))
        before, after = was.pairs(now), will.pairs(now)
        sources, version, group = (
            SourceColumns.same(pending.source, len(now)),
            batch.version(key),
            batch.group_of(key.group),
        )
        for op, cause, pairs, option, reset in (
            (Op.REMOVE, pending.cause_remove, before.without(after), None, group.resets(pending.cause_remove)),
            (Op.ADD, pending.cause_add, after.without(before), pending.offset_option, False),
        ):
            yield UpdateColumns(op, cause, now, sources, pairs, [version] * len(pairs.subscriber_table), option, reset)
        first = next(stay, None)
        if first is None:
            batch.delta.backfills[key] = None
        else:
            last = next(topic for topic in reversed(topics) if topic not in removed)
            batch.delta.backfills[key] = pending._replace(first=first, last=last)


def _is_wide(batch: "Batch", key: ClientKey, change: "InterestChange") -> bool:
    """Whether a change is about many topics, and about nobody else."""
    state = batch.state
    policy = batch.policy(key.group)
    if (
        len(state.topics) <= BACKFILL_TOPICS
        or key in state.backfills
        or not policy.plain
        or state.policy(key.group) != policy
        or quota.shares(batch, key) != (None, None)
    ):
        return False
    return any(
        sum(1 for _ in islice(state.topics_of(wanted), BACKFILL_TOPICS + 1)) > BACKFILL_TOPICS
        for wanted in change.differences(ordered=False)
    )
