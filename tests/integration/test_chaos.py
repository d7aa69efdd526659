"""Faults under load that no other test has, and a judge that sees what is wrong.

`make chaos` plays all faults; docs/chaos.md has the results, and the tests of the others.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.catalogue import FAULTS
from tests.chaos.faults.tenants import strike
from tests.chaos.stage import Stage
from tests.chaos.theatre import Theatre, play
from tests.support.brokers import StartBroker
from tests.support.update_records import forged

SEED = 11


@pytest.fixture
def theatre(own_broker: StartBroker, tmp_path: Path) -> Iterator[Theatre]:
    """A broker of its own, as faults may stop it."""
    found = Theatre(own_broker(), tmp_path, SEED)
    try:
        yield found
    finally:
        found.close()


def spoil(stage: Stage) -> None:
    """Take a row away, add one that does not hold, and repeat an update."""
    topic = stage.streams.settings.updates
    stage.judge.committed.catch_up()
    gone = min(row for row in stage.judge.committed.relation() if row.parent == "hot")
    (update,) = [each for each in stage.streams.updates() if each["liteTopic"] == gone.lite_topic]
    for op, row in (("REMOVE", gone), ("ADD", gone._replace(lite_topic="never__created"))):
        stage.streams.write(topic, *forged(op, row, eventId=update["eventId"]))


def test_transactions_of_producers_and_a_judge_that_sees_each_wrong_row(theatre: Theatre) -> None:
    """Nothing uncommitted is read; then the updates are spoilt, and the judge says how."""
    row = play(FAULTS["producer-transactions"], theatre)
    assert row.right, row.failure
    assert row.verdict is not None
    assert row.verdict.rows > 1_000
    stage = theatre.stage()
    spoil(stage)
    verdict = stage.is_right(12)  # seconds after which topics with a TTL have ended
    assert (verdict.missing, verdict.surplus) == (1, 1)
    assert verdict.committed == verdict.uncommitted == 2
    assert not verdict.right


def test_a_hostile_tenant_neither_stops_the_job_nor_delays_good_events(theatre: Theatre) -> None:
    """The short version of the fault `hostile-tenant`."""
    stage = theatre.stage()
    _, latencies, sent = strike(stage, good_events=10_000, rounds=1)
    assert sent.total() > 4_000
    assert len(latencies.seconds) == 10_000
    verdict = stage.is_right()
    assert verdict.right, verdict.examples
    assert verdict.rows > 10_000


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["jvm-killed", "command-killed", "both-at-once", "driver-paused", "partitions-added", "updates-tampered"]
)
def test_a_fault_under_load_leaves_the_right_relation(theatre: Theatre, name: str) -> None:
    row = play(FAULTS[name], theatre)
    assert row.right, row.failure
