"""The health check of the job's container, run as the engine runs it, against the server that the job has."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streaming.config import Address
from streaming.local.server import free_port
from streaming.monitor.health import Condition, Health
from streaming.monitor.server import HttpServer, routes

_SCRIPT = Path(__file__).parents[2] / "deploy" / "healthcheck.py"


@pytest.fixture
def health() -> Health:
    """Of a job that works."""
    health = Health(hang_seconds=1_000)
    health.enter(Condition.READY, "well")
    health.note_lag(0, 0)
    return health


@pytest.fixture
def address(health: Health) -> Iterator[str]:
    """The address of the job's server, on all interfaces, as in the compose file."""
    with HttpServer(Address("0.0.0.0", 0), routes(CollectorRegistry(), health)) as server:  # noqa: S104 - as above
        yield (server.url or "").removeprefix("http://")


def test_a_job_that_stands_by_has_no_fault(address: str, health: Health) -> None:
    health.enter(Condition.STANDING_BY, "in use by process 1")
    assert complaint(address) == ""


def test_the_fault_of_a_job_is_told(address: str, health: Health) -> None:
    assert complaint(address) == ""
    health.note_kafka(unreachable_for=7)
    assert complaint(address) == "kafka-unreachable: Kafka has not answered for 7 s"
    assert complaint(address, "/healthz") == ""


def test_a_job_that_is_not_there_does_not_work() -> None:
    port = free_port()
    assert complaint(f"127.0.0.1:{port}").startswith(f"the job does not answer at 127.0.0.1:{port}: ")


def complaint(address: str, *words: str) -> str:
    """What the health check says is wrong; empty when its exit code is 0."""
    done = subprocess.run(
        [sys.executable, _SCRIPT, *words],
        env={**os.environ, "REEXPAND_HTTP": address},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode == 0) == (done.stderr == ""), done
    return done.stderr.strip()
