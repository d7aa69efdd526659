"""Lag in records and in seconds, from looks at the ends of the inputs."""

from hypothesis import given
from hypothesis import strategies as st

from streaming.monitor.batch import InputLag, LagMeter


class Time:
    """A clock that is set by hand."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return it."""
        return self.now


def test_an_input_is_behind_since_the_last_look_at_which_it_was_not() -> None:
    """Although it was idle for an hour before."""
    time = Time()
    meter = LagMeter(time)
    meter.learn_newest("t", 0, 900.0)
    meter.look({"t": {0: 5, 1: 5}}, {"t": {0: 5, 1: 5}})
    assert meter.lags == {"t": InputLag(0, 0.0)}
    time.now = 4_600
    meter.look({"t": {0: 5, 1: 5}}, {"t": {0: 5, 1: 5}})
    time.now = 4_603
    meter.look({"t": {0: 8, 1: 5}}, {"t": {0: 5, 1: 5}})
    assert meter.lags == {"t": InputLag(3, 3.0)}


def test_a_backlog_is_as_old_as_the_newest_record_that_was_read() -> None:
    time = Time()
    meter = LagMeter(time)
    meter.look({"t": {0: 500}}, {})
    assert meter.lags == {"t": InputLag(500, 0.0)}
    meter.learn_newest("t", 0, 400.0)
    time.now = 1_010
    meter.look({"t": {0: 500}}, {"t": {0: 100}})
    assert meter.lags == {"t": InputLag(400, 610.0)}
    assert (meter.records, meter.seconds) == (400, 610.0)


def test_a_partition_that_is_read_hides_none_that_is_not() -> None:
    time = Time()
    meter = LagMeter(time)
    meter.learn_newest("t", 0, 999.0)
    meter.learn_newest("t", 1, 300.0)
    meter.look({"t": {0: 5, 1: 5}}, {"t": {0: 4, 1: 2}})
    assert meter.lags == {"t": InputLag(4, 700.0)}


def test_an_input_that_is_always_a_little_behind_does_not_grow_old() -> None:
    """Under load no look finds everything read."""
    time = Time()
    meter = LagMeter(time)
    for number in range(1_000):
        time.now += 2
        meter.learn_newest("t", 0, time.now - 0.5)
        meter.look({"t": {0: number + 2}}, {"t": {0: number + 1}})
        assert meter.lags == {"t": InputLag(1, 0.5)}


def test_the_rate_is_that_of_the_last_looks() -> None:
    time = Time()
    meter = LagMeter(time)
    assert meter.rate == 0
    for offset in (0, 100, 200, 1_200):
        meter.look({"t": {0: 9_999}}, {"t": {0: offset}})
        time.now += 15
    assert meter.rate == 1_000 / 15


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(1, 60)), min_size=1))
def test_seconds_never_exceed_the_time_since_the_input_was_last_read_to_its_end(
    steps: list[tuple[int, int, int]],
) -> None:
    time = Time()
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
