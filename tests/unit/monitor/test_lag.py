"""Lag in records and in seconds, from looks at the ends of the inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.monitor.batch import InputLag, LagMeter
from tests.unit.monitor.conftest import Time

Look = tuple[float, list[tuple[int, float]], dict[int, int], dict[int, int], InputLag]
"""Time, newest records that were read since the last look, ends, positions, and the lag that follows."""

LOOKS: dict[str, list[Look]] = {
    "an input is behind since the last look at which it was not, although it was idle for an hour before": [
        (1_000, [(0, 900.0)], {0: 5, 1: 5}, {0: 5, 1: 5}, InputLag(0, 0.0)),
        (4_600, [], {0: 5, 1: 5}, {0: 5, 1: 5}, InputLag(0, 0.0)),
        (4_603, [], {0: 8, 1: 5}, {0: 5, 1: 5}, InputLag(3, 3.0)),
    ],
    "a backlog is as old as the newest record that was read": [
        (1_000, [], {0: 500}, {}, InputLag(500, 0.0)),
        (1_010, [(0, 400.0)], {0: 500}, {0: 100}, InputLag(400, 610.0)),
    ],
    "a record from the future hides no lag": [
        (1_000, [(0, 9_000.0)], {0: 500}, {0: 100}, InputLag(400, 0.0)),
        (1_090, [], {0: 500}, {0: 100}, InputLag(400, 90.0)),
    ],
    "a partition that is read hides none that is not": [
        (1_000, [(0, 999.0), (1, 300.0)], {0: 5, 1: 5}, {0: 4, 1: 2}, InputLag(4, 700.0)),
    ],
    "an input that is always a little behind does not grow old, although no look finds everything read": [
        (now, [(0, now - 0.5)], {0: now + 2}, {0: now + 1}, InputLag(1, 0.5)) for now in range(1_000, 3_000, 2)
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", LOOKS)
def test_lag_is_told_in_records_and_seconds(case: str) -> None:
    time = Time(1_000)
    meter = LagMeter(time)
    for time.now, newest, ends, read, lag in LOOKS[case]:
        for partition, timestamp in newest:
            meter.learn_newest("t", partition, timestamp)
        meter.look({"t": ends}, {"t": read})
        assert meter.lags == {"t": lag}
        assert (meter.records, meter.seconds) == lag


def test_the_rate_is_that_of_the_last_looks() -> None:
    time = Time(1_000)
    meter = LagMeter(time)
    assert meter.rate == 0
    for offset in (0, 100, 200, 1_200):
        meter.look({"t": {0: 9_999}}, {"t": {0: offset}})
        time.now += 15
    assert meter.rate == 1_000 / 15
    assert meter.rates == {"t": 1_000 / 15}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(1, 60)), min_size=1))
def test_seconds_never_exceed_the_time_since_the_input_was_last_read_to_its_end(
    steps: list[tuple[int, int, int]],
) -> None:
    time = Time(1_000)
    meter = LagMeter(time)
    end = read = 0
    level = time.now
    for grown, taken, seconds in steps:
        time.now += seconds
        end += grown
        read = min(end, read + taken)
        meter.look({"t": {0: end}}, {"t": {0: read}})
        level = time.now if read == end else level
        assert meter.lags["t"] == InputLag(end - read, time.now - level)
