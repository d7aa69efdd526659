"""Updates by column: many topics that come or go at once, and wide changes of clients.

`streaming.expansion.compare` evaluates one topic after the other. Here all topics are evaluated together, if every
matching client receives them: no other event of the micro-batch names them, and no policy restricts a client. Only
quotas may take topics back (`streaming.expansion.quota`); they ask for the updates of a client one by one.

A request may match millions of topics. If the policy of its group restricts no client, each topic can be evaluated on
its own, so a micro-batch of a shard visits at most `Tuning.backfill_topics` of the stored topics: a backfill. New
topics follow the new request at once; topics still to come follow the former request. The shard writes a record
that wakes it, and continues with the next micro-batch. Any other event of the client or its group completes the change
at once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from streaming.expansion.micro_batch import InterestChange, MicroBatch
from streaming.expansion.topics import BulkChange
from streaming.records.columns import Pairs, SourceColumns
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Op, Update, UpdateColumns
from streaming.state import Backfill
from streaming.state.interests import Interests

if TYPE_CHECKING:
    from streaming.records.columns import Ints


class BulkUpdates:
    """Updates of the bulk changes of a micro-batch."""

    def __init__(self, batch: MicroBatch, renewed: Interests | None) -> None:
        """Find the subscribers.

        Args:
            batch: the micro-batch.
            renewed: interests after the micro-batch of the clients that changed; None for none.
        """
        self._batch = batch
        self._found = [(bulk, _pairs(batch, bulk, renewed)) for bulk in batch.topics.bulks]
        self._by_client: list[dict[ClientKey, Ints]] | None = None
        self._spelled: dict[ClientKey, None] = {}
        self._growth: Counter[ClientKey] = Counter()
        for bulk, pairs in self._found:
            for key, count in pairs.topics_by_client().items():
                self._growth[key] += count if bulk.exists else -count

    @property
    def clients(self) -> Iterator[ClientKey]:
        """Clients that receive one of the topics, before the micro-batch or after it."""
        return iter(self._growth)

    def growth(self, key: ClientKey) -> int:
        """Return the number of topics that a client gains, by all rules but the quotas."""
        return self._growth[key]

    def spell_out(self, key: ClientKey) -> list[Update]:
        """Return the updates of one client one by one, and take them out of `columns`."""
        if key in self._spelled:
            return []
        self._spelled[key] = None
        if self._by_client is None:
            self._by_client = [pairs.indices_by_client() for _, pairs in self._found]
        spelled: list[Update] = []
        for (bulk, pairs), indices in zip(self._found, self._by_client, strict=True):
            if key in indices:
                spelled += self._columns(bulk, pairs.take(indices[key]).compacted()).one_by_one()
        return spelled

    def columns(self) -> Iterator[UpdateColumns]:
        """Yield all other updates."""
        for bulk, pairs in self._found:
            others = pairs.take(~pairs.of_clients(self._spelled)) if self._spelled else pairs
            yield self._columns(bulk, others)

    def _columns(self, bulk: BulkChange, pairs: Pairs) -> UpdateColumns:
        versions = [self._batch.view.version(subscriber.client) for subscriber in pairs.subscriber_table]
        op = Op.ADD if bulk.exists else Op.REMOVE
        return UpdateColumns(op, bulk.cause, bulk.names, bulk.sources, pairs, versions)


def _pairs(batch: MicroBatch, bulk: BulkChange, renewed: Interests | None) -> Pairs:
    found = batch.state.interests.pairs(bulk.names)
    if not bulk.exists or renewed is None:
        return found
    unchanged = found.take(~found.of_clients(batch.changed))
    return unchanged.join(renewed.pairs(bulk.names))


def due(batch: MicroBatch) -> dict[ClientKey, Backfill]:
    """Return the backfills that continue in this micro-batch, or begin."""
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
    """Return True if a change concerns many topics, and no other client."""
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
