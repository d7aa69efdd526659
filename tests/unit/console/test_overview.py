"""The job as a console sees it: from its own reports, and from its traces in Kafka."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from starlette.testclient import TestClient

from streaming.config import load
from streaming.console import looking
from streaming.console import overview as module
from streaming.console.app import ConsoleSources, console
from streaming.console.overview import LEVELS, JobWatch, own_state, slowest, slowest_of
from streaming.kafka.permissions import lag_group
from streaming.monitor.batch import BatchReport, LagMeter
from streaming.monitor.health import Condition, Health
from streaming.worker.rows import KeyFacts
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated

CLOCK = "lite-clock"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_LOOK_SECONDS", 0.05)


@contextmanager
def watched(broker: Simulated) -> Iterator[Callable[[], dict[str, Any]]]:
    settings = load({"bootstrap_servers": broker.address, "checkpoint": "unused", "updates": TOPIC})
    with JobWatch(settings) as watch:
        yield watch.state


def tick(broker: Simulated, seconds_ago: float) -> None:
    milliseconds = int((time.time() - seconds_ago) * 1_000)
    broker.write((b"tick", b"{}"), topic=CLOCK, partition=0, timestamp=milliseconds)


def test_a_job_that_ticks_runs_and_one_that_has_stopped_is_missing_at_once(broker: Simulated) -> None:
    tick(broker, 300)
    tick(broker, 290)
    broker.write((b"question", b"{}"), topic=CLOCK, partition=0)
    with watched(broker) as state:
        assert eventually(lambda: state()["state"] == "missing")
        assert (state()["level"], state()["reason"][:13]) == ("bad", "no tick since")
        tick(broker, 0)
        tick(broker, 0)
        assert eventually(lambda: state()["state"] == "running")
        assert state()["level"] == "good"


def test_rare_ticks_are_no_silence(broker: Simulated) -> None:
    tick(broker, 100)
    tick(broker, 60)
    with watched(broker) as state:
        assert eventually(lambda: state()["state"] == "running")


def test_without_ticks_the_state_is_unknown_and_unreadable_topics_are_named(broker: Simulated) -> None:
    broker.write((b"question", b"{}"), topic=CLOCK, partition=0)
    with watched(broker) as state:
        assert eventually(lambda: "no recent tick" in state()["reason"])
        assert (state()["state"], state()["level"]) == ("unknown", "busy")


def test_lag_and_rates_are_those_of_the_committed_positions(broker: Simulated) -> None:
    tick(broker, 0)
    settings = load({"bootstrap_servers": broker.address, "checkpoint": "unused"})
    for topic in settings.inputs:
        broker.write(*[(b"k", b"{}")] * 5, topic=topic, partition=0)
    group = Consumer({"bootstrap.servers": broker.address, "group.id": lag_group(TOPIC)})
    with watched(broker) as state:
        assert eventually(lambda: state()["state"] == "running")
        assert "lag_records" not in state()
        group.commit(offsets=[TopicPartition(settings.topic_events, 0, 2)], asynchronous=False)
        assert eventually(lambda: "lag_records" in state())
        assert state()["lag_records"] == 3 + 5 + 5 + 6
        assert eventually(lambda: state()["rates"] == {settings.topic_events: 0})
    group.close()


def batch(number: int, ended: float, *waits: float) -> BatchReport:
    keys = [KeyFacts("p", at, 1, 1, 1, [int((ended - wait) * 1_000)], 1.0, []) for at, wait in enumerate(waits)]
    idle = [KeyFacts("", 1, 0, 1, 1, [1], 1.0, []), KeyFacts("p", 99, 1, 1, 1, [], 1.0, [])]
    return BatchReport(number, 1, ended, {}, Counter(), [*keys, *idle], 0, 0)


def test_shards_are_sorted_by_their_longest_wait() -> None:
    """Without the coordinator, keys that applied nothing, and old micro-batches."""
    batches = [
        {"started_ms": 0, "slowest": slowest(batch(0, 0, 99))},
        *({"started_ms": 900_000, "slowest": slowest(each)} for each in (batch(1, 900, 1, 3), batch(2, 901, 2, 0.5))),
    ]
    assert [(each["shard"], each["seconds"]) for each in slowest_of(batches, 1_000)] == [(1, 3.0), (0, 2.0)]
    assert len(slowest(batch(3, 900, *range(30)))) == module.SLOWEST


def test_every_condition_has_a_level() -> None:
    assert LEVELS.keys() == set(Condition)


def test_the_jobs_rates_are_unknown_until_its_first_micro_batch_is_committed() -> None:
    time = iter((1_000.0, 1_000.0, 1_002.0))
    health, lag = Health(300), LagMeter(lambda: next(time))
    for offset in (0, 10):
        lag.look({"t": {0: 99}}, {"t": {0: offset}})
    assert own_state(health.answer().body(), lag)["rates"] is None
    health.look(0, is_running=True)
    assert own_state(health.answer().body(), LagMeter())["rates"] is None
    assert own_state(health.answer().body(), lag)["rates"] == {"t": 5}


def test_a_console_without_a_job_has_an_overview(sources: ConsoleSources) -> None:
    browser = TestClient(console(sources), base_url="http://localhost:9465")
    found = browser.get("/api/overview").json()
    assert found == {"job": None, "seconds": [], "letters": None, "shards": None, "busiest": []}
    letters = {"letters": [1], "total": 1, "counts": {"not-json": 1}, "cut": 0, "error": ""}
    watched = sources._replace(
        letters=lambda *_: letters, job=lambda: {"state": "missing", "level": "bad", "reason": "r"}
    )
    browser = TestClient(console(watched), base_url="http://localhost:9465")
    found = browser.get("/api/overview").json()
    assert (found["letters"]["counts"], found["job"]["state"]) == ({"not-json": 1}, "missing")
    assert browser.get("/api/state").json()["job"]["level"] == "bad"
    pair = {"parent": "orders", "group": "billing", "client": "c1", "topic": "eu__acme__created", "source": "updates"}
    assert browser.get("/api/explain", params=pair).json()["basis"].endswith("The job is being asked.")
