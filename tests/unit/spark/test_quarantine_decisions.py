"""What the driver decides about entries that kill or hang workers, without Spark."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from streaming.config import load
from streaming.errors import CheckpointMismatch, EntriesLethal, JobFailed
from streaming.kafka.facts import Offsets
from streaming.spark import checkpoint, quarantine
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.expand import NO_PRECAUTIONS, Precautions
from streaming.worker.quarantine import MAX_PER_HOUR, NOTE, Decision, Quarantine, now_ms

SETTINGS = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
AGREED = Agreement("id", 4)
ENTRY = {
    "topic": "t",
    "partition": 2,
    "offset": 12,
    "entry": 1,
    "timestamp": 5,
    "micro_batch": 7,
    "parent": "p",
    "number": 0,
    "reason": "it kills",
    "state_partition": 3,
}
DECISION = Decision("t", 2, 12, 1, 5, 7, "p", 0, "it kills")
Files = dict[str, bytes]


class Kafka:
    """Kafka, whose markers say what each state partition has written."""

    def __init__(self, *counts: int) -> None:
        self._counts = counts
        self.ended: list[str] = []

    def end_transactions(self, producers: list[str]) -> None:
        """Take down who writes no more."""
        self.ended += producers

    def markers(self, groups: list[str]) -> dict[str, int]:
        """Return the markers of producers that write no more."""
        assert self.ended == groups
        return dict(zip(groups, self._counts, strict=True))


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    """Files of a checkpoint."""
    stored: Files = {}

    class Stored:
        def __init__(self, *_: object) -> None:
            pass

        def exists(self, name: str) -> bool:
            return name in stored

        def read(self, name: str) -> bytes:
            return stored[name]

        def write(self, name: str, content: bytes) -> None:
            stored[name] = content

    monkeypatch.setattr(quarantine, "CheckpointFiles", Stored)
    return stored


def leave_out(kafka: Kafka, *entries: dict[str, Any], delivery: str = "exactly-once") -> None:
    settings = SETTINGS.model_copy(update={"delivery": delivery})
    spark: Any = None
    admin: Any = kafka
    quarantine.leave_out(spark, settings, admin, AGREED, EntriesLethal(entries))


def noted(files: Files) -> tuple[Decision, ...]:
    """Return the decisions without their times."""
    return tuple(replace(each, decided=0) for each in Quarantine.parse(files[NOTE]).decisions)


def test_partitions_that_have_written_the_micro_batch_are_exempt(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """Their transactions are ended before the markers are read."""
    leave_out(Kafka(8, 7, 8, 7), ENTRY)
    assert noted(files) == (replace(DECISION, exempt=(0, 2)),)
    (line,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "t[2]@12#1 of micro-batch 7: it kills" in line.getMessage()
    assert "state partitions 0, 2 had applied it" in line.getMessage()


def test_without_transactions_no_partition_is_exempt(files: Files) -> None:
    kafka = Kafka(8, 8, 8, 8)
    leave_out(kafka, ENTRY, delivery="at-least-once")
    assert noted(files) == (DECISION,)
    assert not kafka.ended


def test_decisions_are_added_to_the_former_ones(files: Files) -> None:
    leave_out(Kafka(7, 7, 7, 7), ENTRY)
    leave_out(Kafka(8, 7, 7, 7), {**ENTRY, "offset": 13}, {**ENTRY, "offset": 14})
    assert [(each.offset, each.exempt) for each in noted(files)] == [(12, ()), (13, (0,)), (14, (0,))]


@pytest.mark.parametrize("counts", [(7, 7, 7, 8), (8, 8, 8, 8)])
def test_an_entry_that_kills_where_it_was_written_ends_the_job(files: Files, counts: tuple[int, ...]) -> None:
    with pytest.raises(JobFailed, match="state partition 3, which has already written"):
        leave_out(Kafka(*counts), ENTRY)
    assert NOTE not in files


def test_an_entry_that_two_tasks_have_found_is_left_out_once(files: Files) -> None:
    leave_out(Kafka(7, 7, 7, 7), ENTRY)
    before = files[NOTE]
    leave_out(Kafka(7, 7, 8, 7), {**ENTRY, "state_partition": 2})
    assert files[NOTE] == before


def test_an_entry_that_kills_an_exempt_partition_ends_the_job(files: Files) -> None:
    leave_out(Kafka(8, 7, 7, 7), ENTRY)
    with pytest.raises(JobFailed):
        leave_out(Kafka(8, 7, 7, 7), {**ENTRY, "state_partition": 0})
    assert len(noted(files)) == 1


def test_a_key_that_kills_without_its_entries_ends_the_job(files: Files) -> None:
    with pytest.raises(JobFailed, match="whatever entry is left out"):
        leave_out(Kafka(7, 7, 7, 7))
    assert NOTE not in files


def test_too_many_decisions_within_an_hour_end_the_job(files: Files) -> None:
    many = tuple(replace(DECISION, offset=1_000 + number, decided=now_ms()) for number in range(MAX_PER_HOUR))
    files[NOTE] = Quarantine(many).dump()
    with pytest.raises(JobFailed, match="100 entries within an hour"):
        leave_out(Kafka(7, 7, 7, 7), ENTRY)
    assert len(noted(files)) == MAX_PER_HOUR


def test_a_damaged_note_is_refused(files: Files) -> None:
    files[NOTE] = b"{"
    with pytest.raises(CheckpointMismatch, match=r"/c/quarantine\.json cannot be read"):
        leave_out(Kafka(7, 7, 7, 7), ENTRY)


# Starts.


def start(monkeypatch: pytest.MonkeyPatch, read: Offsets, planned: Offsets) -> Precautions:
    progress = QueryProgress(begun=True, read=read, planned=planned, micro_batches=8)
    monkeypatch.setattr(checkpoint, "progress", lambda *_: progress)
    spark: Any = None
    return quarantine.precautions(spark, SETTINGS)


def test_a_start_on_committed_micro_batches_takes_no_precautions(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files[NOTE] = Quarantine((DECISION,)).dump()
    assert start(monkeypatch, {"t": {2: 20}}, {"t": {2: 20}}) == NO_PRECAUTIONS


def test_the_second_start_on_one_micro_batch_tries_its_keys_first(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files[NOTE] = Quarantine((DECISION,)).dump()
    looks = [start(monkeypatch, {"t": {2: 12}}, {"t": {2: 20}}) for _ in range(3)]
    assert [(each.decisions, each.repeated) for each in looks] == [((DECISION,), number) for number in (-1, 7, 7)]
    assert [each.bounded for each in looks] == [False, True, False]


def test_entries_in_the_text_of_a_failed_task_are_read() -> None:
    text = (
        f"PythonException: Traceback\n  File x\nstreaming.errors.EntriesLethal: {EntriesLethal([ENTRY])}\n\n\tat java"
    )
    found = quarantine.lethal(text)
    assert found is not None
    assert found.entries == [ENTRY]
    assert quarantine.lethal("PythonException: something else") is None
