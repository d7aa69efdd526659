"""The settings with which a micro-batch was planned, and with which it is repeated if it is written in part."""

import json
from typing import Any

import pytest

from streaming.config import load
from streaming.errors import CheckpointMismatch
from streaming.spark import checkpoint, notes
from streaming.spark.attend import until
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.notes import PLANNED, Terms

AGREED = Agreement("id", 2)
NUMBER = 7
FORMER = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
LATER = load({"bootstrap_servers": "b:1", "checkpoint": "/c", "max_entries": 5, "client_timeout_ms": 1_000})


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
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Files of a checkpoint, whose last micro-batch is planned and not committed."""
    stored: dict[str, bytes] = {}

    class Stored:
        def __init__(self, *_: object) -> None:
            pass

        def exists(self, name: str) -> bool:
            return name in stored

        def read(self, name: str) -> bytes:
            return stored[name]

        def write(self, name: str, content: bytes) -> None:
            stored[name] = content

    monkeypatch.setattr(notes, "CheckpointFiles", Stored)
    progress = QueryProgress(begun=True, read={"t": {0: 1}}, planned={"t": {0: 2}}, micro_batches=NUMBER + 1)
    monkeypatch.setattr(checkpoint, "progress", lambda *_: progress)
    return stored


def start(settings: Any, *counts: int) -> Terms:
    spark: Any = None
    admin: Any = Kafka(*counts)
    return notes.settings_of_plan(spark, settings, admin, AGREED)


def test_a_micro_batch_that_is_written_in_part_is_repeated_with_its_settings(
    files: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    start(FORMER, NUMBER, NUMBER)
    before = dict(files)
    wanted = LATER.model_copy(update={"max_entries": 20_000, "client_timeout_ms": 0})
    assert start(LATER, NUMBER, NUMBER + 1) == Terms(wanted, NUMBER)
    assert files == before
    assert "micro-batch 7 is written in part, with max_entries=20000, client_timeout_ms=0" in caplog.text


def test_other_settings_apply_at_once_if_nothing_is_written(files: dict[str, bytes]) -> None:
    start(FORMER, NUMBER, NUMBER)
    assert start(LATER, NUMBER, NUMBER) == Terms(LATER)
    assert json.loads(files[PLANNED])["max_entries"] == 5


def test_other_settings_apply_at_once_if_all_is_committed(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(FORMER, NUMBER, NUMBER)
    progress = QueryProgress(begun=True, read={"t": {0: 2}}, planned={"t": {0: 2}}, micro_batches=NUMBER + 1)
    monkeypatch.setattr(checkpoint, "progress", lambda *_: progress)
    assert start(LATER, NUMBER + 1, NUMBER + 1) == Terms(LATER)
    assert json.loads(files[PLANNED])["max_entries"] == 5


def test_without_transactions_a_planned_micro_batch_counts_as_written(files: dict[str, bytes]) -> None:
    start(FORMER, NUMBER, NUMBER)
    later = LATER.model_copy(update={"delivery": "at-least-once"})
    assert start(later).through == NUMBER
    assert files


def test_a_checkpoint_of_a_former_release_has_no_note(files: dict[str, bytes]) -> None:
    assert start(LATER, NUMBER + 1, NUMBER + 1) == Terms(LATER)
    assert PLANNED in files


@pytest.mark.parametrize("content", [b"", b"[]", b"{}"])
def test_a_damaged_note_is_refused(files: dict[str, bytes], content: bytes) -> None:
    files[PLANNED] = content
    with pytest.raises(CheckpointMismatch, match=r"/c/planned\.json cannot be read"):
        start(FORMER, NUMBER, NUMBER)


def test_the_query_ends_when_the_micro_batch_is_committed() -> None:
    class Query:
        """A query, and its own last progress."""

        def __init__(self) -> None:
            self._jsq = self
            self.number: int | None = None

        def lastProgress(self) -> Any:  # noqa: N802 - Spark's name
            """Return the progress."""
            return None if self.number is None else self

        def batchId(self) -> int | None:  # noqa: N802 - Spark's name
            """Return the number of the last micro-batch."""
            return self.number

    def never(_: float) -> bool:
        return False

    query: Any = Query()
    through = until(query, never, NUMBER)
    looks = []
    for query.number in (None, NUMBER - 1, NUMBER, NUMBER + 1):
        looks.append(through(0))
    assert looks == [False, False, True, True]
    assert until(query, never, None) is never
