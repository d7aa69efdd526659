"""Detection of the ends of lite topics on a broker, which does not announce them."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from streaming.adapters.watch import TopicChange
from streaming.rocketmq.brokers import ParentBroker
from streaming.rocketmq.lite_topics import Life, LiteTopics

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
        """Return True if some of the known topics have ended.

        Args:
            known: number of known topics, from before the request.
            count: number of topics in the broker's response.
        """
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

    Args:
        name: name of the broker.
        topics: all lives.
        note: called with the changes to announce.
    """

    def __init__(self, name: str, topics: LiteTopics, note: Callable[[Iterable[TopicChange]], None]) -> None:
        self.pause_seconds = LOOK_SECONDS
        """Time until the next search."""

        self._name = name
        self._topics = topics
        self._note = note
        self._tally = Tally()
        self._turn: Iterator[Life] = iter(())
        self._asked_overdue = False
        self._search: Iterator[Life] | None = None

    async def look(self, broker: ParentBroker, lasts_ms: float) -> float:
        """Search for ended topics, and return the broker's present expiration time.

        Args:
            broker: the broker.
            lasts_ms: milliseconds after which an unused topic expires, from the last search.

        Raises:
            Unreachable: the broker does not answer.
            Refused: the broker has no such parent.
        """
        await self._probe_expected(broker, self._topics.due(self._name, now_ms(), lasts_ms), lasts_ms)
        known, asked = self._topics.count(self._name), time.monotonic()
        count, lasts_ms = await broker.parent_info()
        took = time.monotonic() - asked
        self.pause_seconds = min(max(LOOK_SECONDS, took / _LOOK_SHARE), _LONGEST_LOOK_SECONDS)
        if not self._tally.is_short(known, count):
            self._asked_overdue, self._search = False, None
            await self._take_turn(broker)
        elif not self._asked_overdue:
            # Usually an overdue topic, which the broker has removed now.
            self._asked_overdue, self.pause_seconds = True, 0
            await self._probe_expected(broker, self._topics.overdue(self._name), lasts_ms)
        else:
            self.pause_seconds = 0
            await self._go_on_searching(broker)
        return lasts_ms

    async def _take_turn(self, broker: ParentBroker) -> None:
        """Probe a few topics in rotation, to find an end that the tally misses."""
        some = list(islice(self._turn, _PROBES_A_CALM_LOOK))
        if not some:
            self._turn = iter(self._topics.lives(self._name))
        await self._probe(broker, some)

    async def _go_on_searching(self, broker: ParentBroker) -> None:
        """Probe the next part of all topics."""
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
    """Probe lives on a broker, and return the time of the last message of each living topic.

    Raises:
        Unreachable: the broker does not answer.
        Refused: the broker has no such parent.
    """
    probes = await broker.probe([life.topic for life in lives])
    return {life: probe.last_ms for life, probe in zip(lives, probes, strict=True) if probe.is_alive}


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
