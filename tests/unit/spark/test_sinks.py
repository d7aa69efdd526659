"""When micro-batches keep a pace; how they do is shown on the real Spark."""

import pytest

from streaming.config import load
from streaming.spark import sinks


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (0.35, 1)),
        ({"pace_cpu": "0"}, (0.0, 1)),
        ({"pace_cpu": "0.25"}, (0.25, 1)),
        ({"trigger_interval_ms": "300"}, (0.0, 300)),
        ({"trigger_interval_ms": "300", "pace_cpu": "2"}, (0.0, 300)),
    ],
)
def test_a_trigger_interval_takes_the_place_of_the_budget(given: dict[str, str], found: tuple[bool, int]) -> None:
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c", **given})
    assert (sinks.cores(settings), sinks.trigger_ms(settings)) == found
