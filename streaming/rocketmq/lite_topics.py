"""Existing lite topics by broker, the search for their ends, and the changes to announce.

A parent may be on several brokers, and a lite topic has a separate life on each of them. The first life announces the
topic, and the end of the last life announces its deletion.
"""

import heapq
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from itertools import islice
from typing import NamedTuple

from streaming.adapters.watch import TopicChange
from streaming.rocketmq.brokers import Message, ParentBroker

_OVERDUE_PARTS = 8
"""An overdue topic is probed again after an eighth of the time by which it is overdue."""

_MIN_PAUSE_MS = 1_000

LOOK_SECONDS = 1.0
"""Interval between two requests for the number of topics, in seconds."""

_LOOK_SHARE = 0.02
"""Maximum share of the broker's time that these requests take: it counts all topics for each of them."""

_LONGEST_LOOK_SECONDS = 10.0

PROBES_A_LOOK = 2_000
"""Number of probes per interval if some topics have ended early."""

_PROBES_A_CALM_LOOK = 20
"""Number of probes per interval if no topic seems to have ended."""

_USUAL_LOOKS = 10
"""Number of counts after which a surplus is the usual surplus."""


class Life(NamedTuple):
    """The life of a lite topic on a broker, since its first message; 0 if that message no longer exists."""

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
        """Record lives at the start with known births; yield changes to announce.

        Missing topics are not announced as deleted: they may be on brokers that have not registered yet.
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
        """Record a life of a missing topic; yield changes if it began after the announced life."""
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
        """Schedule a probe `lasts_ms` after a life's last message; overdue, a pause later."""
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
        return [*self._taken(self._lasts[broker], now_ms - lasts_ms), *self._taken(self._overdue[broker], now_ms)]

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


class Tally:
    """Comparison of a broker's number of lite topics with the number of known topics.

    The broker may count topics that the watcher does not know, so its number is usually higher by a surplus. Each end
    lowers the surplus. A birth raises it until the watcher reads the birth.
    """

    def __init__(self) -> None:
        self._recent = deque[int](maxlen=_USUAL_LOOKS)
        self._usual: int | None = None
        self._explained: int | None = None
        self._fell = False

    def is_short(self, known: int, count: int) -> bool:
        """Return True if some topics have ended that were known before the request."""
        surplus = count - known
        self._recent.append(surplus)
        if self._usual is None:
            self._usual = max(0, surplus)  # all known topics existed a moment ago
        if len(self._recent) == _USUAL_LOOKS:
            self._usual = max(self._usual, min(self._recent))
        if self._explained is not None and surplus < self._explained:
            self._fell, self._explained = True, surplus
        return surplus < self._usual

    def search(self) -> None:
        """Begin a search through all known topics."""
        self._fell, self._explained = False, self._recent[-1]

    def found(self, ends: int) -> None:
        """Record ends that the search found."""
        if self._explained is not None:
            self._explained += ends

    def searched(self) -> None:
        """Complete the search. The present surplus becomes the usual one, unless more topics ended meanwhile."""
        if not self._fell:
            self._usual = self._recent[-1]
        self._explained = None


class Deaths:
    """Search for ended topics on a broker.

    Topics are probed when they may have expired. If the broker counts fewer topics than expected, overdue topics are
    probed first, then all others until the difference is explained. A few topics are probed in every interval.
    """

    def __init__(self, name: str, topics: LiteTopics, note: Callable[[Iterable[TopicChange]], None]) -> None:
        # Time until the next search.
        self.pause_seconds = LOOK_SECONDS

        self._name = name
        self._topics = topics
        self._note = note
        self._tally = Tally()
        self._turn: Iterator[Life] = iter(())
        self._asked_overdue = False
        self._search: Iterator[Life] | None = None

    async def look(self, broker: ParentBroker, lasts_ms: float) -> float:
        """Search for ended topics; return the present expiration time, in ms."""
        await self._probe_expected(broker, self._topics.due(self._name, now_ms(), lasts_ms), lasts_ms)
        known, asked = self._topics.count(self._name), time.monotonic()
        count, lasts_ms = await broker.parent_info()
        took = time.monotonic() - asked
        self.pause_seconds = min(max(LOOK_SECONDS, took / _LOOK_SHARE), _LONGEST_LOOK_SECONDS)
        if not self._tally.is_short(known, count):
            self._asked_overdue, self._search = False, None
            # Probe a few topics in rotation, to find an end that the tally misses.
            some = list(islice(self._turn, _PROBES_A_CALM_LOOK))
            if not some:
                self._turn = iter(self._topics.lives(self._name))
            await self._probe(broker, some)
        elif not self._asked_overdue:
            # Usually an overdue topic, which the broker has removed now.
            self._asked_overdue, self.pause_seconds = True, 0
            await self._probe_expected(broker, self._topics.overdue(self._name), lasts_ms)
        else:
            self.pause_seconds = 0
            await self._go_on_searching(broker)
        return lasts_ms

    async def _go_on_searching(self, broker: ParentBroker) -> None:
        if self._search is None:
            self._search = iter(self._topics.lives(self._name))
            self._tally.search()
        some = list(islice(self._search, PROBES_A_LOOK))
        try:
            alive = await self._probe(broker, some)
        except BaseException:
            self._search = None  # so that the next search includes these topics
            raise
        self._tally.found(len(some) - len(alive))
        if len(some) < PROBES_A_LOOK:
            self._tally.searched()
            self._asked_overdue, self._search = False, None

    async def _probe_expected(self, broker: ParentBroker, lives: list[Life], lasts_ms: float) -> None:
        """Probe topics past their expected end. Reschedule those still alive."""
        lasts: dict[Life, float] = dict.fromkeys(lives, now_ms() - lasts_ms)  # if the broker does not answer
        try:
            lasts = await self._probe(broker, lives)
        finally:
            for life, last_ms in lasts.items():
                self._topics.expect(life, now_ms(), last_ms, lasts_ms)

    async def _probe(self, broker: ParentBroker, lives: list[Life]) -> dict[Life, float]:
        """Probe lives, record their ends, and return the time of the last message of each living topic."""
        alive = await living(broker, lives)
        for life in lives:
            if life not in alive:
                self._note(self._topics.ended(life))
        return alive


async def living(broker: ParentBroker, lives: list[Life]) -> dict[Life, float]:
    """Probe lives on a broker, and return the time of the last message of each living topic."""
    lasts = await broker.probe([life.topic for life in lives])
    return {life: lasts[life.topic] for life in lives if life.topic in lasts}


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
