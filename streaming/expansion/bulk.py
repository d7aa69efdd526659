"""The lazy path by column: many topics that come or go at once, and who receives them.

What `streaming.expansion.expansion` says of one topic after the other is said here of all together, for topics that
need no second thought: the micro-batch says nothing else of them, and all who ask for them receive them. Only quotas
may have a say (`streaming.expansion.quota`), who then ask for the updates of a client one by one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streaming.events.columns import SourceColumns, TopicEventColumns
from streaming.events.model import TopicMetadata
from streaming.subscription.interests import Interests
from streaming.subscription.pairs import Pairs
from streaming.subscription.subscribers import ClientKey
from streaming.updates.model import Cause, Op, Update, UpdateColumns

if TYPE_CHECKING:
    from streaming.expansion.batch import Batch


class BulkChange(NamedTuple):
    """Many topics that come, or go, for one reason.

    Attributes:
        exists: they do after the batch.
        cause: of their updates.
        facts: what their creations said; of no meaning for those that go.
    """

    exists: bool
    cause: Cause
    names: Sequence[str]
    metadata: Sequence[TopicMetadata]
    sources: SourceColumns

    def without_expired(self, now: int) -> "BulkChange":
        """Those whose lives are longer."""
        rows = [
            row for row, metadata in enumerate(self.metadata) if metadata.deadline is None or metadata.deadline > now
        ]
        return self if len(rows) == len(self.names) else self.take(rows)

    def take(self, rows: Sequence[int]) -> "BulkChange":
        """Some of them."""
        names, metadata = [self.names[row] for row in rows], [self.metadata[row] for row in rows]
        return self._replace(names=names, metadata=metadata, sources=self.sources.take(np.array(rows, np.int64)))


def split_bulk(many: TopicEventColumns, stored: Mapping[str, TopicMetadata]) -> tuple[list[BulkChange], list[int]]:
    """The crowds among topic events, and the numbers of the other events.

    Args:
        many: all that a micro-batch says of the topics.
        stored: the topics that exist before it.
    """
    names, created, metadata, sources = many
    if len(set(names)) == len(names) and all(created) and stored.keys().isdisjoint(names):
        return [BulkChange(True, Cause.TOPIC_CREATED, names, metadata, sources)], []
    said = Counter(names)
    rows: dict[bool, list[int]] = {True: [], False: []}
    others: list[int] = []
    for row, (name, exists) in enumerate(zip(names, created, strict=True)):
        (rows[exists] if said[name] == 1 and exists != (name in stored) else others).append(row)
    return [
        BulkChange(exists, cause, names, metadata, sources).take(rows[exists])
        for exists, cause in ((False, Cause.TOPIC_DELETED), (True, Cause.TOPIC_CREATED))
        if rows[exists]
    ], others


class BulkUpdates:
    """What the crowds of a batch mean for who receives them."""

    def __init__(self, batch: "Batch", renewed: Interests) -> None:
        """Finds the receivers.

        Args:
            batch: all of it is read.
            renewed: what the clients ask for that ask for something else after the batch, where topics come.
        """
        self._batch = batch
        self._found = [(bulk, _subscribers(batch, bulk, renewed)) for bulk in batch.bulks]
        self._change: Counter[ClientKey] = Counter()
        for bulk, pairs in self._found:
            for key, count in pairs.topics_by_client().items():
                self._change[key] += count if bulk.exists else -count

    @property
    def clients(self) -> Iterator[ClientKey]:
        """Who receives one of the topics, before the batch or after it."""
        return iter(self._change)

    def change(self, key: ClientKey) -> int:
        """How many topics a client may hold more after the batch, by all rules but the quotas."""
        return self._change[key]

    def spell_out(self, key: ClientKey) -> list[Update]:
        """The updates of one client one by one; they are none of `columns` any more."""
        spelled: list[Update] = []
        for place, (bulk, pairs) in enumerate(self._found):
            own = pairs.of_clients((key,))
            self._found[place] = bulk, pairs.take(~own)
            spelled += self._columns(bulk, pairs.take(own)).one_by_one()
        return spelled

    def columns(self) -> Iterator[UpdateColumns]:
        """All other updates."""
        for bulk, pairs in self._found:
            yield self._columns(bulk, pairs)

    def _columns(self, bulk: BulkChange, pairs: Pairs) -> UpdateColumns:
        versions = [self._batch.version(subscriber.client) for subscriber in pairs.subscriber_table]
        op = Op.ADD if bulk.exists else Op.REMOVE
        return UpdateColumns(op, bulk.cause, bulk.names, bulk.sources, pairs, versions)


def _subscribers(batch: "Batch", bulk: BulkChange, renewed: Interests) -> Pairs:
    found = batch.state.interests.pairs(bulk.names)
    if not (bulk.exists and batch.changed):
        return found
    unchanged = found.take(~found.of_clients(batch.changed))
    return unchanged.join(renewed.pairs(bulk.names))
