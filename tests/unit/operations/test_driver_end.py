"""A driver that lives on a checkpoint, by its beats."""

from pathlib import Path

import pytest

from streaming.errors import BackupRefused, NotVerified
from streaming.operations import checkpoint as driver
from streaming.operations.checkpoint import JobCheckpoint


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_LOOK_SECONDS", 0.01)


def test_a_driver_whose_beats_go_on_lives() -> None:
    beats = iter([7, 7, 8])
    with pytest.raises(BackupRefused, match="Stop it first"):
        driver.check_silent(lambda: next(beats))


@pytest.mark.parametrize("last", [-1001, 7], ids=["never", "silent"])
def test_one_that_is_not_heard_of_has_ended(last: int) -> None:
    driver.check_silent(lambda: last, 0.05)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "it has no reexpand.json"), (b"", "cannot be read"), (b"{}", "it lacks group_events")],
)
def test_a_damaged_checkpoint_can_be_replaced_without_the_question(
    content: bytes | None, reason: str, tmp_path: Path
) -> None:
    """Such a checkpoint is why a backup is restored."""
    if content is not None:
        (tmp_path / "reexpand.json").write_bytes(content)
    with pytest.raises(BackupRefused, match=f"{reason}.*Kafka cannot be asked.*give --driver-has-ended"):
        driver.check_ended(JobCheckpoint(str(tmp_path)), "127.0.0.1:1", {})
    with pytest.raises(NotVerified, match=reason):
        _ = JobCheckpoint(str(tmp_path)).topics
