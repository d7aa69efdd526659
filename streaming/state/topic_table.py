"""The topics of a large shard in arrays that all workers of a machine share, and topics by pattern."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from matcher import InvalidPattern, Pattern, TopicIndex, get_dialect
from matcher.batch.postings import Postings
from matcher.batch.segments import Ints
from matcher.batch.shapes import shape_of
from matcher.index.topics import accepted
from streaming.records.model import NO_METADATA, TopicMetadata
from streaming.state.client import Interest
from streaming.state.delta import ShardDelta
from streaming.state.interests import allows_inner_multi, pattern_of
from streaming.state.settled import Arrays, Settled, TextTable

Topics = Mapping[str, TopicMetadata]

_QUESTIONS: Final = 32
"""Patterns for each of which all recent topics are visited; for more, they are indexed."""


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
        recent, postings = list(self.recent), dict[str, Arrays]()
        for dialect in dialects:
            former = self.postings.get(dialect)
            if former is not None:
                postings[dialect] = former.replaced(self.gone, recent)
            else:
                postings[dialect] = Postings.empty(get_dialect(dialect), self.table.secret).replaced((), list(self))
        return SettledTopics(names, postings)


StoredTopics = dict[str, TopicMetadata] | TopicTable
"""Topics of a shard in order of creation."""


def settled(topics: Topics, dialects: Iterable[str] = ()) -> SettledTopics | None:
    """Return the arrays of topics in their order, with postings of some dialects; None if they are too many."""
    if not isinstance(topics, TopicTable):
        table = TopicTable(TextTable.empty(), {}, {})
        table.update(topics)
        topics = table
    return topics.settled(dialects)


def since(topics: StoredTopics, place: int) -> Iterator[str]:
    """Return an iterator over the names of topics from a place in their order."""
    return topics.since(place) if isinstance(topics, TopicTable) else islice(topics, place, None)


def described(topics: Topics) -> Topics:
    """Return all topics that have metadata, in order of creation, perhaps among others."""
    return topics.described if isinstance(topics, TopicTable) else topics


class PatternTargets:
    """Stored topics by pattern.

    Settled topics are found by their postings, if these are of the dialect and the pattern has a shape. For all other
    questions topics are indexed.

    Attributes:
        indexes: indexes of all topics, by dialect.
        recent: those of the topics that are not settled.
    """

    def __init__(self, *, inner_multi: bool) -> None:
        self._inner_multi = inner_multi
        self._table: TextTable | None = None
        self._postings: Mapping[str, Postings] = {}
        self._questions = Counter[str]()
        self.indexes: dict[str, TopicIndex] = {}
        self.recent: dict[str, TopicIndex] = {}

    def expand(self, wanted: Interest, topics: StoredTopics) -> Iterable[str]:
        """Return the stored topics that the patterns of an interest match, perhaps several times."""
        patterns: dict[tuple[str, str | None], list[str]] = defaultdict(list)
        for block in wanted.blocks:
            patterns[block.notation[:2]].extend(pattern_of(entry, block.notation) for entry in block.entries)
        if isinstance(topics, TopicTable):
            self._follow(topics)
            return chain.from_iterable([self._expand(*key, texts, topics) for key, texts in patterns.items()])
        return chain.from_iterable(
            [
                self._indexed(self.indexes, dialect, topics).expand_any(texts, policy=policy)
                for (dialect, policy), texts in patterns.items()
            ]
        )

    def _expand(self, dialect: str, policy: str | None, texts: list[str], topics: TopicTable) -> Iterable[str]:
        postings = topics.postings.get(dialect)
        if postings is None:
            return self._indexed(self.indexes, dialect, topics).expand_any(texts, policy=policy)
        patterns = self._parsed(dialect, policy, texts)
        literals = [pattern.literal for pattern in patterns if pattern.literal is not None]
        others = [pattern for pattern in patterns if pattern.literal is None]
        shaped = [pattern for pattern in others if shape_of(pattern) is not None]
        found = [filter(topics.__contains__, literals), *postings.expand(shaped, topics.at)]
        if len(shaped) < len(others):
            rest = (pattern for pattern in others if shape_of(pattern) is None)
            found.append(self._indexed(self.indexes, dialect, topics).expand_any(rest))
        return chain(*found, self._among_recent(dialect, shaped, topics.recent))

    def _among_recent(self, dialect: str, patterns: list[Pattern], recent: Topics) -> list[str]:
        self._questions[dialect] += len(patterns)
        if dialect not in self.recent and self._questions[dialect] <= _QUESTIONS:
            rules, names = get_dialect(dialect), list(recent)
            return [
                topic
                for pattern in patterns
                for topic in accepted(names, pattern, rules.separator)
                if rules.matches(pattern, topic)
            ]
        return self._indexed(self.recent, dialect, recent).expand_any(patterns)

    def _indexed(self, indexes: dict[str, TopicIndex], dialect: str, topics: Iterable[str]) -> TopicIndex:
        """Return the index of topics for a dialect, made at the first question."""
        index = indexes.get(dialect)
        if index is None:
            inner_multi = allows_inner_multi(dialect, self._inner_multi)
            index = indexes[dialect] = TopicIndex(dialect, allow_inner_multi=inner_multi)
            for topic in topics:
                index.add(topic)
        return index

    def _parsed(self, dialect: str, policy: str | None, texts: Iterable[str]) -> list[Pattern]:
        rules, found = get_dialect(dialect), list[Pattern]()
        inner_multi = allows_inner_multi(dialect, self._inner_multi)
        for text in texts:
            with suppress(InvalidPattern):
                found.append(rules.parse(text, policy=policy, allow_inner_multi=inner_multi))
        return found

    def apply(self, delta: ShardDelta, topics: StoredTopics) -> None:
        """Apply a micro-batch; `topics` are from after it."""
        if isinstance(topics, TopicTable):
            self._follow(topics)
        for index in chain(self.indexes.values(), self.recent.values()):
            for topic in delta.removed:
                index.remove(topic)
            for topic in delta.added:
                index.add(topic)

    def _follow(self, topics: TopicTable) -> None:
        """Use a table of topics; indexes that it replaces are gone."""
        if topics.table is not self._table:
            for dialect in topics.postings.keys() - self._postings.keys():
                self.indexes.pop(dialect, None)
            self.recent, self._questions = {}, Counter()
            self._table, self._postings = topics.table, topics.postings
