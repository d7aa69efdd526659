"""Output of the rules: updates of the relation, one by one or by column, and problems."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from streaming.records.columns import Pairs, SourceColumns
from streaming.records.model import Reason, Source
from streaming.records.op import Cause, Op
from streaming.records.subscribers import SubscriberKey

__all__ = ["Cause", "Op", "Problem", "Update", "UpdateColumns"]

_NAMES_IN_UPDATE = 3
"""Number of times an update's record repeats the topic's name."""

_REST_OF_UPDATE = 512
"""Estimated size of an update's record without the topic's name and the patterns, in bytes."""


class Update(NamedTuple):
    """One change of the relation.

    Attributes:
        patterns: the client's entries that match the topic, before a REMOVE and after an ADD; sorted, so that a
            repeated micro-batch repeats them; empty for a subscription to everything.
        offset_option: start position for the client, from the request that caused an ADD.
        reset: the client's offsets on the topic are to be deleted.
        bitmap: of an ADD, the groups whose SQL92 selectors match the topic.
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
    """Updates with the same op and cause by column (see `Update`), one for each pair of topic and subscriber.

    There is one source for each topic, and one version for each subscriber in the table of the pairs.
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
        """Yield the updates one by one."""
        pairs = self.pairs
        for topic, subscriber, patterns in pairs.numbers():
            yield Update(
                self.op,
                pairs.subscriber_table[subscriber],
                self.topics[topic],
                pairs.pattern_table[patterns],
                self.cause,
                self.versions[subscriber],
                self.sources.at(topic),
                self.offset_option,
                self.reset,
            )

    def pieces(self, size: int) -> Iterator["UpdateColumns"]:
        """Yield the updates in pieces of about `size` bytes of JSON."""
        pairs = self.pairs
        if not len(pairs):
            return
        name_sizes = list(map(len, self.topics))
        pattern_sizes = [sum(map(len, texts)) for texts in pairs.pattern_table]
        if len(pairs) * (_REST_OF_UPDATE + _NAMES_IN_UPDATE * max(name_sizes) + max(pattern_sizes)) <= size:
            yield self
            return
        name_bytes = _NAMES_IN_UPDATE * np.array(name_sizes, np.int64)[pairs.rows]
        pattern_bytes = np.array(pattern_sizes, np.int64)[pairs.patterns]
        ends = np.cumsum(_REST_OF_UPDATE + name_bytes + pattern_bytes)
        cuts = np.unique(np.searchsorted(ends, np.arange(0, ends[-1], size), "right")).tolist()
        for start, end in pairwise([*cuts, len(pairs)]):
            yield replace(self, pairs=pairs.take(slice(start, end)))


class Problem(NamedTuple):
    """Rejected part of an entry, for a dead letter.

    Attributes:
        message: the reason in a sentence; blank takes the dead letter of the entry back.
        original: bytes of the entry, if its record is of an earlier micro-batch.
    """

    source: Source
    reason: Reason
    message: str
    original: bytes | None = None
