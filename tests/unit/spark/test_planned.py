"""The settings with which a micro-batch was planned, and with which it is repeated if it is written in part."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from streaming.config import Settings, load
from streaming.errors import CheckpointMismatch
from streaming.spark import checkpoint, notes
from streaming.spark.attend import until
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.notes import PLANNED, Terms
from tests.unit.spark.conftest import Markers

AGREED = Agreement("id", 2)
NUMBER = 7
FORMER = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
LATER = load({"bootstrap_servers": "b:1", "checkpoint": "/c", "max_entries": 5, "client_timeout_ms": 1_000})


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last micro-batch is planned and not committed."""
    _progress(monkeypatch, 1)


def _progress(monkeypatch: pytest.MonkeyPatch, read: int) -> None:
    progress = QueryProgress(begun=True, read={"t": {0: read}}, planned={"t": {0: 2}}, micro_batches=NUMBER + 1)
    monkeypatch.setattr(checkpoint, "progress", lambda *_: progress)


def start(settings: Any, *counts: int) -> Terms:
    spark: Any = None
    admin: Any = Markers(*counts)
    return notes.settings_of_plan(spark, settings, admin, AGREED)


def test_a_micro_batch_that_is_written_in_part_is_repeated_with_its_settings(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start(FORMER, NUMBER, NUMBER)
    before = (folder / PLANNED).read_bytes()
    wanted = LATER.model_copy(update={"max_entries": 20_000, "client_timeout_ms": 0})
    assert start(LATER, NUMBER, NUMBER + 1) == Terms(wanted, NUMBER)
    assert (folder / PLANNED).read_bytes() == before
    assert "micro-batch 7 is written in part, with max_entries=20000, client_timeout_ms=0" in caplog.text


@pytest.mark.parametrize(
    ("former", "read", "written"),
    [(FORMER, 1, NUMBER), (FORMER, 2, NUMBER + 1), (None, 1, NUMBER + 1)],
    ids=["nothing is written", "all is committed", "a checkpoint of a former release"],
)
def test_other_settings_apply_at_once(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    former: Settings | None,
    read: int,
    written: int,
) -> None:
    if former:
        start(FORMER, NUMBER, NUMBER)
    _progress(monkeypatch, read)
    assert start(LATER, written, written) == Terms(LATER)
    assert json.loads((folder / PLANNED).read_bytes())["max_entries"] == 5


@pytest.mark.usefixtures("folder")
def test_without_transactions_a_planned_micro_batch_counts_as_written() -> None:
    start(FORMER, NUMBER, NUMBER)
    assert start(LATER.model_copy(update={"delivery": "at-least-once"})).through == NUMBER


@pytest.mark.parametrize("content", [b"", b"[]", b"{}"])
def test_a_damaged_note_is_refused(folder: Path, content: bytes) -> None:
    folder.mkdir()
    (folder / PLANNED).write_bytes(content)
    with pytest.raises(CheckpointMismatch, match=r"/c/planned\.json cannot be read"):
        start(FORMER, NUMBER, NUMBER)


def test_the_query_ends_when_the_micro_batch_is_committed() -> None:
    query = MagicMock()
    latest = query._jsq.lastProgress

    def never(_: float) -> bool:
        return False

    through = until(query, never, NUMBER)
    looks = []
    for number in (None, NUMBER - 1, NUMBER, NUMBER + 1):
        latest.return_value = number and MagicMock(**{"batchId.return_value": number})
        looks.append(through(0))
    assert looks == [False, False, True, True]
    assert until(query, never, None) is never
