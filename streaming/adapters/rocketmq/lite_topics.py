"""The lite topics that exist, by broker, and the changes to announce; independent of any connection.

A parent may lie on several brokers, and each of them has lives of its own of a lite topic. The topic is announced with
the first of them, and deleted with the last one.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import NamedTuple

from streaming.adapters.rocketmq.messages import Message
from streaming.adapters.watch import TopicChange

_OVERDUE_PARTS = 8
"""A topic that outlives its time is asked for again after an eighth of the time by which it does."""

_MIN_PAUSE_MS = 1_000


class Life(NamedTuple):
    """The life of a lite topic on one broker.

    Attributes:
        broker: name of the broker.
        topic: name of the lite topic.
        born_ms: time at which its first message was stored; 0 where that message is gone.
    """

    broker: str
    topic: str
    born_ms: int


class LiteTopics:
    """Lives of all lite topics of a parent.

    Args:
        announced: topics that exist for readers of the events, with their ids, from before a restart.
    """

    def __init__(self, announced: Mapping[str, str | None]) -> None:
        self._missing = dict(announced)
        self._lives: dict[str, dict[str, Life]] = {}
        self._counts: dict[str, int] = {}
        self._lasts: dict[str, list[tuple[float, Life]]] = defaultdict(list)
        self._overdue: dict[str, list[tuple[float, Life]]] = defaultdict(list)

    @property
    def missing(self) -> KeysView[str]:
        """Topics that were announced before a restart, and that no broker has turned out to have."""
        return self._missing.keys()

    def __len__(self) -> int:
        return len(self._lives)

    def count(self, broker: str) -> int:
        """Return the number of topics that live on a broker."""
        return self._counts.get(broker, 0)

    def lives(self, broker: str) -> list[Life]:
        """Return all lives on a broker."""
        return [lives[broker] for lives in self._lives.values() if broker in lives]

    def found(self, alive: Iterable[tuple[Life, Message | None]]) -> Iterator[TopicChange]:
        """Take over what exists at the start, and yield how it differs from what was announced.

        What is `missing` may be on brokers that have not registered yet, so it is not announced as deleted.

        Args:
            alive: all lives, each with the message of its birth where that is known.
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
        """Take over a life of a missing topic; yield what is to be announced if it is a later one.

        Args:
            life: the life.
            birth: message of its birth where that is known.
        """
        topic_id = self._missing.pop(life.topic)
        self._add(life)
        if self._is_later(life.topic, topic_id):
            yield TopicChange(False, life.topic)
            yield self._created(life.topic, birth)

    def give_up(self) -> Iterator[TopicChange]:
        """Yield the ends of the missing topics."""
        missing, self._missing = sorted(self._missing), {}
        yield from (TopicChange(False, topic) for topic in missing)

    def born(self, broker: str, birth: Message) -> Iterator[TopicChange]:
        """Take over a birth, and yield what is to be announced; one that is known already changes nothing."""
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
        """Take over the end of a life, unless another one has begun meanwhile; yield what is to be announced."""
        lives = self._lives.get(life.topic, {})
        if lives.get(life.broker) != life:
            return
        del lives[life.broker]
        self._counts[life.broker] -= 1
        if not lives:
            del self._lives[life.topic]
            yield TopicChange(False, life.topic)

    def expect(self, life: Life, now_ms: float, last_ms: float, lasts_ms: float) -> None:
        """Note when a life may end: some time after its last message, or some time after now where that has passed.

        Args:
            life: the life.
            now_ms: present time.
            last_ms: time of its last message.
            lasts_ms: time that a life goes on without a message.
        """
        end_ms = last_ms + lasts_ms
        if end_ms > now_ms:
            heapq.heappush(self._lasts[life.broker], (last_ms, life))
        else:
            pause = max(_MIN_PAUSE_MS, (now_ms - end_ms) / _OVERDUE_PARTS)
            heapq.heappush(self._overdue[life.broker], (now_ms + pause, life))

    def due(self, broker: str, now_ms: float, lasts_ms: float) -> list[Life]:
        """Return the lives on a broker that may have ended by now; expect anew those that go on.

        The time that a life goes on without a message may have changed since `expect`.
        """
        return [
            *self._taken(self._lasts[broker], now_ms - lasts_ms),
            *self._taken(self._overdue[broker], now_ms),
        ]

    def overdue(self, broker: str) -> list[Life]:
        """Return the lives on a broker that have outlived their time; expect anew those that go on."""
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
        """Tell whether all lives of a topic began after the one that was announced."""
        announced = int(topic_id) if topic_id is not None and topic_id.isdecimal() else None
        return announced is not None and min(life.born_ms for life in self._lives[topic].values()) > announced

    def _created(self, topic: str, birth: Message | None) -> TopicChange:
        first = min(life.born_ms for life in self._lives[topic].values())
        if birth is None:
            return TopicChange(True, topic, str(first))
        return TopicChange(True, topic, str(first), birth.tags, birth.properties)
