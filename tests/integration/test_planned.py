"""A micro-batch that was written and not committed is repeated by the real job with the settings that it had."""

import json
from pathlib import Path

from streaming.oracle import Effective
from streaming.records.model import Reason
from tests.support.running_job import Streams, running
from tests.support.scene import Scene


def test_a_repeated_micro_batch_has_its_former_settings(streams: Streams, tmp_path: Path) -> None:
    """Later ones have those of the start, without another start of the process."""
    scene = Scene(streams)
    scene.group("g", "p", quota="-1")
    scene.born("p", "a1", "b1")
    wanted = {Effective("p", "g", "c", topic) for topic in ("a1", "b1")}
    with running(streams, tmp_path / "job.log", "--tick-interval-ms", "3600000") as job:
        scene.asks("c", "g", "p", "a__*", "b__*", "a1", "b1")
        scene.leads_to(wanted, {"p"})
        scene.settles(job)
        job.kill()
    job.forget_last_commit()
    with running(streams, tmp_path / "job.log", "--max-entries", "3", "--tick-interval-ms", "3600000") as job:
        scene.settles(job)
        scene.born("p", "a__2")
        wanted |= {Effective("p", "g", "c", "a__2")}
        scene.leads_to(wanted, {"p"})
        scene.settles(job)
        scene.asks("d", "g", "p", "a__*", "b__*", "a1", "b1")
        scene.asks("e", "g", "p", "a__*")
        wanted |= {Effective("p", "g", "e", "a__2")}
        scene.leads_to(wanted, {"p"})
        assert "the settings of this start apply" in job.said()
        assert job.stop() == 0
    assert [letter["reason"] for letter in streams.dead_letters()] == [Reason.OUT_OF_RANGE]
    assert json.loads((streams.checkpoint / "planned.json").read_bytes())["max_entries"] == 3
