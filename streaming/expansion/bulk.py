"""Updates by column: many topics that come or go at once.

`streaming.expansion.compare` evaluates one topic after the other. Here all topics are evaluated together, if every
matching client receives them: no other event of the micro-batch names them, and no policy restricts a client. Only
quotas may take topics back (`streaming.expansion.quota`); they ask for the updates of a client one by one.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

from streaming.expansion.micro_batch import MicroBatch
from streaming.expansion.topics import BulkChange
from streaming.records.columns import Ints, Pairs
from streaming.records.subscribers import ClientKey
from streaming.records.updates import Op, Update, UpdateColumns
from streaming.state.interests import Interests


class BulkUpdates:
    """Updates of the bulk changes of a micro-batch."""

    def __init__(self, batch: MicroBatch, renewed: Interests | None) -> None:
        self._batch = batch
        self._found = [(bulk, _pairs(batch, bulk, renewed)) for bulk in batch.topics.bulks]
        self._spelled: dict[ClientKey, None] = {}

    @cached_property
    def growth(self) -> Counter[ClientKey]:
        """Number of topics that each client of one of the topics gains, by all rules but the quotas."""
        growth: Counter[ClientKey] = Counter()
        for bulk, pairs in self._found:
            for key, count in pairs.topics_by_client().items():
                growth[key] += count if bulk.exists else -count
        return growth

    def spell_out(self, key: ClientKey) -> list[Update]:
        """Return the updates of one client one by one, and take them out of `columns`."""
        if key in self._spelled:
            return []
        self._spelled[key] = None
        spelled: list[Update] = []
        for (bulk, pairs), indices in zip(self._found, self._by_client, strict=True):
            if key in indices:
                spelled += self._columns(bulk, pairs.take(indices[key]).compacted()).one_by_one()
        return spelled

    @cached_property
    def _by_client(self) -> list[dict[ClientKey, Ints]]:
        return [pairs.indices_by_client() for _, pairs in self._found]

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
