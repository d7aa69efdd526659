"""The condition of a job: what probes are told of one that starts, hangs, catches up, stands by, or lacks Kafka."""

import pytest

from streaming.monitor.health import BEHIND_SECONDS, CAUGHT_UP_SECONDS, Condition, Health
from tests.unit.monitor.conftest import Time

HANG_SECONDS = 100.0


@pytest.fixture
def health(time: Time) -> Health:
    """Of a job that works."""
    health = Health(HANG_SECONDS, time)
    health.enter(Condition.READY, "well")
    health.look(7, is_running=False)
    health.note_lag(0, 0.0)
    return health


def condition(health: Health) -> tuple[Condition, bool, bool]:
    """Return the condition, and whether the job is alive and ready."""
    answer = health.answer()
    return answer.condition, answer.is_alive, answer.is_ready()


def test_a_start_is_alive_and_not_ready_however_long_it_takes(time: Time) -> None:
    """A driver that stands by is ready, unless the holder is asked for."""
    health = Health(HANG_SECONDS, time)
    time.now = 10 * HANG_SECONDS
    assert condition(health) == (Condition.STARTING, True, False)
    health.enter(Condition.STANDING_BY, "in use by process 1")
    time.now = 20 * HANG_SECONDS
    assert condition(health) == (Condition.STANDING_BY, True, True)
    assert not health.answer().is_ready(as_holder=True)


def test_a_micro_batch_that_runs_too_long_hangs(health: Health, time: Time) -> None:
    """So does a Spark that does not answer."""
    for time.now in (10, 60, 109):
        health.look(7, is_running=True)
        assert condition(health) == (Condition.READY, True, True)
    time.now = 111
    health.look(7, is_running=True)
    assert condition(health) == (Condition.HUNG, False, False)
    assert health.answer().reason == "micro-batch 8 has been running for 101 s"
    health.look(8, is_running=True)
    assert condition(health) == (Condition.READY, True, True)
    time.now += HANG_SECONDS + 1
    assert condition(health) == (Condition.HUNG, False, False)
    assert "Spark does not answer" in health.answer().reason


def test_many_micro_batches_that_follow_each_other_do_not_hang(health: Health, time: Time) -> None:
    for number in range(50):
        time.now += HANG_SECONDS / 2
        health.look(number, is_running=True)
        assert condition(health)[0] is Condition.READY


def test_an_outage_of_kafka_is_no_hang_and_its_time_does_not_count(health: Health, time: Time) -> None:
    health.look(7, is_running=True)
    time.now = 2 * HANG_SECONDS
    health.look(7, is_running=True)
    health.note_kafka(unreachable_for=2 * HANG_SECONDS)
    assert condition(health) == (Condition.KAFKA_UNREACHABLE, True, False)
    health.note_kafka(unreachable_for=0.0)
    assert condition(health) == (Condition.READY, True, True)
    time.now = 3 * HANG_SECONDS + 1
    health.look(7, is_running=True)
    assert condition(health) == (Condition.HUNG, False, False)


def test_a_job_catches_up_until_it_is_through_and_is_ready_until_it_is_far_behind(time: Time) -> None:
    health = Health(HANG_SECONDS, time)
    health.enter(Condition.READY, "well")
    assert condition(health) == (Condition.CATCHING_UP, True, False)
    seen = []
    for lag in (500.0, CAUGHT_UP_SECONDS + 1, CAUGHT_UP_SECONDS, BEHIND_SECONDS, BEHIND_SECONDS + 1, 30.0, 0.0):
        health.note_lag(1_000, lag)
        seen.append(condition(health)[0])
    behind, ready = Condition.CATCHING_UP, Condition.READY
    assert seen == [behind, behind, ready, ready, behind, behind, ready]
    health.note_lag(12_345, 61.0)
    assert health.answer().reason == "12,345 records are unread, the oldest for 61 s"


def test_the_answer_has_what_tells_a_crash_from_a_start(health: Health, time: Time) -> None:
    health.former = "crashed"
    time.now = 12.34
    body = health.answer().body()
    assert body == {
        "state": "ready", "alive": True, "ready": True, "reason": "well", "uptime_seconds": 12.3, "micro_batch": 7,
        "lag_records": 0, "lag_seconds": 0.0, "former_driver": "crashed",
    }  # fmt: skip
