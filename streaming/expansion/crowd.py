"""The lazy path by column: many topics that come or go at once, and who receives them.

What `streaming.expansion.expansion` says of one topic after the other is said here of all together, for topics that
need no second thought: the micro-batch says nothing else of them, and all who ask for them receive them. Only quotas
may have a say (`streaming.expansion.quota`), who then ask for the updates of a client one by one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streaming.events.events import Facts
from streaming.subscription.columns import Pairs, Sources, TopicEvents
from streaming.subscription.interests import Interests
from streaming.subscription.receivers import ClientKey
from streaming.updates.update import Cause, Columns, Op, Update

if TYPE_CHECKING:
    from streaming.expansion.batch import Batch


class Crowd(NamedTuple):
    """Many topics that come, or go, for one reason.

    Attributes:
        exists: they do after the batch.
        cause: of their updates.
        facts: what their creations said; of no meaning for those that go.
    """

    exists: bool
    cause: Cause
    names: Sequence[str]
    facts: Sequence[Facts]
    sources: Sources

    def without_expired(self, now: int) -> "Crowd":
        """Those whose lives are longer."""
        rows = [row for row, facts in enumerate(self.facts) if facts.deadline is None or facts.deadline > now]
        return self if len(rows) == len(self.names) else self.chosen(rows)

    def chosen(self, rows: Sequence[int]) -> "Crowd":
        """Some of them."""
        names, facts = [self.names[row] for row in rows], [self.facts[row] for row in rows]
        return self._replace(names=names, facts=facts, sources=self.sources.chosen(np.array(rows, np.int64)))


def sort_out(many: TopicEvents, stored: Mapping[str, Facts]) -> tuple[list[Crowd], list[int]]:
    """The crowds among topic events, and the numbers of the other events.

    Args:
        many: all that a micro-batch says of the topics.
        stored: the topics that exist before it.
    """
    names, created, facts, sources = many
    if len(set(names)) == len(names) and all(created) and stored.keys().isdisjoint(names):
        return [Crowd(True, Cause.TOPIC_CREATED, names, facts, sources)], []
    said = Counter(names)
    rows: dict[bool, list[int]] = {True: [], False: []}
    others: list[int] = []
    for row, (name, exists) in enumerate(zip(names, created, strict=True)):
        (rows[exists] if said[name] == 1 and exists != (name in stored) else others).append(row)
    return [
        Crowd(exists, cause, names, facts, sources).chosen(rows[exists])
        for exists, cause in ((False, Cause.TOPIC_DELETED), (True, Cause.TOPIC_CREATED))
        if rows[exists]
    ], others


class CrowdUpdates:
    """What the crowds of a batch mean for who receives them."""

    def __init__(self, batch: "Batch", renewed: Interests) -> None:
        """Finds the receivers.

        Args:
            batch: all of it is read.
            renewed: what the clients ask for that ask for something else after the batch, where topics come.
        """
        self._batch = batch
        self._found = [(crowd, _receivers(batch, crowd, renewed)) for crowd in batch.crowds]
        self._change: Counter[ClientKey] = Counter()
        for crowd, pairs in self._found:
            for key, count in pairs.topics_by_client().items():
                self._change[key] += count if crowd.exists else -count

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
        for place, (crowd, pairs) in enumerate(self._found):
            own = pairs.of_clients((key,))
            self._found[place] = crowd, pairs.chosen(~own)
            spelled += self._columns(crowd, pairs.chosen(own)).one_by_one()
        return spelled

    def columns(self) -> Iterator[Columns]:
        """All other updates."""
        for crowd, pairs in self._found:
            yield self._columns(crowd, pairs)

    def _columns(self, crowd: Crowd, pairs: Pairs) -> Columns:
        versions = [self._batch.version(receiver.client) for receiver in pairs.receiver_table]
        op = Op.ADD if crowd.exists else Op.REMOVE
        return Columns(op, crowd.cause, crowd.names, crowd.sources, pairs, versions)


def _receivers(batch: "Batch", crowd: Crowd, renewed: Interests) -> Pairs:
    found = batch.state.interests.pairs(crowd.names)
    if not (crowd.exists and batch.changed):
        return found
    unchanged = found.chosen(~found.of_clients(batch.changed))
    return unchanged.beside(renewed.pairs(crowd.names))
