"""Existing lite topics by broker, and the changes to announce. Independent of any connection.

A parent may be on several brokers, and a lite topic has a separate life on each of them. The first life announces the
topic, and the end of the last life announces its deletion.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import NamedTuple

from streaming.adapters.watch import TopicChange
from streaming.rocketmq.brokers import Message

_OVERDUE_PARTS = 8
"""An overdue topic is probed again after an eighth of the time by which it is overdue."""

_MIN_PAUSE_MS = 1_000


class Life(NamedTuple):
    """The life of a lite topic on a broker.

    Attributes:
        broker: name of the broker.
        topic: name of the lite topic.
        born_ms: time at which its first message was stored; 0 if that message no longer exists.
    """

    broker: str
    topic: str
    born_ms: int


class LiteTopics:
    """Lives of all lite topics of a parent.

    Args:
        announced: topics that were announced before a restart, with their ids.
    """

    def __init__(self, announced: Mapping[str, str | None]) -> None:
        self._missing = dict(announced)
        self._lives: dict[str, dict[str, Life]] = {}
        self._counts: dict[str, int] = {}
        self._lasts: dict[str, list[tuple[float, Life]]] = defaultdict(list)
        self._overdue: dict[str, list[tuple[float, Life]]] = defaultdict(list)

    @property
    def missing(self) -> KeysView[str]:
        """Topics that were announced before a restart and not found on a broker since."""
        return self._missing.keys()

    def __len__(self) -> int:
        return len(self._lives)

    def count(self, broker: str) -> int:
        """Return the number of topics on a broker."""
        return self._counts.get(broker, 0)

    def lives(self, broker: str) -> list[Life]:
        """Return all lives on a broker."""
        return [lives[broker] for lives in self._lives.values() if broker in lives]

    def found(self, alive: Iterable[tuple[Life, Message | None]]) -> Iterator[TopicChange]:
        """Record the topics that exist at the start; yield the differences from the announced topics.

        Missing topics are not announced as deleted: they may be on brokers that have not registered yet.

        Args:
            alive: all lives, each with its birth message if known.
        """
        births: dict[str, Message | None] = {}
        for life, birth in sorted(alive, key=lambda found: found[0].born_ms):
            self._add(life)
            births.setdefault(life.topic, birth)
        known = {topic: self._missing.pop(topic) for topic in sorted(self._lives) if topic in self._missing}
        reborn = [topic for topic, topic_id in known.items() if self._is_later(topic, topic_id)]
        yield from (TopicChange(False, topic) for topic in reborn)
        for topic in sorted({*reborn, *(self._lives.keys() - known.keys())}):
            yield self._created(topic, births[topic])

    def back(self, life: Life, birth: Message | None) -> Iterator[TopicChange]:
        """Record a life of a missing topic; yield changes if it began after the announced life.

        Args:
            life: the life.
            birth: its birth message if known.
        """
        topic_id = self._missing.pop(life.topic)
        self._add(life)
        if self._is_later(life.topic, topic_id):
            yield TopicChange(False, life.topic)
            yield self._created(life.topic, birth)

    def give_up(self) -> Iterator[TopicChange]:
        """Yield the deletions of the missing topics."""
        missing, self._missing = sorted(self._missing), {}
        yield from (TopicChange(False, topic) for topic in missing)

    def born(self, broker: str, birth: Message) -> Iterator[TopicChange]:
        """Record a birth and yield the changes to announce. Repeated births are ignored."""
        if birth.topic in self._missing:
            yield from self.back(Life(broker, birth.topic, birth.stored_ms), birth)
            return
        lives = self._lives.get(birth.topic, {})
        former = lives.get(broker)
        if former is not None and birth.stored_ms <= former.born_ms:
            return
        lives_elsewhere = bool(lives.keys() - {broker})
        self._add(Life(broker, birth.topic, birth.stored_ms))
        if lives_elsewhere:
            return
        if former is not None:  # its end was not seen
            yield TopicChange(False, birth.topic)
        yield self._created(birth.topic, birth)

    def ended(self, life: Life) -> Iterator[TopicChange]:
        """Record the end of a life, unless a new life has begun since; yield the changes to announce."""
        lives = self._lives.get(life.topic, {})
        if lives.get(life.broker) != life:
            return
        del lives[life.broker]
        self._counts[life.broker] -= 1
        if not lives:
            del self._lives[life.topic]
            yield TopicChange(False, life.topic)

    def expect(self, life: Life, now_ms: float, last_ms: float, lasts_ms: float) -> None:
        """Schedule the next probe of a life: at its expiration, or after a pause if it is overdue.

        Args:
            life: the life.
            now_ms: current time.
            last_ms: time of its last message.
            lasts_ms: time without a message after which a life expires.
        """
        end_ms = last_ms + lasts_ms
        if end_ms > now_ms:
            heapq.heappush(self._lasts[life.broker], (last_ms, life))
        else:
            pause = max(_MIN_PAUSE_MS, (now_ms - end_ms) / _OVERDUE_PARTS)
            heapq.heappush(self._overdue[life.broker], (now_ms + pause, life))

    def due(self, broker: str, now_ms: float, lasts_ms: float) -> list[Life]:
        """Take the lives on a broker that may have ended. The caller reschedules lives that continue.

        The expiration time may have changed since `expect`.
        """
        return [
            *self._taken(self._lasts[broker], now_ms - lasts_ms),
            *self._taken(self._overdue[broker], now_ms),
        ]

    def overdue(self, broker: str) -> list[Life]:
        """Take the overdue lives on a broker. The caller reschedules lives that continue."""
        return list(self._taken(self._overdue[broker], math.inf))

    def _taken(self, noted: list[tuple[float, Life]], until_ms: float) -> Iterator[Life]:
        while noted and noted[0][0] <= until_ms:
            _, life = heapq.heappop(noted)
            if self._lives.get(life.topic, {}).get(life.broker) == life:
                yield life

    def _add(self, life: Life) -> None:
        lives = self._lives.setdefault(life.topic, {})
        if life.broker not in lives:
            self._counts[life.broker] = self._counts.get(life.broker, 0) + 1
        lives[life.broker] = life

    def _is_later(self, topic: str, topic_id: str | None) -> bool:
        """Return True if all lives of a topic began after the announced life."""
        announced = int(topic_id) if topic_id is not None and topic_id.isdecimal() else None
        return announced is not None and min(life.born_ms for life in self._lives[topic].values()) > announced

    def _created(self, topic: str, birth: Message | None) -> TopicChange:
        first = min(life.born_ms for life in self._lives[topic].values())
        if birth is None:
            return TopicChange(True, topic, str(first))
        return TopicChange(True, topic, str(first), birth.tags, birth.properties)
