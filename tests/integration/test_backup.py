"""`reexpand backup` beside a real job, and `reexpand restore`: the job goes on from the copy."""

import json
from pathlib import Path

import pytest

from streaming.oracle import Effective
from tests.support.running_job import Streams, running
from tests.support.scene import Scene, coming_and_going
from tests.support.verbs import reexpand, verify

OPTIONS = ("--tick-interval-ms", "0", "--shuffle-partitions", "2")


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
            begun = job.last_commit()
            copies = [json.loads(reexpand("backup", *where, tmp_path / f"b{n}", "--json").stdout) for n in range(5)]
            assert job.last_commit() > begun
        assert len({copy["microBatch"] for copy in copies}) > 1
        assert any((tmp_path / "b0/checkpoint/parts").rglob("*-*"))
        scene.settles(job)
        reexpand("backup", *where, tmp_path / "last")
        in_use = reexpand("restore", tmp_path / "last", *where, "--replace", *servers, codes=(2,))
        assert "a driver uses the checkpoint" in in_use.stderr
    reexpand("restore", tmp_path / "b4", "--checkpoint", tmp_path / "restored")
    copied = verify(Streams(streams.bootstrap_servers, tmp_path / "restored", streams.prefix))
    assert copied.summary["rows"]["state"] > 1_000
    # Updates that were written after the backup may differ.
    assert [each for each in copied.differences if each["fault"].startswith("state")] == []

    reexpand("restore", tmp_path / "last", *where, codes=(2,))
    replaced = reexpand("restore", tmp_path / "last", *where, "--replace", "--driver-has-ended")
    assert "the former checkpoint is" in replaced.stdout
    before = streams.relation()
    with running(streams, tmp_path / "job.log", *OPTIONS):
        scene.born("p", "a__later")
        scene.leads_to(before | {Effective("p", "g", "c", "a__later")}, {"p", "busy"})
    assert streams.repeated() == 0
