"""Announced topics of a parent, and the changes to announce after each answer of Kafka; independent of Kafka's client.

The announced state is the fold of the announced changes. After a restart a watcher restores it from its own events.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple, Self

import orjson

import matcher
from streaming.errors import ConfigInvalid, Rejected
from streaming.kafka.names import INTERNAL, is_everything, unmatchable
from streaming.records.parsing import parse_topic_event

DELETED_AFTER = 2
"""Consecutive answers without a topic before its deletion is announced, because one answer may be stale."""

ALL_DELETED_AFTER = 10
"""Consecutive answers without any topic before the deletion of all is announced; a starting broker may answer so."""


class TopicChange(NamedTuple):
    """Creation or deletion of a topic, with its id in the cluster, if known; tags and properties are for selectors."""

    created: bool
    topic: str
    topic_id: str | None = None
    tags: str | None = None
    properties: Mapping[str, str] = {}


class Presence(Enum):
    """State of one topic in one answer."""

    PRESENT = "present"
    ABSENT = "absent"
    UNCLEAR = "unclear"


class Listing(NamedTuple):
    """One answer of the cluster about all topics.

    Attributes:
        topics: existing topics with their ids; None for an id that was not requested or is unknown.
        unclear: topics that may or may not exist, for which no change is announced.
    """

    topics: Mapping[str, str | None]
    unclear: Collection[str] = frozenset()

    def identified(self, ids: Mapping[str, str | Presence]) -> Self:
        """Add the answers to a second request, for the ids of some topics.

        A topic missing in the second answer was created or deleted a moment ago.
        """
        lost = {name for name, found in ids.items() if isinstance(found, Presence) and found is not Presence.PRESENT}
        topics = {
            name: found if isinstance(found := ids.get(name), str) else None for name in self.topics if name not in lost
        }
        return self._replace(topics=topics, unclear={*self.unclear, *lost})


def listing(listed: Mapping[str, Presence], selected: Callable[[str], bool], witness: str) -> Listing | None:
    """Return the selected topics of an answer; None if the answer is implausible.

    The topic `witness` must exist: an answer without it is empty or partial.
    """
    if listed.get(witness) is not Presence.PRESENT:
        return None
    mine = {name: presence for name, presence in listed.items() if selected(name)}
    return Listing(
        {name: None for name, presence in mine.items() if presence is Presence.PRESENT},
        {name for name, presence in mine.items() if presence is Presence.UNCLEAR},
    )


class Watch:
    """Announced topics of one parent, and the number of consecutive answers that contradict each."""

    def __init__(self) -> None:
        self._announced: dict[str, str | None] = {}
        self._contradictions: dict[str, int] = {}

    @property
    def announced(self) -> Mapping[str, str | None]:
        """Topics that exist according to the events, with their ids."""
        return self._announced

    @property
    def doubtful(self) -> Collection[str]:
        """Announced topics that the last answers contradict; the next answers may confirm their deletion."""
        return self._contradictions.keys()

    def fold(self, change: TopicChange) -> None:
        """Apply an announced change, from now or from before a restart."""
        if change.created:
            self._announced[change.topic] = change.topic_id or self._announced.get(change.topic)
        else:
            self._announced.pop(change.topic, None)
            self._contradictions.pop(change.topic, None)

    def unanswered(self) -> None:
        """Reset the count of contradictions, because an answer is missing or implausible."""
        self._contradictions.clear()

    def compare(self, found: Listing) -> list[TopicChange]:
        """Return the changes to announce after an answer: first deletions, then creations, by name.

        Call `fold` with each written change before the next answer. Otherwise it is announced twice.
        """
        for name, known in self._announced.items():
            if known is None:
                self._announced[name] = found.topics.get(name)
        needed = DELETED_AFTER if any(name in found.topics for name in self._announced) else ALL_DELETED_AFTER
        self._contradictions = {
            name: count for name, known in self._announced.items() if (count := self._contradicted(name, known, found))
        }
        gone = sorted(name for name, count in self._contradictions.items() if count >= needed)
        # A topic deleted and created again counts as both.
        born = sorted(
            [*(found.topics.keys() - self._announced.keys()), *(name for name in gone if name in found.topics)]
        )
        return [
            *(TopicChange(False, name) for name in gone),
            *(TopicChange(True, name, found.topics[name]) for name in born),
        ]

    def _contradicted(self, name: str, known: str | None, found: Listing) -> int:
        """Return the number of consecutive answers in which this topic, with its announced id, does not exist."""
        former = self._contradictions.get(name, 0)
        if name in found.unclear:
            return 0
        if name not in found.topics:
            return former + 1
        seen = found.topics[name]
        if seen is None:
            return former  # a topic of this name exists, and the next answer contains its id
        return former + 1 if known != seen else 0


def encode(change: TopicChange, parent: str, timestamp: int) -> bytes:
    """Encode a change as a topic event; the watcher reads `topicId` after a restart."""
    event: dict[str, object] = {
        "event": "CREATED" if change.created else "DELETED",
        "parentTopic": parent,
        "liteTopic": change.topic,
        "timestamp": timestamp,
    }
    further = {"topicId": change.topic_id, "tags": change.tags, "properties": change.properties}
    return orjson.dumps({**event, **{name: value for name, value in further.items() if value}})


def decode(value: bytes | None, parent: str) -> TopicChange | None:
    """Decode the change in a topic event; None for events of another parent, and for invalid events."""
    try:
        event = parse_topic_event(value)
    except Rejected:
        return None
    if event.parent != parent or value is None:
        return None
    topic_id = orjson.loads(value).get("topicId") if event.created else None
    return TopicChange(event.created, event.lite_topic, topic_id if isinstance(topic_id, str) else None)


def in_words(event: bytes) -> str:
    """Return an event as a line of text for people."""
    fields = orjson.loads(event)
    return f"{fields['event']} {fields['liteTopic']}"


class RoundRobin:
    """Rotation over names in parts, because all ids of a large cluster would take most of an interval."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._last = ""

    def next(self, names: Collection[str], first: Iterable[str]) -> list[str]:
        """Return the names in `first`, and up to `count` others, starting after the end of the last call."""
        ordered = sorted(names)
        start = bisect_right(ordered, self._last)
        others = [*ordered[start:], *ordered[:start]][: self._count]
        self._last = others[-1] if others else ""
        return list(dict.fromkeys([*(name for name in first if name in names), *others]))


def topic_filter(
    own: Collection[str], include: Collection[str] = (), exclude: Collection[str] = (), dialect: str = "nats"
) -> Callable[[str], bool]:
    """Return a predicate of the Kafka topics to announce.

    They match a pattern of `include`, if any, and no pattern of `exclude`. Internal topics of Kafka, and the `own`
    topics of reexpand, are left out.

    Raises:
        ConfigInvalid: a pattern is invalid in the dialect, or no Kafka topic can match it.
    """
    left_out = INTERNAL.union(own)
    included, excluded = _predicate(include, dialect), _predicate(exclude, dialect)
    return lambda name: name not in left_out and (not include or included(name)) and not excluded(name)


def _predicate(patterns: Collection[str], dialect: str) -> Callable[[str], bool]:
    """Return a predicate of the Kafka topics that match; the catch-all pattern of a dialect matches every topic."""
    try:
        index: matcher.PatternIndex[None] = matcher.PatternIndex(dialect)
    except matcher.UnknownDialect as error:
        raise ConfigInvalid(f"--dialect: {error}") from None
    for pattern in patterns:
        try:
            reason = unmatchable(pattern, dialect)
        except matcher.InvalidPattern as error:
            raise ConfigInvalid(f"{error}; the dialect is {dialect}, which --dialect changes") from None
        if reason is not None:
            raise ConfigInvalid(f"the pattern {pattern!r} has {reason} The dialect is {dialect}; see --dialect.")
        index.add(pattern, None)
    match_all = any(is_everything(pattern, dialect) for pattern in patterns)
    return lambda name: match_all or bool(index.match(name))
