"""The health check of the job's container, run as the engine runs it, on checkpoints and connections made here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRIPT = Path(__file__).parents[2] / "deploy" / "healthcheck.py"

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="connections are read as Linux shows them")


def test_a_job_that_is_connected_and_has_committed_everything_works(tmp_path: Path) -> None:
    checkpoint(tmp_path, planned=10, committed=10, age=3600)
    with connection() as server:
        assert complaint(tmp_path, server) == ""


def test_a_micro_batch_may_run_for_a_while(tmp_path: Path) -> None:
    checkpoint(tmp_path, planned=10, committed=9, age=5)
    with connection() as server:
        assert complaint(tmp_path, server) == ""


def test_a_micro_batch_that_does_not_end_is_a_fault(tmp_path: Path) -> None:
    checkpoint(tmp_path, planned=10, committed=9, age=3600)
    with connection() as server:
        assert complaint(tmp_path, server).startswith("micro-batch 10 has been running for 3600 s")


def test_a_job_that_has_committed_nothing_yet_does_not_work(tmp_path: Path) -> None:
    with connection() as server:
        assert complaint(tmp_path, server) == "no micro-batch has been committed yet"


def test_a_job_without_a_connection_to_kafka_does_not_work(tmp_path: Path) -> None:
    checkpoint(tmp_path, planned=0, committed=0, age=1)
    with connection() as server:
        pass
    assert complaint(tmp_path, server) == f"no connection to Kafka at {server}"


def test_one_of_several_brokers_is_enough(tmp_path: Path) -> None:
    checkpoint(tmp_path, planned=0, committed=0, age=1)
    with connection() as server:
        assert complaint(tmp_path, f"127.0.0.1:1,{server}") == ""


def complaint(folder: Path, bootstrap_servers: str) -> str:
    """What the health check says is wrong; empty when its exit code is 0."""
    environment = {"REEXPAND_CHECKPOINT": str(folder), "REEXPAND_BOOTSTRAP_SERVERS": bootstrap_servers}
    done = subprocess.run(
        [sys.executable, _SCRIPT], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode == 0) == (done.stderr == ""), done
    return done.stderr.strip()


def checkpoint(folder: Path, planned: int, committed: int, age: float) -> None:
    """Write the logs of Spark's micro-batches, the last of each as old as `age` seconds."""
    for name, last in (("offsets", planned), ("commits", committed)):
        log = folder / "query" / name
        log.mkdir(parents=True)
        for batch in range(last + 1):
            (log / str(batch)).write_text("v1\n{}")
            os.utime(log / str(batch), (time.time() - age,) * 2)
        (log / f".{last}.crc").touch()


@contextmanager
def connection() -> Iterator[str]:
    """The address of a server to which this process holds a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address), server.accept()[0]:
            yield "{}:{}".format(*address)
