"""Deaths of the lite topics on one broker, which tells nobody of them."""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from streaming.adapters.rocketmq.brokers import ParentBroker
from streaming.adapters.rocketmq.lite_topics import Life, LiteTopics
from streaming.adapters.rocketmq.tally import Tally
from streaming.adapters.watch import TopicChange

LOOK_SECONDS = 1.0
"""Time between two looks at the number of topics, in seconds."""

_LOOK_SHARE = 0.02
"""Most of the broker's time that looks may take: it counts all topics for each."""

_LONGEST_LOOK_SECONDS = 10.0

PROBES_A_LOOK = 2_000
"""Number of topics that are asked for between two looks where some have ended before their time."""

_PROBES_A_CALM_LOOK = 20
"""Number of topics that are asked for between two looks where nothing says that one has ended."""


class Deaths:
    """Looks for ends on one broker.

    Topics are asked for when their time is over. Where the broker counts fewer, so are those that have outlived their
    time, then all, until as many are found. A few are asked for in any case.

    Args:
        name: name of the broker.
        topics: all lives.
        note: called with the changes to announce.
    """

    def __init__(self, name: str, topics: LiteTopics, note: Callable[[Iterable[TopicChange]], None]) -> None:
        self.pause_seconds = LOOK_SECONDS
        """Time until the next look."""

        self._name = name
        self._topics = topics
        self._note = note
        self._tally = Tally()
        self._turn: Iterator[Life] = iter(())
        self._asked_overdue = False
        self._search: Iterator[Life] | None = None

    async def look(self, broker: ParentBroker, lasts_ms: float) -> float:
        """Look once.

        Args:
            broker: the broker.
            lasts_ms: time that a topic goes on without a message, as of the last look.

        Returns:
            The same as of now.

        Raises:
            Unreachable: the broker does not answer.
            Refused: it has no such parent.
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
            # Mostly a time was over before, and the broker has removed the topic now.
            self._asked_overdue, self.pause_seconds = True, 0
            await self._probe_expected(broker, self._topics.overdue(self._name), lasts_ms)
        else:
            self.pause_seconds = 0
            await self._go_on_searching(broker)
        return lasts_ms

    async def _take_turn(self, broker: ParentBroker) -> None:
        """Ask for a few topics: an end that the tally misses is found when its turn comes."""
        some = list(islice(self._turn, _PROBES_A_CALM_LOOK))
        if not some:
            self._turn = iter(self._topics.lives(self._name))
        await self._probe(broker, some)

    async def _go_on_searching(self, broker: ParentBroker) -> None:
        """Ask for the next part of all topics."""
        if self._search is None:
            self._search = iter(self._topics.lives(self._name))
            self._tally.search()
        some = list(islice(self._search, PROBES_A_LOOK))
        try:
            alive = await self._probe(broker, some)
        except BaseException:
            self._search = None  # so that the next one begins with these again
            raise
        self._tally.found(len(some) - len(alive))
        if len(some) < PROBES_A_LOOK:
            self._tally.searched()
            self._asked_overdue, self._search = False, None

    async def _probe_expected(self, broker: ParentBroker, lives: list[Life], lasts_ms: float) -> None:
        """Ask for topics whose time is over, and expect those that go on anew."""
        lasts: dict[Life, float] = dict.fromkeys(lives, now_ms() - lasts_ms)  # where the broker does not answer
        try:
            lasts = await self._probe(broker, lives)
        finally:
            for life, last_ms in lasts.items():
                self._topics.expect(life, now_ms(), last_ms, lasts_ms)

    async def _probe(self, broker: ParentBroker, lives: list[Life]) -> dict[Life, float]:
        """Ask for lives, take over the end of those that have ended, and return the last message of the others."""
        alive = await living(broker, lives)
        for life in lives:
            if life not in alive:
                self._note(self._topics.ended(life))
        return alive


async def living(broker: ParentBroker, lives: list[Life]) -> dict[Life, float]:
    """Return those of some lives on a broker that go on, each with the time of its last message.

    Raises:
        Unreachable: the broker does not answer.
        Refused: it has no such parent.
    """
    probes = await broker.probe([life.topic for life in lives])
    return {life: probe.last_ms for life, probe in zip(lives, probes, strict=True) if probe.is_alive}


def now_ms() -> int:
    """Return the present time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
