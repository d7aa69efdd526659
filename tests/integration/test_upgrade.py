"""An upgrade without a gap: the next release stands by, and takes over when the former one is stopped."""

import subprocess
import sys
import tarfile
import time
from io import BytesIO
from pathlib import Path
from random import Random

import pytest

from tests.support.histories import Profile, expected, history
from tests.support.processes import eventually
from tests.support.running_job import (
    POLL_SECONDS,
    SETTLE_SECONDS,
    START_SECONDS,
    Job,
    Streams,
    assert_equal_relations,
    first_ready,
    running,
)

ROOT = Path(__file__).parents[2]
FORMER = "065c4a1"
"""Commit of the former release: the first one with drivers that stand by."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skip(reason="the former release does not read format 6, so it cannot come back"),
]


def former_release(folder: Path) -> str:
    """Return a command that runs the code of the former release."""
    found = subprocess.run(
        ["git", "archive", FORMER, "matcher", "streaming"], capture_output=True, cwd=ROOT, check=False
    )
    if found.returncode:
        pytest.skip(f"the history of this checkout lacks {FORMER}: {found.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(found.stdout)) as archive:
        archive.extractall(folder / "former", filter="data")
    script = folder / "reexpand-former"
    code = "from streaming.cli import main; main(prog_name='reexpand')"
    script.write_text(f'#!/bin/sh\ncd {folder}/former && PYTHONPATH=. exec {sys.executable} -c "{code}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_the_next_release_takes_over_and_the_former_one_can_come_back(streams: Streams, tmp_path: Path) -> None:
    """Under load, in both directions, as a rollout and its undoing do."""
    command = former_release(tmp_path)
    records = history(Random(7), 1_200, Profile(dialects=True))
    quarter = len(records) // 4
    feed = streams.producer()
    with running(streams, tmp_path / "former.log", command=command) as former:
        feed.send_slowly(records[:quarter])
        former.wait_ready()
        upgraded = Job(streams, tmp_path / "next.log", "--standby")
        again = Job(streams, tmp_path / "again.log", "--standby", command=command)
        try:
            assert eventually(lambda: "standing by" in upgraded.said(), START_SECONDS, POLL_SECONDS), upgraded.said()
            feed.send_slowly(records[quarter : 2 * quarter])
            assert former.stop() == 0
            holder, other = first_ready(upgraded, again)
            feed.send_slowly(records[2 * quarter : 3 * quarter])
            assert holder.stop() == 0
            other.wait_ready()
            feed.send_slowly(records[3 * quarter :])
            wanted = expected([records]).relation()
            eventually(lambda: streams.relation() == wanted, SETTLE_SECONDS, POLL_SECONDS)
            time.sleep(1)
            assert_equal_relations(streams.relation(), wanted)
            assert other.stop() == 0
        finally:
            upgraded.close()
            again.close()
    streams.assert_repeated_updates_are_equal()
