"""What the job says: changes of the relation, and what it could not apply."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from streaming.events.columns import SourceColumns
from streaming.events.model import Reason, Source
from streaming.subscription.pairs import Pairs
from streaming.subscription.subscribers import SubscriberKey
from streaming.updates.op import Cause, Op

__all__ = ["Cause", "Op", "Problem", "Update", "UpdateColumns"]

_NAMES_IN_UPDATE, _REST_OF_UPDATE = 3, 512
"""How often the topic's name stands in a record, and some bytes more."""


class Update(NamedTuple):
    """One change of the relation.

    Attributes:
        patterns: the client's entries that match the topic, before a REMOVE and after an ADD, sorted, so that a
            repeated batch repeats them; none for receive-all.
        version: of the client's last applied request.
        source: the event that caused it.
        offset_option: where the client wants to start, when the request that caused an ADD said so.
        reset: the client's offsets on the topic are to be forgotten.
        bitmap: of an ADD, the groups whose SQL92 selectors agree with the topic.
    """

    op: Op
    subscriber: SubscriberKey
    lite_topic: str
    patterns: tuple[str, ...]
    cause: Cause
    version: int | None
    source: Source
    offset_option: Any = None
    reset: bool = False
    bitmap: bytes | None = None


@dataclass(frozen=True, slots=True)
class UpdateColumns:
    """Updates of one kind (see `Update`): one for each of the pairs.

    Attributes:
        topics: names; rows of the pairs are places in here.
        sources: one for each topic.
        versions: one for each of the receivers in the pairs' table.
        offset_option, reset: of all.
    """

    op: Op
    cause: Cause
    topics: Sequence[str]
    sources: SourceColumns
    pairs: Pairs
    versions: Sequence[int | None]
    offset_option: Any = None
    reset: bool = False

    def one_by_one(self) -> Iterator[Update]:
        """The same by row."""
        pairs = self.pairs
        for row, subscriber, patterns in pairs.numbers():
            yield Update(
                self.op,
                pairs.subscriber_table[subscriber],
                self.topics[row],
                pairs.pattern_table[patterns],
                self.cause,
                self.versions[subscriber],
                self.sources.at(row),
                self.offset_option,
                self.reset,
            )

    def pieces(self, size: int) -> Iterator["UpdateColumns"]:
        """The same in pieces of some so many bytes of JSON."""
        pairs = self.pairs
        if not len(pairs):
            return
        names = list(map(len, self.topics))
        patterns = [sum(map(len, texts)) for texts in pairs.pattern_table]
        if len(pairs) * (_REST_OF_UPDATE + _NAMES_IN_UPDATE * max(names) + max(patterns)) <= size:
            yield self
            return
        sizes = _NAMES_IN_UPDATE * np.array(names, np.int64)[pairs.rows] + np.array(patterns, np.int64)[pairs.patterns]
        ends = np.cumsum(_REST_OF_UPDATE + sizes)
        cuts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1], size), "right")).tolist()
        for start, end in pairwise([*cuts, len(pairs)]):
            yield replace(self, pairs=pairs.take(slice(start, end)))


class Problem(NamedTuple):
    """A part of an entry that cannot be applied; becomes a dead letter."""

    source: Source
    reason: Reason
    message: str
