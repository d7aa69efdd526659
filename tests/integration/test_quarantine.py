"""Entries that kill or hang Python workers of the real job: it leaves them out, and goes on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from streaming.coordinator import COORDINATOR, bucket_of
from streaming.oracle import Effective
from streaming.records.model import Reason
from streaming.worker.quarantine import partition_of
from tests.support import lethal
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS, Streams, last_number, running
from tests.support.scene import Scene
from tests.support.verbs import assert_verified, reexpand

SELECTOR = {"type": lethal.KIND, "expression": "all"}
STALL_SECONDS = 3
PARTITIONS = 3


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that offers the lethal kind of selectors is on the path of driver and workers."""
    package, metadata = tmp_path / "plugin", tmp_path / "plugin" / "lethal-1.0.dist-info"
    metadata.mkdir(parents=True)
    (package / "lethal_selector.py").write_bytes(Path(lethal.__file__).read_bytes())
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lethal\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[reexpand.selectors]\n{lethal.KIND} = lethal_selector:Lethal\n")
    monkeypatch.setenv("PYTHONPATH", str(package))


def decisions(streams: Streams) -> list[dict[str, Any]]:
    note = streams.checkpoint / "quarantine.json"
    return list(json.loads(note.read_bytes())["decisions"]) if note.exists() else []


def letters(streams: Streams) -> list[tuple[str, str]]:
    return [(letter["reason"], letter["source"]["topic"]) for letter in streams.dead_letters()]


@pytest.mark.rule("quarantine")
def test_an_entry_that_kills_its_worker_is_left_out(streams: Streams, tmp_path: Path) -> None:
    scene = Scene(streams)
    scene.group("g", "p", quota="-1")
    scene.asks("c", "g", "p", "*", selector=SELECTOR)
    wanted = {Effective("p", "g", "c", "first")}
    with running(streams, tmp_path / "job.log") as job:
        scene.born("p", "first")
        scene.leads_to(wanted, {"p"})
        scene.born("p", "before")
        scene.born("p", "lethal", properties={"deed": "kill"})
        scene.born("p", "after")
        wanted |= {Effective("p", "g", "c", topic) for topic in ("before", "after")}
        scene.leads_to(wanted, {"p"})

        assert letters(streams) == [(Reason.QUARANTINED, streams.settings.topic_events)]
        assert [(each["offset"], each["by_hand"]) for each in decisions(streams)] == [(2, False)]
        assert job.said().count("left out the entry") == 1
        job.kill()
    job.forget_last_commit()
    with running(streams, tmp_path / "job.log") as job:
        scene.born("p", "later")
        scene.leads_to(wanted | {Effective("p", "g", "c", "later")}, {"p"})
        scene.settles(job)
    assert len(letters(streams)) == 1
    assert streams.repeated() == 0
    assert_verified(streams)


@pytest.mark.long
def test_a_copied_checkpoint_repeats_a_quarantine_to_the_byte(streams: Streams, tmp_path: Path) -> None:
    scene = Scene(streams)
    scene.group("g", "p", quota="-1")
    scene.asks("c", "g", "p", "*", selector=SELECTOR)
    wanted = {
        Effective("p", "g", "c", topic) for topic in ("first", *(f"t{number}" for number in range(50) if number != 25))
    }
    copy, options = tmp_path / "copy", ("--delivery", "at-least-once")
    with running(streams, tmp_path / "job.log", *options) as job:
        scene.born("p", "first")
        scene.leads_to({Effective("p", "g", "c", "first")}, {"p"})
        scene.settles(job)
        for number in range(50):
            scene.born("p", f"t{number}", properties={"deed": "kill"} if number == 25 else {})
        scene.sent()
        assert eventually(lambda: bool(decisions(streams)), SETTLE_SECONDS, 0.01)
        shutil.copytree(streams.checkpoint, copy)
        scene.leads_to(wanted, {"p"})
        scene.settles(job)
    planned, committed = (last_number(copy / "query" / name) for name in ("offsets", "commits"))
    assert planned == committed + 1, "the copy was too late"
    first = [(each.key(), each.value()) for each in streams.read(streams.settings.updates)]
    shutil.rmtree(streams.checkpoint)
    shutil.copytree(copy, streams.checkpoint)
    with running(streams, tmp_path / "job.log", *options) as job:
        scene.settles(job)
    second = [(each.key(), each.value()) for each in streams.read(streams.settings.updates)][len(first) :]
    assert len(second) == 49
    assert set(second) <= set(first)
    assert letters(streams) == [(Reason.QUARANTINED, streams.settings.topic_events)] * 2
    assert_verified(streams)


@pytest.mark.rule("quarantine")
@pytest.mark.long
def test_an_entry_that_hangs_is_left_out_where_its_micro_batch_is_not_written(streams: Streams, tmp_path: Path) -> None:
    """The coordinator has its part of the request in another state partition, which writes nothing about it."""
    shard = partition_of("p", 0, PARTITIONS)
    group = next(name for name in "ghij" if partition_of(COORDINATOR, bucket_of(name), PARTITIONS) != shard)
    scene = Scene(streams)
    scene.group(group, "p", quota="-1")
    scene.asks("c", group, "p", "*")
    scene.born("p", "first", properties={"deed": "sleep"})
    wanted = {Effective("p", group, "c", "first")}
    options = ("--stall-seconds", str(STALL_SECONDS), "--shuffle-partitions", str(PARTITIONS))
    with running(streams, tmp_path / "job.log", *options) as job:
        scene.leads_to(wanted, {"p"})
        scene.asks("d", group, "p", "*", selector=SELECTOR)
        scene.asks("e", group, "p", "*")
        wanted |= {Effective("p", group, "e", "first")}
        scene.leads_to(wanted, {"p"})
        assert letters(streams) == [(Reason.QUARANTINED, streams.settings.subscription_events)]
        scene.settles(job)
    (decision,) = decisions(streams)
    assert decision["exempt"] == []
    assert_verified(streams)


def test_an_entry_is_left_out_by_hand(streams: Streams, tmp_path: Path) -> None:
    """Before the job reads it; afterwards nothing can be changed."""
    scene = Scene(streams)
    scene.group("g", "p", quota="-1")
    scene.asks("c", "g", "p", "*")
    scene.born("p", "first")
    wanted = {Effective("p", "g", "c", "first")}
    with running(streams, tmp_path / "job.log") as job:
        scene.leads_to(wanted, {"p"})
        scene.settles(job)
    scene.born("p", "unwanted")
    scene.sent()
    (unwanted,) = (each for each in streams.read(streams.settings.topic_events) if b"unwanted" in (each.value() or b""))
    entry = f"{unwanted.topic()}[{unwanted.partition()}]@{unwanted.offset()}"
    by_hand(streams, "add", entry)
    with running(streams, tmp_path / "job.log") as job:
        by_hand(streams, "remove", entry, code=2)  # a driver lives
        scene.born("p", "second")
        scene.leads_to(wanted | {Effective("p", "g", "c", "second")}, {"p"})
        scene.settles(job)
    assert letters(streams) == [(Reason.QUARANTINED, streams.settings.topic_events)]
    assert "is committed" in by_hand(streams, "remove", entry, "--driver-has-ended", code=2)
    assert_verified(streams)


def by_hand(streams: Streams, verb: str, *words: str, code: int = 0) -> str:
    where = streams.options("checkpoint", "bootstrap_servers")
    return reexpand("quarantine", verb, *where, *words, codes=(code,)).stderr
