"""SIGTERM while Kafka is away: a job ends before an orchestrator kills it, and is exact afterwards."""

import time
from pathlib import Path

from tests.support.brokers import StartBroker
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Job, Streams, running
from tests.support.scene import Scene


def test_a_job_ends_in_an_outage_and_goes_on_exactly(own_broker: StartBroker, tmp_path: Path) -> None:
    broker = own_broker()
    streams = Streams(broker.bootstrap_servers, tmp_path / "checkpoint").create()
    scene = Scene(streams)
    scene.asks("c", "g", "p", *(f"t{number}" for number in range(200)))
    scene.sent()
    with running(streams, tmp_path / "job.log", "--tick-interval-ms", "1000") as job:
        scene.born("p", *(f"t{number}" for number in range(100)))
        scene.settles(job)
        scene.born("p", *(f"t{number}" for number in range(100, 200)))
        scene.sent()
        broker.kill()
        time.sleep(3)
        assert job.stop() == 0, job.said()
        assert "Traceback" not in job.said()
    broker.start()
    with running(streams, tmp_path / "job.log") as job:
        assert eventually(lambda: len(streams.relation()) == 200, SETTLE_SECONDS, POLL_SECONDS)
        assert job.stop() == 0
    assert streams.repeated() == 0


def test_a_job_that_waits_for_a_broker_ends_at_once(own_broker: StartBroker, tmp_path: Path) -> None:
    broker = own_broker()
    broker.stop()
    job = Job(Streams(broker.bootstrap_servers, tmp_path / "checkpoint"), tmp_path / "job.log")
    try:
        assert eventually(lambda: "left" in job.said(), SETTLE_SECONDS, POLL_SECONDS), job.said()
        assert job.stop() == 0, job.said()
        assert job.said().splitlines()[-1].endswith("stopped")
    finally:
        if job.process.poll() is None:
            job.kill()
        job.close()
