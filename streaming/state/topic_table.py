"""The topics of a large shard in arrays that all workers of a machine share, and topics in order of creation."""

from collections.abc import Collection, Container, Iterable, Iterator, KeysView, Mapping, Reversible
from itertools import islice
from typing import Any, Final, NamedTuple

from matcher import get_dialect
from matcher.batch.postings import Postings
from matcher.batch.segments import Ints
from streaming.records.model import NO_METADATA, TopicMetadata
from streaming.state.delta import ShardDelta
from streaming.state.settled import Arrays, Settled, TextTable

Topics = Mapping[str, TopicMetadata]

STALE: Final = 64
"""Times or topics that may be stale in an index, besides as many as there are."""

_QUESTIONS: Final = 8
"""Questions for the order of some topics, for each of which all topics are visited."""


class _TopicNames(KeysView[str]):
    _mapping: "TopicTable"

    def isdisjoint(self, other: Iterable[Any]) -> bool:
        return not self._mapping.has_any(list(other))


class SettledTopics(NamedTuple):
    """Arrays of topics: their names as in `TextTable`, and their postings by dialect."""

    names: Arrays
    postings: Mapping[str, Arrays]


class TopicTable(Settled[str, TopicMetadata]):
    """Topics in order of creation.

    Args:
        table: names of the settled topics.
        described: metadata of the settled topics that have any, in order of creation.
        postings: of the settled topics, by dialect.

    Attributes:
        postings: as above.
    """

    def __init__(
        self, table: TextTable, described: Mapping[str, TopicMetadata], postings: Mapping[str, Postings]
    ) -> None:
        super().__init__(table)
        self._described = dict(described)
        self.postings = postings

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

    def at(self, rows: Ints) -> list[str]:
        """Return the settled topics of some rows that are not gone."""
        texts = self.table.at(rows)
        if self.gone:
            return [text for row, text in zip(rows.tolist(), texts, strict=True) if row not in self.gone]
        return texts

    def update(self, topics: Topics) -> None:  # type: ignore[override]
        """Add topics that are not stored, without a look for them."""
        self.recent.update(topics)

    def settled(self, dialects: Iterable[str]) -> SettledTopics | None:
        """Return the arrays of all topics, with postings of some dialects; None if they are too many."""
        names = self.table.replaced(self.gone, self.recent)
        if names is None:
            return None
        return SettledTopics(names, {dialect: self._postings_of(dialect) for dialect in dialects})

    def _postings_of(self, dialect: str) -> Arrays:
        former = self.postings.get(dialect)
        if former is None:
            return Postings.empty(get_dialect(dialect), self.table.secret).replaced((), list(self))
        return former.replaced(self.gone, list(self.recent))


StoredTopics = dict[str, TopicMetadata] | TopicTable
"""Topics of a shard in order of creation."""


def settled(topics: Topics, dialects: Iterable[str], secret: bytes | None = None) -> SettledTopics | None:
    """Return the arrays of topics in their order, with postings of some dialects; None if they are too many.

    The secret is the key of the hashes of topics that are not in a table; random by default.
    """
    if not isinstance(topics, TopicTable):
        table = TopicTable(TextTable.empty(secret), {}, {})
        table.update(topics)
        topics = table
    return topics.settled(dialects)


def since(topics: StoredTopics, place: int) -> Iterator[str]:
    """Return an iterator over the names of topics from a place in their order."""
    return topics.since(place) if isinstance(topics, TopicTable) else islice(topics, place, None)


def described(topics: Topics) -> Topics:
    """Return all topics that have metadata, in order of creation, perhaps among others."""
    return topics.described if isinstance(topics, TopicTable) else topics


class TopicSpan(Reversible[str], Container[str]):
    """Stored topics from one to another one, in order of creation."""

    def __init__(self, names: list[str], places: Mapping[str, int], first: int, last: int) -> None:
        self._names = names
        self._places = places
        self._first = first
        self._last = last

    def __contains__(self, topic: object) -> bool:
        place = self._places.get(topic)  # type: ignore[call-overload]
        return place is not None and self._first <= place <= self._last

    def __iter__(self) -> Iterator[str]:
        return self._present(range(self._first, min(self._last + 1, len(self._names))))

    def __reversed__(self) -> Iterator[str]:
        return self._present(reversed(range(self._first, min(self._last + 1, len(self._names)))))

    def _present(self, places: Iterable[int]) -> Iterator[str]:
        names = self._names
        return (names[place] for place in places if self._places.get(names[place]) == place)


class CreationOrder:
    """Places of stored topics in their order of creation, the same for any number of spans.

    Attributes:
        questions: number of calls of `in_order` before the topics were numbered.
    """

    def __init__(self) -> None:
        self._names: list[str] = []  # also those of deleted topics
        self._places: dict[str, int] = {}
        self.questions = 0

    def span(self, first: str, last: str, topics: Topics) -> TopicSpan:
        """Return the topics from `first` to `last`; none if `first` is not stored."""
        self._number(topics)
        end = len(self._names)
        return TopicSpan(self._names, self._places, self._places.get(first, end), self._places.get(last, end))

    def in_order(self, wanted: Collection[str], topics: Topics) -> Iterable[str]:
        """Return the stored topics among some, in order of creation.

        After a few questions the topics are numbered, so a question costs only its own topics.
        """
        if not self._names:
            self.questions += 1
            if self.questions <= _QUESTIONS:
                return filter(wanted.__contains__, topics)
            self._number(topics)
        return sorted(filter(self._places.__contains__, wanted), key=self._places.__getitem__)

    def _number(self, topics: Topics) -> None:
        if not self._names:
            self._names = list(topics)
            self._places = {topic: place for place, topic in enumerate(topics)}

    def apply(self, delta: ShardDelta) -> None:
        """Apply a micro-batch; the places are made again when most topics are gone."""
        if not self._names:
            return
        for topic in delta.removed:
            self._places.pop(topic, None)
        for topic in delta.added:
            self._places[topic] = len(self._names)
            self._names.append(topic)
        if len(self._names) > 2 * len(self._places) + STALE:
            self._names, self._places = [], {}
