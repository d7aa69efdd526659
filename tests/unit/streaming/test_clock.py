"""When a tick is written, and when it is left out."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from streaming.config import Settings, load
from streaming.errors import NotWritten
from streaming.spark import clock
from streaming.spark.clock import Clock
from tests.support.processes import eventually

INTERVAL_MS = 5
LONG_SECONDS = 20 * INTERVAL_MS / 1_000
"""In which many ticks would be written."""


@dataclass
class Source:
    """How far a source of the query is behind."""

    metrics: dict[str, str]


@dataclass
class Progress:
    """What a query says of its last micro-batch."""

    sources: list[Source]


@dataclass
class Query:
    """A query that has read everything."""

    status: dict[str, Any] = field(default_factory=lambda: {"isDataAvailable": False})
    lastProgress: Progress | None = None  # noqa: N815 - Spark's name


class Kafka:
    """What takes the ticks, or fails to."""

    def __init__(self) -> None:
        self.opened = self.closed = self.tried = 0
        self.away = False
        self.ticks: list[tuple[str, str, str]] = []

    def __enter__(self) -> Self:
        self.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def send(self, topic: str, key: str, value: str) -> None:
        """Takes a record."""
        self.tried += 1
        if self.away:
            raise NotWritten(f"{topic}: no broker")
        self.ticks.append((topic, key, value))


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()
    monkeypatch.setattr(clock, "Producer", lambda *_: made)
    return made


def settings(interval_ms: int = INTERVAL_MS) -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": "/c", "clock": "time", "tick_interval_ms": interval_ms})


def ticking(query: Query, interval_ms: int = INTERVAL_MS) -> Clock:
    spark: Any = None
    running: Any = query
    return Clock(spark, settings(interval_ms), running)


def test_ticks_say_how_late_it_is(kafka: Kafka) -> None:
    before = int(time.time() * 1_000)
    with ticking(Query()):
        assert eventually(lambda: len(kafka.ticks) >= 3)
    times = [json.loads(value)["tick"] for _, _, value in kafka.ticks]
    assert before <= times[0] <= times[-1] <= time.time() * 1_000
    assert times == sorted(times)
    assert {(topic, key) for topic, key, _ in kafka.ticks} == {("time", "tick")}


def test_a_closed_clock_ticks_no_more(kafka: Kafka) -> None:
    with ticking(Query()):
        assert eventually(lambda: bool(kafka.ticks))
    assert kafka.opened == kafka.closed == 1
    count = len(kafka.ticks)
    time.sleep(LONG_SECONDS)
    assert len(kafka.ticks) == count


def test_a_clock_that_is_closed_does_not_wait_for_its_next_tick(kafka: Kafka) -> None:
    began = time.monotonic()
    with ticking(Query(), 60_000):
        pass
    assert time.monotonic() - began < 10
    assert kafka.ticks == []


def test_without_an_interval_there_is_no_clock(kafka: Kafka) -> None:
    """No thread, no producer, no tick."""
    with ticking(Query(), 0):
        assert "clock" not in {thread.name for thread in threading.enumerate()}
        time.sleep(LONG_SECONDS)
    assert (kafka.opened, kafka.ticks) == (0, [])


def test_a_job_that_is_behind_gets_no_tick(kafka: Kafka) -> None:
    """It would overtake the requests of clients that have asked in time; later there are ticks again."""
    query = Query({"isDataAvailable": True}, Progress([Source({}), Source({"maxOffsetsBehindLatest": "7"})]))
    with ticking(query):
        time.sleep(LONG_SECONDS)
        assert kafka.ticks == []
        query.lastProgress = None  # its first micro-batch runs
        time.sleep(LONG_SECONDS)
        assert kafka.ticks == []
        query.lastProgress = Progress([Source({}), Source({"maxOffsetsBehindLatest": "0"})])
        assert eventually(lambda: bool(kafka.ticks))


def test_a_tick_that_cannot_be_written_is_left_out(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """A warning says so, and the next one says as much."""
    kafka.away = True
    with caplog.at_level(logging.WARNING, "reexpand"), ticking(Query()):
        assert eventually(lambda: kafka.tried >= 2)
        assert kafka.ticks == []
        kafka.away = False
        assert eventually(lambda: bool(kafka.ticks))
    assert "a tick cannot be written: time: no broker" in caplog.messages
