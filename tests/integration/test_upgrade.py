"""An upgrade without a gap: the next release stands by, and takes over when the former one is stopped."""

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from random import Random

import pytest

from tests.support.histories import Profile, expected, history
from tests.support.processes import eventually
from tests.support.running_job import (
    POLL_SECONDS,
    START_SECONDS,
    Job,
    Streams,
    assert_equal_relations,
    refused,
    running,
)

ROOT = Path(__file__).parents[2]
FORMER = "065c4a1"
"""Commit of the former release: the first one with drivers that stand by."""

pytestmark = pytest.mark.long


def former_release(folder: Path) -> str:
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


def test_the_next_release_takes_over_and_the_former_one_is_refused(streams: Streams, tmp_path: Path) -> None:
    """Under load, as a rollout does. The former release cannot read the states of the next one."""
    command = former_release(tmp_path)
    records = history(Random(7), 900, Profile())
    third = len(records) // 3
    feed = streams.producer()
    with running(streams, tmp_path / "former.log", command=command) as former:
        feed.send_slowly(records[:third])
        former.wait_ready()
        with Job(streams, tmp_path / "next.log", "--standby") as upgraded:
            assert eventually(lambda: "standing by" in upgraded.said(), START_SECONDS, POLL_SECONDS), upgraded.said()
            feed.send_slowly(records[third : 2 * third])
            assert former.stop() == 0
            upgraded.wait_ready()
            feed.send_slowly(records[2 * third :])
            wanted = expected([records]).relation()
            streams.becomes(wanted)
            assert upgraded.stop() == 0
    assert_equal_relations(streams.relation(), wanted)
    refused(streams, tmp_path / "again.log", command=command)
    streams.assert_repeated_updates_are_equal()
