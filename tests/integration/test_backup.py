"""`reexpand backup` beside a real job, and `reexpand restore`: the job goes on from the copy."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from streaming.oracle import Effective
from tests.support.running_job import REEXPAND, Job, Streams, running
from tests.support.scene import Scene, coming_and_going

OPTIONS = ("--tick-interval-ms", "0", "--shuffle-partitions", "2")


def reexpand(*words: object, exit_code: int = 0) -> str:
    """Run a verb, and return what it prints; on standard error where it is to fail."""
    done = subprocess.run([REEXPAND, *map(str, words)], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if exit_code else done.stdout


def committed(streams: Streams) -> int:
    return max(int(file.name) for file in (streams.checkpoint / "query" / "commits").glob("[0-9]*"))


def faults_of_state(streams: Streams, checkpoint: Path) -> list[Any]:
    """What is wrong with the states of a copy, by its inputs; updates that were written since are left out."""
    settings = streams.settings
    words = [REEXPAND, "verify", "--json", "--bootstrap-servers", settings.bootstrap_servers]
    words += ["--checkpoint", str(checkpoint), "--updates", settings.updates, "--dead-letters", settings.dead_letters]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=400)
    assert done.returncode in (0, 1), done.stderr
    *differences, summary = map(json.loads, done.stdout.splitlines())
    assert summary["rows"]["state"] > 1_000
    return [each for each in differences if each["fault"].startswith("state")]


@pytest.mark.rule("backup")
@pytest.mark.timeout(900)
def test_a_copy_beside_a_busy_job_is_whole_and_the_job_goes_on_from_one(streams: Streams, tmp_path: Path) -> None:
    """A part of the state lies in files; micro-batches are committed while files are copied."""
    scene = Scene(streams)
    scene.group("g", "p")
    scene.asks("c", "g", "p", "a__**")
    scene.born("p", *(f"a__{number:05}__{'x' * 20}" for number in range(1_500)))
    where, servers = ("--checkpoint", streams.checkpoint), ("--bootstrap-servers", streams.bootstrap_servers)
    with running(streams, tmp_path / "job.log", *OPTIONS) as job:
        scene.settles(job)
        with coming_and_going(scene):
            begun = committed(streams)
            copies = [json.loads(reexpand("backup", *where, tmp_path / f"b{n}", "--json")) for n in range(5)]
            assert committed(streams) > begun
        assert len({copy["microBatch"] for copy in copies}) > 1
        assert any((tmp_path / "b0/checkpoint/parts").rglob("*-*"))
        scene.settles(job)
        reexpand("backup", *where, tmp_path / "last")
        said = reexpand("restore", tmp_path / "last", *where, "--replace", *servers, exit_code=2)
        assert "a driver uses the checkpoint" in said
        assert job.stop() == 0
    reexpand("restore", tmp_path / "b4", "--checkpoint", tmp_path / "restored")
    assert faults_of_state(streams, tmp_path / "restored") == []

    reexpand("restore", tmp_path / "last", *where, exit_code=2)
    assert "the former checkpoint is" in reexpand(
        "restore", tmp_path / "last", *where, "--replace", "--driver-has-ended"
    )
    before = streams.relation()
    with running(streams, tmp_path / "job.log", *OPTIONS) as job:
        scene.born("p", "a__later")
        scene.leads_to(before | {Effective("p", "g", "c", "a__later")}, {"p", "busy"})
        assert job.stop() == 0
    assert streams.repeated() == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_restored_copy_that_is_too_old_is_refused_and_names_the_way_out(streams: Streams, tmp_path: Path) -> None:
    """Its state does not know what the updates say by now."""
    scene = Scene(streams)
    scene.group("g", "p")
    scene.asks("c", "g", "p", "*")
    scene.born("p", "t1")
    with running(streams, tmp_path / "job.log", *OPTIONS) as job:
        scene.settles(job)
        reexpand("backup", "--checkpoint", streams.checkpoint, tmp_path / "b")
        scene.gone("p", "t1")
        scene.leads_to(set(), {"p"})
        assert job.stop() == 0
    reexpand("restore", tmp_path / "b", "--checkpoint", streams.checkpoint, "--replace", "--driver-has-ended")
    job = Job(streams, tmp_path / "job.log", *OPTIONS)
    try:
        assert job.process.wait(120) == 2
        assert "older copy" in job.said()
        assert "`reexpand rebuild`" in job.said()
    finally:
        job.close()
