"""Wide changes, in slices: what one client asks for must not keep all others waiting.

A request may be about millions of topics. Where the terms of its group let everybody receive, each topic can be judged
by itself, so a micro-batch of a shard goes through no more than `SLICE` of the topics that were there. Topics that come
meanwhile follow the new request at once; topics that are still to be gone through follow the former one. The shard
writes itself a record to be woken by, and goes on with the next micro-batch. Whatever else happens to the client or its
group carries out at once what is left.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from streaming.expansion import quota
from streaming.state.state import Pending
from streaming.subscription.columns import Sources
from streaming.subscription.interests import Interests
from streaming.subscription.receivers import ClientKey
from streaming.updates.update import Columns, Op

if TYPE_CHECKING:
    from streaming.expansion.batch import Batch, Changed

SLICE = 20_000
"""Topics of one client that a micro-batch goes through; some half a second with all that Spark does."""


def due(batch: "Batch") -> dict[ClientKey, Pending]:
    """The clients whose change goes on in this batch, or begins, in slices."""
    under_way = {key: pending for key, pending in batch.state.pending.items() if key not in batch.changed}
    begun = {
        key: Pending(change.before, "", "", change.source, change.cause_add, change.cause_remove, change.offset_option)
        for key, change in batch.changed.items()
        if _is_wide(batch, key, change)
    }
    return {**under_way, **begun}


def carry_on(batch: "Batch") -> Iterator[Columns]:
    """The updates of the next slices; notes in the batch's delta what is left."""
    state, removed = batch.state, batch.delta.removed
    for key, pending in batch.sliced.items():
        topics = state.remaining(key) if key in state.pending else state.topics
        stay = (topic for topic in topics if topic not in removed)
        now = list(islice(stay, SLICE))
        was, will = Interests(batch.shard.inner_multi), Interests(batch.shard.inner_multi)
        was.add(key, pending.before)
        will.add(key, batch.interest(key))
        before, after = was.pairs(now), will.pairs(now)
        sources, version, group = Sources.same(pending.source, len(now)), batch.version(key), batch.group_of(key.group)
        for op, cause, pairs, option, reset in (
            (Op.REMOVE, pending.cause_remove, before.without(after), None, group.resets(pending.cause_remove)),
            (Op.ADD, pending.cause_add, after.without(before), pending.offset_option, False),
        ):
            yield Columns(op, cause, now, sources, pairs, [version] * len(pairs.receiver_table), option, reset)
        first = next(stay, None)
        if first is None:
            batch.delta.pending[key] = None
        else:
            last = next(topic for topic in reversed(topics) if topic not in removed)
            batch.delta.pending[key] = pending._replace(first=first, last=last)


def _is_wide(batch: "Batch", key: ClientKey, change: "Changed") -> bool:
    """Whether a change is about many topics, and about nobody else."""
    state = batch.state
    terms = batch.terms(key.group)
    if (
        len(state.topics) <= SLICE
        or key in state.pending
        or not terms.plain
        or state.terms(key.group) != terms
        or quota.shares(batch, key) != (None, None)
    ):
        return False
    return any(
        sum(1 for _ in islice(state.topics_of(wanted), SLICE + 1)) > SLICE
        for wanted in change.differences(ordered=False)
    )
