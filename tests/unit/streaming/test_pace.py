"""When micro-batches keep a pace; how they do is shown on the real Spark."""

import pytest

from streaming.config import load
from streaming.spark import pace


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (True, 1)),
        ({"pace_cpu": "0"}, (False, 0)),
        ({"pace_cpu": "0.25"}, (True, 1)),
        ({"trigger_interval_ms": "300"}, (False, 300)),
        ({"trigger_interval_ms": "300", "pace_cpu": "2"}, (False, 300)),
    ],
)
def test_a_trigger_interval_takes_the_place_of_the_budget(given: dict[str, str], found: tuple[bool, int]) -> None:
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c", **given})
    assert (pace.is_kept(settings), pace.trigger_ms(settings)) == found
