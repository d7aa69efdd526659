"""Backfills: wide changes, carried out over several micro-batches, so that one client keeps nobody waiting.

A request may match millions of topics. Where the policy of its group restricts nobody, each topic can be judged by
itself, so a micro-batch of a shard goes through `Tuning.backfill_topics` of the stored topics at most. New topics
follow the new request at once; topics still to come follow the former one. The shard writes itself a record to be
woken by, and goes on with the next micro-batch. Any other event of the client or its group completes the change at
once.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from streaming.events.columns import SourceColumns
from streaming.expansion.micro_batch import InterestChange, MicroBatch
from streaming.state import Backfill
from streaming.subscription.subscribers import ClientKey
from streaming.updates.model import Op, UpdateColumns


def due(batch: MicroBatch) -> dict[ClientKey, Backfill]:
    """Return the backfills that go on in this micro-batch, or begin."""
    under_way = {key: backfill for key, backfill in batch.state.backfills.items() if key not in batch.changed}
    begun = {
        key: Backfill(change.before, "", "", change.source, change.cause_add, change.cause_remove, change.offset_option)
        for key, change in batch.changed.items()
        if _is_wide(batch, key, change)
    }
    return {**under_way, **begun}


def backfill_updates(batch: MicroBatch, backfills: Mapping[ClientKey, Backfill]) -> Iterator[UpdateColumns]:
    """Yield the updates of the next step of each backfill, and note the remaining topics in the delta."""
    state, removed = batch.state, batch.delta.removed
    for key, backfill in backfills.items():
        topics = state.remaining(key) if key in state.backfills else state.topics
        stay = (topic for topic in topics if topic not in removed)
        now = list(islice(stay, batch.tuning.backfill_topics))
        former, later = state.new_interests(), state.new_interests()
        former.add(key, backfill.before)
        later.add(key, batch.view.interest(key))
        before, after = former.pairs(now), later.pairs(now)
        sources, version = SourceColumns.same(backfill.source, len(now)), batch.view.version(key)
        resets = batch.view.group(key.group).resets_offset(backfill.cause_remove)
        for op, cause, pairs, option, reset in (
            (Op.REMOVE, backfill.cause_remove, before.without(after), None, resets),
            (Op.ADD, backfill.cause_add, after.without(before), backfill.offset_option, False),
        ):
            versions = [version] * len(pairs.subscriber_table)
            yield UpdateColumns(op, cause, now, sources, pairs, versions, option, reset)
        first = next(stay, None)
        if first is None:
            batch.delta.backfills[key] = None
        else:
            last = next(topic for topic in reversed(topics) if topic not in removed)
            batch.delta.backfills[key] = backfill._replace(first=first, last=last)


def _is_wide(batch: MicroBatch, key: ClientKey, change: InterestChange) -> bool:
    """Tell whether a change concerns many topics, and no other client."""
    state, most = batch.state, batch.tuning.backfill_topics
    policy = batch.view.policy(key.group)
    if (
        len(state.topics) <= most
        or key in state.backfills
        or change.several
        or not policy.plain
        or state.policy(key.group) != policy
        or batch.view.quota_shares(key) != (None, None)
    ):
        return False
    return any(
        sum(1 for _ in islice(state.topics_of(wanted), most + 1)) > most for wanted in change.differences(ordered=False)
    )
