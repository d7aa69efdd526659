"""How far the job is behind its inputs, in records and in seconds."""

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from streaming.kafka.facts import Offsets

_RATE_SECONDS: Final = 20.0
"""Time over which the rate of reading is averaged, in seconds."""


class InputLag(NamedTuple):
    """Lag of one input: unread records, and the time for which the oldest of them has waited, in seconds."""

    records: int
    seconds: float


class LagMeter:
    """Meter of the lag of each input.

    The ends of the inputs are looked at now and then. A partition is behind since the last look at which it was not,
    and by no more than the age of the newest record that was read of it. Both are upper bounds, and the smaller one
    counts.

    Args:
        now: the time in seconds since the epoch.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._began = now()
        self._level: dict[tuple[str, int], float] = {}
        self._newest: dict[tuple[str, int], float] = {}
        self._reads: list[tuple[float, int]] = []
        self.lags: dict[str, InputLag] = {}

    @property
    def records(self) -> int:
        """Unread records of all inputs."""
        return sum(lag.records for lag in self.lags.values())

    @property
    def seconds(self) -> float:
        """Largest lag of an input, in seconds."""
        return max((lag.seconds for lag in self.lags.values()), default=0.0)

    @property
    def rate(self) -> float:
        """Records read a second, over the last looks."""
        if len(self._reads) < 2:  # noqa: PLR2004 - two looks make a rate
            return 0.0
        (began, first), (ended, last) = self._reads[0], self._reads[-1]
        return max(0.0, (last - first) / (ended - began)) if ended > began else 0.0

    def learn_newest(self, topic: str, partition: int, timestamp: float) -> None:
        """Take over the time of a record that was read, in seconds since the epoch."""
        place = (topic, partition)
        self._newest[place] = max(timestamp, self._newest.get(place, timestamp))

    def look(self, ends: Offsets, read: Offsets) -> None:
        """Compare the ends of the inputs with the positions up to which micro-batches have read them."""
        now = self._now()
        self.lags = {topic: self._lag(topic, offsets, read.get(topic, {}), now) for topic, offsets in ends.items()}
        total = sum(sum(offsets.values()) for offsets in read.values())
        self._reads = [each for each in self._reads if now - each[0] <= _RATE_SECONDS]
        self._reads.append((now, total))

    def _lag(self, topic: str, ends: Mapping[int, int], read: Mapping[int, int], now: float) -> InputLag:
        records, seconds = 0, 0.0
        for number, end in ends.items():
            place, unread = (topic, number), max(0, end - read.get(number, 0))
            if not unread:
                self._level[place] = now
                continue
            since = [times[place] for times in (self._level, self._newest) if place in times]
            seconds = max(seconds, now - max(since, default=self._began))
            records += unread
        return InputLag(records, seconds)
