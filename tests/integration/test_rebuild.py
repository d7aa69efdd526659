"""`reexpand rebuild` on a real Kafka and a real Spark: a new checkpoint, and no update that says nothing new."""

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from streaming.kafka.permissions import partition_names
from streaming.oracle import Effective
from streaming.records.updates import Cause
from tests.support.brokers import SharedBroker
from tests.support.histories import Profile, expected, history
from tests.support.processes import eventually
from tests.support.running_job import (
    POLL_SECONDS,
    PRODUCERS_TIME,
    REEXPAND,
    SETTLE_SECONDS,
    Streams,
    assert_equal_relations,
    refused,
    running,
)
from tests.support.scene import LEASE_MS, Scene, limits_and_times
from tests.support.topics import delete, left_open
from tests.support.update_records import forged
from tests.support.verbs import reexpand

TIMES = ("--tick-interval-ms", "1000", "--client-timeout-ms", str(LEASE_MS))
BEFORE = ("--shuffle-partitions", "2", *TIMES)
SHARDS = ("--shards", "p=3", "--shards", "only=2", "--shards", "many=3", "--route-depth", "2")
AFTER = (*SHARDS, "--shuffle-partitions", "3", *TIMES)


@pytest.fixture
def streams(broker: SharedBroker, tmp_path: Path) -> Streams:
    """Topics with the timestamps of their producers, so that a lease can have run out."""
    return Streams(broker.bootstrap_servers, tmp_path / "checkpoint").create(config=PRODUCERS_TIME)


def other(streams: Streams, name: str = "rebuilt") -> Streams:
    return Streams(streams.bootstrap_servers, streams.checkpoint.with_name(name), streams.prefix)


def words(streams: Streams, former: Path, *options: str) -> list[str]:
    return ["rebuild", "--json", *options, "--former", str(former), *streams.options()]


def rebuilt(streams: Streams, former: Path, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reexpand(*words(streams, former, *options)).stdout)
    return found


@contextmanager
def in_process(streams: Streams, former: Path, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as written:
        command = [REEXPAND, *words(streams, former, *options)]
        process = subprocess.Popen(command, stdout=written, stderr=written, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(60)


def assert_continues(rebuilt: Streams, scene: Scene, rows: set[Effective], log: Path) -> None:
    """Check that a job on the rebuilt checkpoint writes the next update, and none again."""
    with running(rebuilt, log, *AFTER):
        scene.born("only", "b__3")
        rebuilt.becomes(rows | {Effective("only", "only-g", "second", "b__3")})
    assert rebuilt.repeated() == 0


@pytest.mark.rule("rebuild")
@pytest.mark.timeout(1_200)
def test_other_shards_and_partitions_cost_no_update_but_true_differences(streams: Streams, tmp_path: Path) -> None:
    """A history with an exclusive group, a quota and a lease; then the job goes on with the new checkpoint."""
    records = history(Random(4), 600, Profile(dialects=True, selectors=True, exclusive=True, bound=True))
    scene, feed, log = Scene(streams), streams.producer(), tmp_path / "job.log"
    many = [f"a__{number}__{'x' * 20}" for number in range(1_000)]
    scene.group("all", "many")
    scene.asks("c", "all", "many", "a__**")
    scene.born("many", *many)
    with running(streams, log, *BEFORE):
        rows = limits_and_times(scene) | {Effective("many", "all", "c", topic) for topic in many}
        feed.send_slowly(records[:300])
        wanted = rows | expected([records[:300]]).relation()
        streams.becomes(wanted)
        causes = {Cause.TOPIC_EXPIRED, Cause.LEASE_EXPIRED}
        assert eventually(lambda: causes <= {update["cause"] for update in streams.updates()}, 30, POLL_SECONDS)
    before = len(streams.updates())
    letters = len(streams.dead_letters())
    surplus, missing = Effective("only", "only-g", "first", "b__1"), Effective("limited", "few", "some", "2")
    streams.write(streams.settings.updates, *forged("ADD", surplus), *forged("REMOVE", missing))

    new = other(streams)
    (driver,) = partition_names(json.loads((streams.checkpoint / "reexpand.json").read_text())["id"], 1)
    with left_open(streams, streams.settings.clock, driver):
        said = rebuilt(new, streams.checkpoint, *AFTER)
    assert (said["added"], said["removed"], said["rows"]) == (1, 1, len(wanted))
    assert f"--checkpoint {new.checkpoint}" in said["run"]
    assert_equal_relations(streams.relation(), wanted)
    repaired = [update["op"] for update in streams.updates() if update["cause"] == Cause.REPAIRED]
    assert Counter(repaired) == {"ADD": 1, "REMOVE": 1}
    assert len(streams.updates()) == before + 4
    assert len(streams.dead_letters()) == letters

    with running(new, log, *AFTER):
        feed.send_slowly(records[300:])
        streams.becomes(rows | expected([records]).relation())
    assert streams.repeated() == 0
    identity = json.loads((new.checkpoint / "reexpand.json").read_text())
    assert (identity["shards"], identity["shuffle_partitions"]) == ({"many": 3, "only": 2, "p": 3}, 3)
    assert f"was replaced by {new.checkpoint}" in refused(streams, log, *BEFORE)


def shorten(streams: Streams, copy: Path) -> int:
    """Remove all that the job has read from its inputs, and return the number of records."""
    where = ("--checkpoint", streams.checkpoint)
    reexpand("backup", *where, copy)
    command = ("compact-inputs", *where, "--bootstrap-servers", streams.bootstrap_servers, "--backup", copy)
    counted, removed = (json.loads(reexpand(*command, "--json", *more).stdout) for more in ((), ("--yes",)))
    assert (counted["removed"], removed["removed"]) == (False, True)
    assert counted["records"] == removed["records"] == sum(each["records"] for each in removed["partitions"])
    assert "\n0 records were removed\n" in reexpand(*command, "--yes").stdout
    return int(removed["records"])


@pytest.mark.rule("resharding", "compaction")
@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_states_go_on_in_other_shards_where_the_inputs_lack_their_beginning(streams: Streams, tmp_path: Path) -> None:
    """Exclusive groups keep who holds what; clients keep their leases; records that nobody has read are read."""
    records = history(Random(6), 600, Profile(dialects=True, selectors=True, exclusive=True, bound=True))
    scene, feed, log = Scene(streams), streams.producer(), tmp_path / "job.log"
    with running(streams, log, *BEFORE) as job:
        rows = limits_and_times(scene)
        feed.send_slowly(records[:300])
        streams.becomes(rows | expected([records[:300]]).relation())
        scene.settles(job)
        assert shorten(streams, tmp_path / "backup") > 300
        feed.send_slowly(records[300:350])
        streams.becomes(rows | expected([records[:350]]).relation())
    former = streams.relation()
    feed.send_slowly(records[350:400])
    before, letters = len(streams.updates()), len(streams.dead_letters())
    wanted = rows | expected([records[:400]]).relation()
    new = other(streams)
    said = rebuilt(new, streams.checkpoint, "--from-state", *AFTER)
    assert (said["added"], said["removed"]) == (len(wanted - former), len(former - wanted))
    assert said["rows"] == len(wanted)
    assert_equal_relations(streams.relation(), wanted)
    assert sum(update["cause"] != Cause.REPAIRED for update in streams.updates()) == before
    assert len(streams.dead_letters()) == letters
    assert not list(new.checkpoint.glob("parts/*/adopted"))

    with running(new, log, *AFTER):
        feed.send_slowly(records[400:])
        scene.asks("second", "only-g", "only", action="COMPLETE_REMOVE")
        scene.gone("limited", "2")
        left = {Effective("only", "only-g", "second", topic) for topic in ("b__1", "b__2")}
        freed = {row._replace(client_id="first") for row in left}
        quota = {Effective("limited", "few", "some", topic) for topic in ("2", "3")}
        streams.becomes((rows - left - quota | freed) | expected([records]).relation())
    assert streams.repeated() == 0


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_checkpoint_without_a_committed_micro_batch_is_rebuilt_from_the_inputs(
    streams: Streams, tmp_path: Path
) -> None:
    """It has no state to begin with; what it wrote is not written again."""
    scene, log = Scene(streams), tmp_path / "job.log"
    wanted = limits_and_times(scene)
    with running(streams, log, *BEFORE) as job:
        streams.becomes(wanted)
        job.kill()
    shutil.rmtree(streams.checkpoint / "query" / "commits")
    new = other(streams)
    done = reexpand(*words(new, streams.checkpoint, "--from-state", *AFTER), codes=(2,))
    assert "has committed no micro-batch" in done.stderr
    assert rebuilt(new, streams.checkpoint, *AFTER)["added"] == 0
    assert_continues(new, scene, wanted, log)


@pytest.mark.rule("rebuild")
@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_rebuild_that_is_killed_goes_on(streams: Streams, tmp_path: Path) -> None:
    """While it reads, and while it writes; no job starts in between."""
    records = history(Random(5), 600, Profile(exclusive=True, bound=True))
    scene, feed, log = Scene(streams), streams.producer(), tmp_path / "job.log"
    rows = limits_and_times(scene)
    feed.send_slowly(records)
    wanted = rows | expected([records]).relation()
    with running(streams, log, *BEFORE):
        streams.becomes(wanted)
    before = streams.ends(streams.settings.updates)
    new = other(streams)
    slow = (*AFTER, "--max-offsets-per-trigger", "20")
    commits, note = new.checkpoint / "query" / "commits", new.checkpoint / "rebuild.json"
    with in_process(new, streams.checkpoint, log, *slow) as process:
        assert eventually(lambda: len(list(commits.glob("[0-9]*"))) > 3, SETTLE_SECONDS, POLL_SECONDS)
        assert process.poll() is None
    assert "`reexpand rebuild`" in refused(new, log, *AFTER)
    surplus = Effective("only", "only-g", "first", "b__1")
    streams.write(streams.settings.updates, *forged("ADD", surplus))
    with in_process(new, streams.checkpoint, log, *slow) as process:
        assert eventually(lambda: "correcting" in note.read_text(), SETTLE_SECONDS, 0.01)
        assert process.poll() is None
    assert "stage: correcting" in refused(new, log, *AFTER)
    said = rebuilt(new, streams.checkpoint, *slow)
    assert said["added"] == 0
    assert_equal_relations(streams.relation(), wanted)
    again = rebuilt(new, streams.checkpoint, *slow)
    assert again == said
    ends = streams.ends(streams.settings.updates)
    assert sum(ends.values()) == sum(before.values()) + 3  # the forged ADD, the REMOVE, and its tombstone
    assert_continues(new, scene, wanted, log)


@pytest.mark.rule("rebuild")
@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_an_older_backup_and_a_lost_updates_topic_end_in_the_relation(streams: Streams, tmp_path: Path) -> None:
    """Each is refused by the job, which names the way out."""
    scene, log = Scene(streams), tmp_path / "job.log"
    rows = limits_and_times(scene)
    with running(streams, log, *BEFORE):
        streams.becomes(rows)
        reexpand("backup", "--checkpoint", streams.checkpoint, tmp_path / "backup")
        scene.born("only", "c__1", "c__2")
        scene.gone("only", "c__1", "a__1")
        scene.sent()
        first = Effective("only", "only-g", "first", "a__1")
        wanted = rows - {first} | {first._replace(lite_topic="c__2")}
        streams.becomes(wanted)
    shutil.rmtree(streams.checkpoint)
    reexpand("restore", "--checkpoint", streams.checkpoint, tmp_path / "backup")
    written = len(streams.updates())
    said = refused(streams, log, *BEFORE)
    assert len(streams.updates()) == written
    assert "older copy" in said
    assert "`reexpand rebuild`" in said
    new = other(streams)
    found = rebuilt(new, streams.checkpoint, *AFTER)
    assert (found["added"], found["removed"]) == (0, 0)
    assert_equal_relations(streams.relation(), wanted)
    assert streams.repeated() == 0

    delete(streams, streams.settings.updates)
    assert "`reexpand rebuild`" in refused(new, log, *AFTER)
    last = other(streams, "last")
    found = rebuilt(last, new.checkpoint, *BEFORE)
    assert (found["added"], found["removed"]) == (len(wanted), 0)
    assert_equal_relations(streams.relation(), wanted)
    with running(last, log, *BEFORE):
        scene.gone("only", "c__2")
        streams.becomes(wanted - {Effective("only", "only-g", "first", "c__2")})


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_living_job_and_a_used_folder_are_refused(streams: Streams, tmp_path: Path) -> None:
    """Two checkpoints would write to one updates topic; nothing is touched."""
    scene, log = Scene(streams), tmp_path / "job.log"
    scene.group("g", "p")
    scene.born("p", "t")
    scene.asks("c", "g", "p", "*")
    scene.sent()
    new = other(streams)
    with running(streams, log, *BEFORE) as job:
        streams.becomes({Effective("p", "g", "c", "t")})
        for target, former, said in (
            (new, streams.checkpoint, f"in use by process {job.process.pid}"),
            (streams, new.checkpoint, "is the checkpoint of a job"),
            (new, tmp_path, "give --without-former"),
        ):
            assert said in reexpand(*words(target, former, *BEFORE), codes=(1, 2)).stderr
        assert not (new.checkpoint / "reexpand.json").exists()
        scene.gone("p", "t")
        scene.sent()
        streams.becomes(set())
