"""Progress of a job that catches up."""

import pytest

from streaming.spark.monitoring import QueryMonitor


@pytest.mark.parametrize(
    ("rate", "is_working", "text"),
    [
        (0.0, True, "a micro-batch is running"),
        (0.0, False, "0 per second, no records are read at present"),
        (50.0, True, "50 per second, 2 s left"),
    ],
)
def test_a_running_micro_batch_is_no_standstill(rate: float, is_working: bool, text: str) -> None:  # noqa: FBT001 - as the table says
    """The first one may read for a minute before any rate is known."""
    monitor = object.__new__(QueryMonitor)
    monitor._is_working = is_working
    assert monitor._pace(100, rate) == text
