"""A driver that lives on a checkpoint, by its beats."""

import pytest

from streaming.errors import BackupRefused
from streaming.operations import checkpoint as driver


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
