"""Input events by column: what many of them have in common is kept once."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streaming.events.model import SingleEvent, Source, TopicMetadata

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.bool_] | Ints | slice
"""What of a column is meant."""

COLUMNAR_MIN_TOPICS = 64
"""Topics from which on columns pay; fewer are faster one by one."""


class SourceColumns(NamedTuple):
    """Where many entries of one stream came from (see `Source`)."""

    topic: str
    partitions: Ints
    offsets: Ints
    entries: Ints
    timestamps: Ints

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Self:
        """The same by row; at least one, all of one stream."""
        topic, *columns = zip(*sources, strict=True)
        return cls(topic[0], *(np.array(column, np.int64) for column in columns))

    @classmethod
    def same(cls, source: Source, count: int) -> Self:
        """One source of many things."""
        return cls(source.topic, *(np.full(count, value) for value in source[1:]))

    def at(self, number: int) -> Source:
        """One of them."""
        return Source(self.topic, *(int(column[number]) for column in self[1:]))

    def places(self) -> Iterator[tuple[int, int]]:
        """Partition and offset of each."""
        return zip(self.partitions.tolist(), self.offsets.tolist(), strict=True)

    def take(self, which: Indices) -> Self:
        """Some of them."""
        return type(self)(self.topic, *(column[which] for column in self[1:]))


class TopicEventColumns(NamedTuple):
    """Many topic events of one parent, in order.

    Attributes:
        names: of the topics.
        created: or deleted.
        facts: what their creations said.
    """

    names: Sequence[str]
    created: Sequence[bool]
    metadata: Sequence[TopicMetadata]
    sources: SourceColumns


Event = SingleEvent | TopicEventColumns
"""Input of the rules: single events, and topic events by column."""
