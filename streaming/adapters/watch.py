"""What a watcher of Kafka topics has announced, and what an answer about the topics adds to it. No Kafka in here.

The announced state is the fold of the announced changes, so a watcher that reads its own events back after a restart
knows what it knew before.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Self

import orjson

import matcher
from streaming.errors import ConfigInvalid, Rejected
from streaming.events.parsing import parse_topic_event

GONE_AFTER = 2
"""Answers in a row that must contradict a topic before its deletion is announced; one may be that of a stale broker."""

ALL_GONE_AFTER = 10
"""As many when all topics are missing at once, as a broker may say that has just started."""


class Change(NamedTuple):
    """A topic was created or deleted; `topic_id` is the cluster's own, where it is known."""

    created: bool
    topic: str
    topic_id: str | None = None


class Standing(Enum):
    """What one answer says about one topic."""

    THERE = "there"
    GONE = "gone"
    UNCLEAR = "unclear"


class Sight(NamedTuple):
    """One answer of the cluster about all topics.

    Attributes:
        topics: those that exist, with their ids; None where the id was not asked for or is not known.
        unclear: those that may or may not exist: nothing is announced about them.
    """

    topics: Mapping[str, str | None]
    unclear: Collection[str] = frozenset()

    def identified(self, ids: Mapping[str, str | Standing]) -> Self:
        """The same with the answers to a second question, after the ids of some topics.

        A topic that the second answer does not know has just come or just gone.
        """
        lost = {name for name, found in ids.items() if isinstance(found, Standing) and found is not Standing.THERE}
        topics = {
            name: found if isinstance(found := ids.get(name), str) else None for name in self.topics if name not in lost
        }
        return self._replace(topics=topics, unclear={*self.unclear, *lost})


def sight(listed: Mapping[str, Standing], selected: Callable[[str], bool], witness: str) -> Sight | None:
    """What an answer says about the selected topics; None when it cannot be believed.

    Args:
        listed: all topics that the answer names.
        selected: which of them are of interest.
        witness: a topic that exists for certain; an answer without it is empty or partial.
    """
    if listed.get(witness) is not Standing.THERE:
        return None
    mine = {name: standing for name, standing in listed.items() if selected(name)}
    return Sight(
        {name: None for name, standing in mine.items() if standing is Standing.THERE},
        {name for name, standing in mine.items() if standing is Standing.UNCLEAR},
    )


class Watch:
    """What was announced of one parent, and which of it the last answers contradict."""

    def __init__(self) -> None:
        self._announced: dict[str, str | None] = {}
        self._contradictions: dict[str, int] = {}

    @property
    def announced(self) -> Mapping[str, str | None]:
        """The topics that exist as far as readers of the events know, with their ids."""
        return self._announced

    @property
    def doubtful(self) -> Collection[str]:
        """Announced topics that are about to be announced as deleted, should the next answers say the same."""
        return self._contradictions.keys()

    def fold(self, change: Change) -> None:
        """Takes in a change that was announced, now or before a restart."""
        if change.created:
            self._announced[change.topic] = change.topic_id or self._announced.get(change.topic)
        else:
            self._announced.pop(change.topic, None)
            self._contradictions.pop(change.topic, None)

    def unanswered(self) -> None:
        """An answer did not come or cannot be believed: what came before it is no answer in a row."""
        self._contradictions.clear()

    def compare(self, found: Sight) -> list[Change]:
        """What has to be announced after an answer: first deletions, then creations, by name.

        Nothing is announced twice only if each change that was written is folded in before the next answer.
        """
        self._adopt_ids(found)
        needed = GONE_AFTER if any(name in found.topics for name in self._announced) else ALL_GONE_AFTER
        self._contradictions = {
            name: count for name, known in self._announced.items() if (count := self._contradicted(name, known, found))
        }
        gone = sorted(name for name, count in self._contradictions.items() if count >= needed)
        # A topic that was deleted and made anew is both.
        born = sorted(
            [*(found.topics.keys() - self._announced.keys()), *(name for name in gone if name in found.topics)]
        )
        return [*(Change(False, name) for name in gone), *(Change(True, name, found.topics[name]) for name in born)]

    def _adopt_ids(self, found: Sight) -> None:
        for name, known in self._announced.items():
            if known is None:
                self._announced[name] = found.topics.get(name)

    def _contradicted(self, name: str, known: str | None, found: Sight) -> int:
        """How many answers in a row say that this topic, the very one that was announced, does not exist."""
        former = self._contradictions.get(name, 0)
        if name in found.unclear:
            return 0
        if name not in found.topics:
            return former + 1
        seen = found.topics[name]
        if seen is None:
            return former  # some topic of this name exists, and the next answer says which
        return former + 1 if known != seen else 0


def encode(change: Change, parent: str, timestamp: int) -> bytes:
    """The topic event that announces a change; `topicId` is for the watcher itself, after a restart."""
    event = {
        "event": "CREATED" if change.created else "DELETED",
        "parentTopic": parent,
        "liteTopic": change.topic,
        "timestamp": timestamp,
    }
    return orjson.dumps(event if change.topic_id is None else {**event, "topicId": change.topic_id})


def decode(value: bytes | None, parent: str) -> Change | None:
    """The change that a topic event announced; None for another parent's, and for what is no topic event."""
    try:
        event = parse_topic_event(value)
    except Rejected:
        return None
    if event.parent != parent or value is None:
        return None
    topic_id = orjson.loads(value).get("topicId") if event.created else None
    return Change(event.created, event.lite_topic, topic_id if isinstance(topic_id, str) else None)


class Turns:
    """Takes turns: asking after the ids of all topics at once would take most of an interval in a large cluster."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._last = ""

    def next(self, names: Collection[str], first: Iterable[str]) -> list[str]:
        """Those of `first` that are among the names, and as many others as it may be, from where it last ended."""
        ordered = sorted(names)
        start = bisect_right(ordered, self._last)
        others = [*ordered[start:], *ordered[:start]][: self._count]
        self._last = others[-1] if others else ""
        return list(dict.fromkeys([*(name for name in first if name in names), *others]))


class Selection:
    """Which Kafka topics are announced: neither Kafka's internal ones nor reexpand's own, and what the patterns let in.

    Args:
        own: the topics of reexpand.
        include: patterns of which one must match; none lets every topic in.
        exclude: patterns of which none may match.
        dialect: how the patterns are written.

    Raises:
        ConfigInvalid: a pattern is not valid in the dialect.
    """

    def __init__(
        self, own: Collection[str], include: Collection[str] = (), exclude: Collection[str] = (), dialect: str = "nats"
    ) -> None:
        self._own = frozenset(own)
        self._include = _index(include, dialect) if include else None
        self._exclude = _index(exclude, dialect)

    def __call__(self, name: str) -> bool:
        """Whether a topic is announced."""
        if name.startswith("__") or name in self._own:
            return False
        included = self._include is None or bool(self._include.match(name))
        return included and not self._exclude.match(name)


def _index(patterns: Collection[str], dialect: str) -> matcher.PatternIndex[None]:
    try:
        index: matcher.PatternIndex[None] = matcher.PatternIndex(dialect)
    except matcher.UnknownDialect as error:
        raise ConfigInvalid(f"--dialect: {error}") from None
    try:
        for pattern in patterns:
            index.add(pattern, None)
    except matcher.InvalidPattern as error:
        raise ConfigInvalid(f"{error}; the dialect is {dialect}, which --dialect changes") from None
    return index
