"""Ends and starts of the job as a process: crashes, signals, other settings, other surroundings, and Kafka away."""

import json
import re
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streaming.oracle import Effective
from streaming.records.model import Reason
from streaming.storage import journal
from tests.support.brokers import StartBroker
from tests.support.histories import Profile, expected, history, large_state
from tests.support.processes import eventually
from tests.support.running_job import (
    POLL_SECONDS,
    SETTLE_SECONDS,
    Job,
    Streams,
    assert_equal_relations,
    refused,
    running,
)
from tests.support.scene import Scene
from tests.support.verbs import assert_verified

SHARDED = ("--shards", "p=3", "--route-depth", "2")
NEVER = ("--tick-interval-ms", "3600000")
"""Options of a job whose first tick would come after the test."""

LONG_INTERVAL = ("--trigger-interval-ms", "600000")


@pytest.mark.rule("relation", "end-before-reading")
@pytest.mark.parametrize(
    "options", [pytest.param((), marks=pytest.mark.long), SHARDED], ids=["one shard", "three shards"]
)
def test_a_history_with_crashes_leaves_the_oracles_relation(
    streams: Streams, tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 events. The job is killed twice, once with a micro-batch to repeat, and its Python workers once.

    Enough topics precede them that a part of the state is in files. Temporary files do not outlive the next start.
    """
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(scratch))
    profile = Profile(dialects=True, selectors=True, exclusive=True, bound=True)
    stored, records = large_state("p"), history(Random(20), 2_000, profile)
    quarter = len(records) // 4
    feed, log = streams.producer(), tmp_path / "job.log"
    for record in stored:
        feed.send(record.stream, record.value, "p")
    with running(streams, log, *options) as job:
        feed.send_slowly(records[:quarter])
        assert eventually(lambda: bool(streams.updates()), SETTLE_SECONDS, POLL_SECONDS)
        job.kill()
        job.forget_last_commit()
    left = {path.name.partition("-")[0] for path in scratch.rglob("*")}
    assert {"spark", "blockmgr"} < left
    with running(streams, log, *options) as job:
        feed.send_slowly(records[quarter : 2 * quarter])
        job.kill()
    with running(streams, log, *options) as job:
        feed.send_slowly(records[2 * quarter : 3 * quarter])
        job.kill_workers()
        feed.send_slowly(records[3 * quarter :])
        wanted = expected([[*stored, *records]]).relation()
        streams.becomes(wanted)
    assert_equal_relations(streams.relation(), wanted)
    assert [path.name for path in scratch.rglob("*") if not path.is_dir()] == ["lock"]
    parts = [path for path in (tmp_path / "checkpoint" / "parts").rglob("*") if path.is_file()]
    assert parts or options, "the state is not large enough for this test"
    streams.assert_repeated_updates_are_equal()


def identity(streams: Streams) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((streams.checkpoint / "reexpand.json").read_text())
    return values


def as_of_the_former_release(streams: Streams) -> dict[str, Any]:
    """Change the identity to the format of a former release, and return it."""
    file, values = streams.checkpoint / "reexpand.json", identity(streams)
    assert values["format"] == journal.FORMAT
    file.write_text(json.dumps({**values, "format": journal.READ_FORMATS[0]}))
    file.with_name(f".{file.name}.crc").unlink()
    return identity(streams)


def in_other_surroundings(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Change to a folder with a package `streaming`, with a cluster's Hadoop settings and a notebook's variables."""
    foreign = folder / "project" / "streaming"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("raise RuntimeError('this is the package of somebody else')")
    file_system = "<property><name>fs.defaultFS</name><value>hdfs://namenode.invalid:8020</value></property>"
    (folder / "core-site.xml").write_text(f"<configuration>{file_system}</configuration>")
    patch.chdir(foreign.parent)
    patch.setenv("HADOOP_CONF_DIR", str(folder))
    patch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    patch.setenv("PYSPARK_SUBMIT_ARGS", "--packages no.such:package:1 pyspark-shell")


def test_a_stopped_job_goes_on_where_it_stopped(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a micro-batch and SIGTERM between two triggers end it with exit code 0. No update is repeated.

    The first start has another PySpark, whose own serializer it uses, and leaves the checkpoint of a former release.
    A start with other settings is rejected, and changes nothing. The last start is in a shell and a folder for
    something else.
    """
    (tmp_path / "sitecustomize.py").write_text("import pyspark\npyspark.__version__ = 'another'\n")
    scene, log = Scene(streams), tmp_path / "job.log"
    topics = [f"t{number}" for number in range(2_000)]
    wanted = {Effective("p", "g", "c", topic) for topic in topics}
    scene.asks("c", "g", "p", *topics, "last", version=4)
    scene.born("p", "t0")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with running(streams, log) as job:
            scene.leads_to({Effective("p", "g", "c", "t0")}, {"p"})
            scene.born("p", *topics[1:])
            scene.sent()
            assert eventually(job.is_within_a_batch, SETTLE_SECONDS, 0.005)
            assert job.interrupt() == 0
    assert "PySpark is another, not" in job.said()
    assert "stopped" in job.said()
    assert "Abort" not in job.said()

    values = identity(streams)
    left = as_of_the_former_release(streams)
    assert "shards is {'p': 2}, the checkpoint has {}" in refused(streams, log, "--shards", "p=2")
    assert identity(streams) == left

    scene.asks("c", "g", "p", action="COMPLETE_REMOVE", version=3)  # stale
    scene.gone("p", "t0")
    scene.born("p", "last")
    in_other_surroundings(tmp_path, monkeypatch)
    committed = job.last_commit()
    with running(streams, log, *LONG_INTERVAL) as job:
        scene.leads_to(wanted - {Effective("p", "g", "c", "t0")} | {Effective("p", "g", "c", "last")}, {"p"})
        assert eventually(lambda: not job.is_within_a_batch(), SETTLE_SECONDS, POLL_SECONDS)
    assert "was in use" not in job.said(), "it waited for a driver that has ended"
    assert "Traceback" not in job.said()
    assert "\tat " not in job.said()
    assert Counter(update["op"] for update in streams.updates()) == {"ADD": len(topics) + 1, "REMOVE": 1}
    assert identity(streams) == values
    assert job.last_commit() > committed
    assert_verified(streams)


@pytest.mark.rule("exactly-once", "committed-transaction")
def test_a_written_micro_batch_is_repeated_with_its_settings_and_not_written_again(
    streams: Streams, tmp_path: Path
) -> None:
    """Later micro-batches have the settings of the start, without another start of the process."""
    scene, log = Scene(streams), tmp_path / "job.log"
    scene.group("g", "p", quota="-1")
    scene.born("p", "a1", "b1")
    wanted = {Effective("p", "g", "c", topic) for topic in ("a1", "b1")}
    with running(streams, log, *NEVER) as job:
        scene.asks("c", "g", "p", "a__*", "b__*", "a1", "b1")
        scene.leads_to(wanted, {"p"})
        scene.settles(job)
        assert eventually(lambda: not job.is_within_a_batch(), SETTLE_SECONDS, POLL_SECONDS)
        job.kill()
    written = sum(streams.ends(streams.settings.updates).values())
    job.forget_last_commit()
    with running(streams, log, "--max-entries", "3", *NEVER) as job:
        scene.settles(job)
        scene.born("p", "a__2")
        wanted |= {Effective("p", "g", "c", "a__2")}
        scene.leads_to(wanted, {"p"})
        assert sum(streams.ends(streams.settings.updates).values()) == written + 2, "a record and its marker"
        scene.settles(job)
        scene.asks("d", "g", "p", "a__*", "b__*", "a1", "b1")
        scene.asks("e", "g", "p", "a__*")
        scene.leads_to(wanted | {Effective("p", "g", "e", "a__2")}, {"p"})
        assert "the settings of this start apply" in job.said()
    assert streams.repeated() == 0
    assert [letter["reason"] for letter in streams.dead_letters()] == [Reason.OUT_OF_RANGE]
    assert json.loads((streams.checkpoint / "planned.json").read_bytes())["max_entries"] == 3


@pytest.mark.rule("broker-outage")
def test_a_job_that_is_stopped_in_an_outage_goes_on_exactly(own_broker: StartBroker, tmp_path: Path) -> None:
    """It ends before an orchestrator would kill it, and so does a start that waits for the broker."""
    broker, log = own_broker(), tmp_path / "job.log"
    streams = Streams(broker.bootstrap_servers, tmp_path / "checkpoint").create()
    scene = Scene(streams)
    scene.asks("c", "g", "p", *(f"t{number}" for number in range(200)))
    with running(streams, log, "--tick-interval-ms", "1000") as job:
        scene.born("p", *(f"t{number}" for number in range(100)))
        scene.settles(job)
        scene.born("p", *(f"t{number}" for number in range(100, 200)))
        scene.sent()
        broker.kill()
        time.sleep(3)
        assert job.stop() == 0, job.said()
        assert "Traceback" not in job.said()
    with Job(streams, log) as waiting:
        assert eventually(lambda: "left" in waiting.said(), SETTLE_SECONDS, POLL_SECONDS), waiting.said()
        assert waiting.stop() == 0, waiting.said()
        assert waiting.said().splitlines()[-1].endswith("stopped")
    broker.start()
    with running(streams, log):
        streams.becomes({Effective("p", "g", "c", f"t{number}") for number in range(200)})
    assert streams.repeated() == 0


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_a_checkpoint_that_has_lost_its_identity_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """Before the job connects to Kafka."""
    streams = Streams("127.0.0.1:1", tmp_path / "checkpoint")
    (streams.checkpoint / "query").mkdir(parents=True)
    if content is not None:
        (streams.checkpoint / "reexpand.json").write_bytes(content)
    assert f"Error: {streams.checkpoint}/reexpand.json " in refused(streams, tmp_path / "job.log")


@pytest.mark.rule("no-broker")
def test_a_start_without_a_broker_leaves_the_checkpoint_new(tmp_path: Path) -> None:
    """The next start may have other settings."""
    streams = Streams("127.0.0.1:1", tmp_path / "checkpoint")
    options = tmp_path / "client.properties"
    options.write_text("default.api.timeout.ms=2000\nrequest.timeout.ms=1000\n")
    said = refused(streams, tmp_path / "job.log", "--kafka-options", str(options), code=1)
    assert re.search(r"connecting to 127\.0\.0\.1:1: 127\.0\.0\.1:1: connection refused; \d s left", said)
    assert "no Kafka broker answers at 127.0.0.1:1 within 2 s" in said
    assert not (streams.checkpoint / "reexpand.json").exists()
