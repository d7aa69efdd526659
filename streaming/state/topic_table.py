"""TopicTable: the topics of a large shard, in arrays that all workers of a machine share."""

from collections.abc import Iterable, Iterator, KeysView, Mapping
from itertools import islice
from typing import Any

from streaming.records.model import NO_METADATA, TopicMetadata
from streaming.state.settled import Arrays, Settled, TextTable


class _TopicNames(KeysView[str]):
    _mapping: "TopicTable"

    def isdisjoint(self, other: Iterable[Any]) -> bool:
        return not self._mapping.has_any(list(other))


class TopicTable(Settled[str, TopicMetadata]):
    """Topics in order of creation.

    Args:
        table: names of the settled topics.
        described: metadata of the settled topics that have any, in order of creation.
    """

    def __init__(self, table: TextTable, described: Mapping[str, TopicMetadata]) -> None:
        super().__init__(table)
        self._described = dict(described)

    @staticmethod
    def _text(key: str) -> str:
        return key

    @staticmethod
    def _keys(texts: list[str]) -> list[str]:
        return texts

    def _value(self, key: str, row: int) -> TopicMetadata:  # noqa: ARG002 - see Settled
        return self._described.get(key, NO_METADATA)

    def _forget(self, key: str, row: int) -> None:
        super()._forget(key, row)
        self._described.pop(key, None)

    @property
    def described(self) -> dict[str, TopicMetadata]:
        """All topics that have metadata, in order of creation, perhaps among others."""
        return {**self._described, **self.recent}

    @property
    def changes(self) -> int:
        """Number of settled topics that are gone, and of topics that are not settled yet."""
        return len(self.gone) + len(self.recent)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return _TopicNames(self)

    def has_any(self, names: list[str]) -> bool:
        """Return True if one of some names is a topic."""
        if not self.recent.keys().isdisjoint(names):
            return True
        return any(self._row(name) is not None for name in self.table.candidates(names))

    def update(self, topics: Mapping[str, TopicMetadata]) -> None:  # type: ignore[override]
        """Add topics that are not stored, without a look for them."""
        self.recent.update(topics)

    def settled(self) -> Arrays | None:
        """Return the arrays of a table of all topics; None if they are too many."""
        return self.table.replaced(self.gone, self.recent)


StoredTopics = dict[str, TopicMetadata] | TopicTable
"""Topics of a shard in order of creation."""


def settled(topics: Mapping[str, TopicMetadata]) -> Arrays | None:
    """Return the arrays of a table of topics, in their order; None if they are too many."""
    return topics.settled() if isinstance(topics, TopicTable) else TextTable.empty().replaced((), topics)


def since(topics: StoredTopics, place: int) -> Iterator[str]:
    """Return an iterator over the names of topics from a place in their order."""
    return topics.since(place) if isinstance(topics, TopicTable) else islice(topics, place, None)


def described(topics: Mapping[str, TopicMetadata]) -> Mapping[str, TopicMetadata]:
    """Return all topics that have metadata, in order of creation, perhaps among others."""
    return topics.described if isinstance(topics, TopicTable) else topics
