"""Input events by column: many topic events of one parent as arrays, without a Python object for each."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streaming.events.model import SingleEvent, Source, TopicMetadata

Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.bool_] | Ints | slice
"""Selection of elements of a column: a mask, indices, or a slice."""

COLUMNAR_MIN_TOPICS = 64
"""Number of topics from which on columns are faster; fewer are faster one by one."""


class SourceColumns(NamedTuple):
    """Sources of many entries of one stream (see `Source`)."""

    topic: str
    partitions: Ints
    offsets: Ints
    entries: Ints
    timestamps: Ints

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Self:
        """Convert sources to columns: at least one, all of one stream."""
        topic, *columns = zip(*sources, strict=True)
        return cls(topic[0], *(np.array(column, np.int64) for column in columns))

    @classmethod
    def same(cls, source: Source, count: int) -> Self:
        """Return one source repeated."""
        return cls(source.topic, *(np.full(count, value) for value in source[1:]))

    def at(self, index: int) -> Source:
        """Return the source at an index."""
        return Source(self.topic, *(int(column[index]) for column in self[1:]))

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield partition and offset of each source."""
        return zip(self.partitions.tolist(), self.offsets.tolist(), strict=True)

    def take(self, indices: Indices) -> Self:
        """Return the selected sources."""
        return type(self)(self.topic, *(column[indices] for column in self[1:]))


class TopicEventColumns(NamedTuple):
    """Many topic events of one parent, in order.

    Attributes:
        names: of the lite topics.
        created: True for a creation, False for a deletion.
        metadata: of the topics (see `TopicEvent.metadata`).
        sources: of the events.
    """

    names: Sequence[str]
    created: Sequence[bool]
    metadata: Sequence[TopicMetadata]
    sources: SourceColumns


Event = SingleEvent | TopicEventColumns
"""Input of the rules: single events, or topic events by column."""
