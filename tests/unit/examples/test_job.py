"""The job's process ends on request, and an unexpected end is reported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from streaming.config import Settings
from streaming.errors import DemoFailed
from streaming.examples import job as module
from streaming.examples.job import Job
from tests.support.processes import alive, eventually, gone

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings.model_construct(
    bootstrap_servers="127.0.0.1:9092", checkpoint="checkpoint", master="spark://127.0.0.1:7077"
)

OBEDIENT = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready: reading " + " ".join(sys.argv[1:]), flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, "ready: reading nothing", flush=True)
time.sleep(600)
"""
FAILING = "import os, sys; print('REEXPAND_SHARDS' in os.environ); sys.exit('no such broker')"


def start(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(module, "START", (sys.executable, "-P", "-c", program))
    return Job(SETTINGS, folder / "job.log", folder / "spark")


def test_a_job_is_ready_when_it_says_so_and_ends_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(OBEDIENT, tmp_path, monkeypatch) as job:
        assert eventually(lambda: job.is_ready)
        wanted = "--bootstrap-servers 127.0.0.1:9092 --checkpoint checkpoint --master spark://127.0.0.1:7077"
        assert wanted in job.log_file.read_text()
        assert job.stop() == 0
        assert job.stop() is None


def test_a_job_that_does_not_end_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(STUBBORN, tmp_path, monkeypatch) as job:
        assert eventually(lambda: job.is_ready)
        child = int(job.log_file.read_text().split()[0])
        assert alive(child)
        assert job.stop(timeout=0.2) is None
    assert gone(child)


def test_a_job_that_ends_by_itself_is_reported_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings for the user's own jobs do not reach it."""
    monkeypatch.setenv("REEXPAND_SHARDS", "none of its business")
    with start(FAILING, tmp_path, monkeypatch) as job:
        with pytest.raises(DemoFailed, match=r"(?s)ended unexpectedly. The end of .*job\.log:.*no such broker"):
            eventually(lambda: job.is_ready)
        assert job.log_file.read_text().startswith("False")
