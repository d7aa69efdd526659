"""When a tick is written, which time it tells, and when it is left out."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import MagicMock

import pytest

from streaming.config import Settings, load
from streaming.errors import JobFailed, KafkaUnavailable, NotWritten
from streaming.spark import clock, positions
from streaming.spark.clock import MARGIN_MS, Clock
from tests.support.processes import eventually
from tests.unit.spark.conftest import Files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streaming.kafka.facts import Offsets

INTERVAL_MS = 5
HOUR_MS = 3_600_000
REQUESTS = "lite-subscription-events"


class Kafka:
    """What takes the ticks, or fails to; its clock is an hour behind that of this machine."""

    def __init__(self) -> None:
        self.opened = self.closed = self.tried = 0
        self.away = False
        self.ends_fail: Exception | None = None
        self.written: list[tuple[str, str, int]] = []
        self.late_ms = HOUR_MS
        self.behind: dict[str, dict[int, int]] = {"time": {0: 0}}
        self.read: Offsets = {}
        self.asked = self.looks = 0

    def is_waited_for(self, asked: int) -> bool:
        """Return True when the clock has asked so often for the ends, and checked again and again if they are read."""
        if not eventually(lambda: self.asked == asked):
            return False
        looks = self.looks
        return eventually(lambda: self.looks > looks + 20)

    def committed(self, _: object) -> Offsets:
        self.looks += 1
        return self.read

    @property
    def ticks(self) -> list[int]:
        return [tick for _, _, tick in self.written if tick]

    @property
    def now_ms(self) -> int:
        return int(time.time() * 1_000) - self.late_ms

    def __enter__(self) -> Self:
        self.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def send(self, topic: str, key: str, value: str) -> int:
        self.tried += 1
        if self.away:
            raise NotWritten(f"{topic}: no broker")
        self.written.append((topic, key, json.loads(value)["tick"]))
        return self.now_ms

    def remind(self, *_: object) -> None:
        """Nothing was lost."""

    def ends(self, topics: Sequence[str]) -> Offsets:
        if self.ends_fail is not None:
            raise self.ends_fail
        found = {topic: dict(offsets) for topic, offsets in self.behind.items() if topic in topics}
        self.asked += 1
        return found


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()
    monkeypatch.setattr(clock, "Producer", lambda *_: made)
    monkeypatch.setattr(clock, "KafkaAdmin", lambda *_: made)
    monkeypatch.setattr(clock, "remind", made.remind)
    monkeypatch.setattr(positions, "committed", made.committed)
    monkeypatch.setattr(clock, "_POLL_SECONDS", 0.001)
    return made


def settings(interval_ms: int = INTERVAL_MS) -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": "/c", "clock": "time", "tick_interval_ms": interval_ms})


def ticking(interval_ms: int = INTERVAL_MS) -> Clock:
    nothing: Any = None
    return Clock(nothing, settings(interval_ms), nothing)


@pytest.mark.rule("time-follows-reading", "drivers-clock")
def test_ticks_tell_the_time_of_the_broker(kafka: Kafka) -> None:
    """Whatever the clock of this machine says, and never more than that; also when it is set back."""
    with ticking():
        assert eventually(lambda: len(kafka.ticks) >= 3)
        told = kafka.ticks[:]
        assert kafka.now_ms - HOUR_MS // 2 < told[0] <= told[-1] <= kafka.now_ms - MARGIN_MS
        assert told == sorted(told)
        kafka.late_ms *= 2
        assert eventually(lambda: kafka.ticks[-1] <= kafka.now_ms - MARGIN_MS)
    assert {(topic, key) for topic, key, _ in kafka.written} == {("time", "tick")}


def test_it_knows_when_the_present_was_told(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks stay behind the broker's time, so the first ones tell what was before the start."""
    began = kafka.now_ms
    monkeypatch.setattr(clock, "MARGIN_MS", HOUR_MS)
    with ticking() as told:
        assert eventually(lambda: bool(kafka.ticks))
        assert not told.has_told_present
        monkeypatch.setattr(clock, "MARGIN_MS", 0)
        assert eventually(lambda: told.has_told_present)
        assert kafka.ticks[-1] >= began
    with ticking(0) as none:
        assert none.has_told_present


def test_a_closed_clock_ticks_no_more(kafka: Kafka) -> None:
    """The first record tells no time: it asks the broker for its own. The end does not wait for the next tick."""
    with ticking(HOUR_MS) as closed:
        assert eventually(lambda: bool(kafka.written))
    assert kafka.written == [("time", "tick", 0)]
    assert kafka.opened == kafka.closed == 2
    assert not closed._thread.is_alive()


def test_without_an_interval_there_is_no_clock(kafka: Kafka) -> None:
    """No thread, no producer, no tick."""
    with ticking(0):
        assert "clock" not in {thread.name for thread in threading.enumerate()}
    assert (kafka.opened, kafka.written) == (0, [])


@pytest.mark.rule("time-follows-reading", "behind-inputs")
@pytest.mark.parametrize("read", [{0: 7, 1: 2}, {0: 7}], ids=["behind", "a new partition"])
def test_no_time_passes_before_all_is_read_that_was_there(kafka: Kafka, read: dict[int, int]) -> None:
    """Not even if the last micro-batch has read most of it; the time is that at which it was there."""
    kafka.behind = {"time": {0: 4}, REQUESTS: {0: 7, 1: 3}}
    kafka.read = {"time": {0: 4}, REQUESTS: read}
    with ticking():
        assert kafka.is_waited_for(2)  # the ends of the clock topic, and of all inputs
        assert kafka.ticks == []
        kafka.behind = {"time": {0: 5}, REQUESTS: {0: 8, 1: 3}}  # what came meanwhile is for the next tick
        late = kafka.now_ms
        kafka.read = {"time": {0: 4}, REQUESTS: {0: 7, 1: 3}}
        assert kafka.is_waited_for(3)
        assert len(kafka.ticks) == 1
        assert kafka.ticks[0] <= late - MARGIN_MS
        kafka.read = kafka.behind
        assert eventually(lambda: len(kafka.ticks) > 1)


def test_a_clock_that_waits_for_long_says_for_what(
    kafka: Kafka, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once."""
    monkeypatch.setattr(clock, "_COMPLAINT_SECONDS", 0)
    kafka.behind = {REQUESTS: {3: 7}}
    with caplog.at_level(logging.INFO, "reexpand"), ticking():
        assert kafka.is_waited_for(2)
    assert caplog.messages == [
        "no time passes until the inputs are read: lite-subscription-events[3] is read up to 0 of 7"
    ]


@pytest.mark.rule("missed-tick")
def test_a_tick_is_left_out_while_no_broker_answers(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """A warning says so, and the next one says as much."""
    kafka.away = True
    kafka.ends_fail = KafkaUnavailable("no broker")
    with caplog.at_level(logging.WARNING, "reexpand"), ticking() as running:
        assert eventually(lambda: "no time passes: no broker" in caplog.messages)
        kafka.ends_fail = None
        assert eventually(lambda: kafka.tried >= 2)
        assert kafka.written == []
        assert "a tick cannot be written: time: no broker" in caplog.messages
        kafka.away = False
        assert eventually(lambda: bool(kafka.ticks))
        caplog.clear()
        kafka.ends_fail = KafkaUnavailable("no broker again")
        assert eventually(lambda: "no time passes: no broker again" in caplog.messages)
        assert not running.has_failed


@pytest.mark.rule("failed-clock")
def test_a_clock_never_ends_silently(kafka: Kafka) -> None:
    """Whatever ends it is told to the job, which then ends."""
    kafka.ends_fail = ZeroDivisionError("a defect\nwith details")
    with ticking() as running:
        assert eventually(lambda: running.has_failed)
    with pytest.raises(JobFailed, match=r"the clock of the job has stopped, .*: ZeroDivisionError: a defect\. Start"):
        running.check()


@pytest.mark.parametrize(
    ("note", "sent"), [(None, 0), (b'{"remind":false}', 0), (b'{"remind":true}', 1), (b"", 1), (b"[]", 1), (b"{}", 1)]
)
def test_alarms_are_written_again_if_the_note_says_so_or_cannot_be_read(
    note: bytes | None, sent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that lost power may leave it empty; twice does no harm."""
    producer = MagicMock()
    producer.__enter__.return_value.send_all.return_value = 1
    monkeypatch.setattr(clock, "CheckpointFiles", lambda *_: Files(tmp_path))
    monkeypatch.setattr(clock, "Producer", lambda *_: producer)
    monkeypatch.setattr(clock, "_reminders", lambda *_: iter(()))
    if note is not None:
        (tmp_path / clock.NOTE).write_bytes(note)
    nothing: Any = None
    clock.remind(nothing, settings())
    clock.remind(nothing, settings())
    assert producer.__enter__.return_value.send_all.call_count == sent
