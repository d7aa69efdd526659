"""The job on a Spark standalone cluster of two workers: spread over both, and right when they die in turn."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from streaming.errors import ClusterFailed
from streaming.local.cluster import SparkCluster
from tests.support.faulty_cluster import FaultyCluster
from tests.support.histories import Profile, expected, history
from tests.support.processes import MARK, eventually, marked
from tests.support.running_job import POLL_SECONDS, SETTLE_SECONDS, Streams, running
from tests.support.sharded import OPTIONS, PARTITION_OF_SHARD


class Task(NamedTuple):
    """A task that worked, or was to work, on a state partition."""

    partition: int
    executor: str
    outcome: str
    finished_ms: int


class EventLog:
    """What Spark's driver has written down about executors and tasks so far; it writes when a stage ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "events"
        self._folder.mkdir()
        options = {"enabled": "true", "dir": self._folder.as_uri(), "rolling.enabled": "false", "compress": "false"}
        self.configuration = folder / "conf"
        self.configuration.mkdir()
        lines = "".join(f"spark.eventLog.{name} {value}\n" for name, value in options.items())
        (self.configuration / "spark-defaults.conf").write_text(lines)

    def executors(self) -> set[str]:
        return {event["Executor ID"] for event in self._events("SparkListenerExecutorAdded")}

    def state_tasks(self) -> list[Task]:
        """In order; each micro-batch has a stage that reads Kafka, and one with a task for each state partition."""
        return [
            Task(info["Index"], info["Executor ID"], event["Task End Reason"]["Reason"], info["Finish Time"])
            for event in self._events("SparkListenerTaskEnd")
            if event["Task Type"] == "ResultTask" and (info := event["Task Info"])
        ]

    def is_at_state(self) -> bool:
        """Whether a micro-batch has read Kafka and works on the state; one without records has no stage that reads."""
        tasks = self._events("SparkListenerTaskEnd")
        reading = {task["Stage ID"] for task in tasks if task["Task Type"] == "ShuffleMapTask"}
        ended = [event["Stage Info"]["Stage ID"] for event in self._events("SparkListenerStageCompleted")]
        return bool(ended) and ended[-1] in reading

    def _events(self, kind: str) -> Iterator[dict[str, Any]]:
        for file in self._folder.iterdir():
            for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.startswith(f'{{"Event":"{kind}"') and line.endswith("\n"):
                    yield json.loads(line)


def executors_of(cluster: SparkCluster, worker: int) -> set[str]:
    return {path.name for path in (cluster.folder / f"worker-{worker}").glob("app-*/*")}


def dies_at_work(cluster: FaultyCluster, worker: int, log: EventLog) -> bool:
    """Kills a worker if that is at work on the state: a task of a worker that is paused does not end."""
    if not eventually(log.is_at_state, 2):
        return False
    cluster.pause_worker(worker)
    time.sleep(1)
    if log.is_at_state():
        cluster.kill_worker(worker)
        return True
    cluster.resume_worker(worker)
    return False


@pytest.mark.rule("failed-task")
@pytest.mark.long
def test_workers_die_in_turn_while_a_history_flows(
    streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dies at work on the state and the other takes over; it comes back, and takes over when the other dies."""
    records = history(Random(22), 2_000, Profile(dialects=True, selectors=True, exclusive=True, bound=True))
    cuts = [len(records) * part // 4 for part in range(5)]
    quarters = [records[start:end] for start, end in pairwise(cuts)]
    feed = streams.producer()
    log = EventLog(tmp_path)
    monkeypatch.setenv("SPARK_CONF_DIR", str(log.configuration))

    def assert_right_after(count: int) -> None:
        streams.becomes(expected(quarters[:count]).relation())

    with (
        FaultyCluster(tmp_path / "cluster") as cluster,
        running(streams, tmp_path / "job.log", "--master", cluster.url, *OPTIONS),
    ):
        assert eventually(lambda: len(log.executors()) == 2, SETTLE_SECONDS, POLL_SECONDS)
        feed.send_slowly(quarters[0])
        assert_right_after(1)
        first, second = executors_of(cluster, 1), executors_of(cluster, 2)
        at_work = {task.partition: task.executor for task in log.state_tasks()}
        assert {at_work[partition] for partition in PARTITION_OF_SHARD} == first | second == {"0", "1"}

        pieces = [quarters[1][start : start + 50] for start in range(0, len(quarters[1]), 50)]
        while not dies_at_work(cluster, 1, log):
            feed.send_slowly(pieces.pop(0))
        killed_ms = time.time() * 1_000
        for part in (*pieces, quarters[2]):
            feed.send_slowly(part)
        assert_right_after(3)
        after = [task for task in log.state_tasks() if task.finished_ms > killed_ms]
        assert "ExecutorLostFailure" in {task.outcome for task in after if task.executor in first}
        done = {(task.executor, task.partition) for task in after if task.outcome == "Success"}
        assert done == {(executor, partition) for executor in second for partition in PARTITION_OF_SHARD}

        cluster.start_worker(1)
        assert eventually(lambda: len(log.executors()) == 3, SETTLE_SECONDS, POLL_SECONDS)
        cluster.kill_worker(2)
        feed.send_slowly(quarters[3])
        assert_right_after(4)
        third = executors_of(cluster, 1) - first
        done = {(task.executor, task.partition) for task in log.state_tasks() if task.executor in third}
        assert done == {(executor, partition) for executor in third for partition in PARTITION_OF_SHARD}
    streams.assert_repeated_updates_are_equal()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_nothing_of_a_cluster_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    mark = uuid4().hex
    script = (
        "import pathlib, sys, time; from streaming.local.cluster import SparkCluster; "
        "print(SparkCluster(pathlib.Path(sys.argv[1]), workers=1).start().url, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, MARK: mark}) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline().startswith("spark://127.0.0.1:")
            assert sum("java" in command for command in marked(mark)) == 2
        finally:
            owner.kill()
    assert eventually(lambda: marked(mark) == [])


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_cluster_with_a_secret_serves_those_who_know_it(tmp_path: Path) -> None:
    """As docs/security.md has it: the secret is in a file of each machine, and on no command line."""
    secret = uuid4().hex
    options = {"authenticate": "true", "authenticate.secret": secret, "network.crypto.enabled": "true"}
    script = (
        "import sys; from streaming.config import load; from streaming.spark.session import build; "
        "settings = load({'bootstrap_servers': 'b:1', 'checkpoint': '/unused', 'master': sys.argv[1]}); "
        "spark = build(settings, 1); print(spark.range(5).count(), spark.conf.get('spark.ui.enabled'), flush=True); "
        "sys.stdin.read()"
    )
    cluster = SparkCluster(
        tmp_path / "cluster", workers=1, options={f"spark.{name}": value for name, value in options.items()}
    )
    command = [sys.executable, "-c", script]
    with cluster:
        variables = {**os.environ, "SPARK_CONF_DIR": str(cluster.configuration)}
        with subprocess.Popen(
            [*command, cluster.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        ) as driver:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "5 false\n"
            commands = [each.read_bytes() for each in Path("/proc").glob("[0-9]*/cmdline") if each.exists()]
            driver.communicate("")
        assert not [each for each in commands if secret.encode() in each]
        stranger = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
        refused = subprocess.run([*command, cluster.url], env=stranger, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert refused.stdout == ""


def test_a_worker_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path, workers=1, memory="plenty")
    with pytest.raises(ClusterFailed, match=r"(?s)The Spark worker-1 ended while starting.*Usage: Worker"):
        cluster.start()
