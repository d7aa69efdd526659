"""What metrics cost: one job, whose metrics are on and asked for every five seconds, or off, by turns.

    make bench SUITE=metrics BENCH="--minutes 8"

One process has both, so that no difference is that of two processes. A turn is latency at a steady rate, or some
bursts, once with metrics and once without; who begins alternates. Off means that workers report no facts about their
keys and the driver follows nothing, asks Kafka nothing, and is asked nothing. CPU is that of the driver, its JVM and
its workers.

The time in which driver and workers do something for the metrics is measured as well, as a share of the CPU of the
bursts. It is more than what they cost there, as it includes waits for a core, and less, as what the JVM does with the
facts of workers is not in it.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from random import Random
from urllib.request import urlopen

from streaming.local.server import free_port
from tests.bench.command import broker_and_folder, by_column, progress
from tests.bench.streaming.cpu import cpu_seconds
from tests.bench.streaming.driver import PATCHED, Driver, System
from tests.bench.streaming.patched import SPENT, SWITCH, spent
from tests.bench.streaming.run import UNCOUNTED, at_rate, report, run_arguments
from tests.bench.streaming.workload import Workload
from tests.support.scene import repeated

_BURSTS = 3
"""Bursts of a measurement: together they are about as long as the time between two scrapes."""

_LEAST_TURNS, _MOST_TURNS = 2, 24
"""Fewest and most turns; after more bursts workers cannot keep all states decoded (see `STATE_CACHE_BYTES`)."""

_WITH, _WITHOUT = "with metrics", "without"
_WANTED_CPU = 0.03
"""Cost that is allowed, as a share of the CPU of a burst."""

_WANTED_MS = 5.0
"""Cost of p50 that is allowed, in milliseconds."""

_P50, _CPU, _OWN = "p50 ms", "CPU s per 100,000", "own time, % of CPU"

_DRAWS = 2_000
"""Draws of the bootstrap, with which the interval of a median is found."""

Pair = dict[str, dict[str, float]]
"""Figures of a turn, with and without metrics."""


@contextmanager
def scraping(port: int, silence: Path, seconds: float) -> Iterator[list[int]]:
    """Request the metrics every few seconds, except while a file exists; yield the sizes of the answers."""
    answers: list[int] = []

    def scrape(_: object) -> None:
        if not silence.exists():
            with suppress(OSError, HTTPException), urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
                answers.append(len(answer.read()))

    with repeated(scrape, seconds):
        yield answers


def bursts(driver: Driver, events: int, noted: Path) -> dict[str, float]:
    """Measure some bursts as one; a file notes the time that the metrics take."""
    before, before_that = cpu_seconds(driver.pid), spent(noted)
    seconds = sum(driver.burst(events) for _ in range(_BURSTS))
    used, all_events = cpu_seconds(driver.pid) - before, _BURSTS * events
    return {
        "events/s": all_events / seconds,
        _CPU: 100_000 / all_events * used,
        _OWN: 100 * (spent(noted) - before_that) / used,
    }


def by_turns(
    silence: Path, measure: Callable[[], dict[str, float]], until: float, most: int = sys.maxsize
) -> Iterator[Pair]:
    """Yield turn by turn what is measured, as long as one more ends before a time of `time.monotonic`."""
    longest = 0.0
    for number in range(most):
        began = time.monotonic()
        if number >= _LEAST_TURNS and began + longest > until:
            return
        found: Pair = {_WITH: {}, _WITHOUT: {}}
        for way in (_WITH, _WITHOUT) if number % 2 else (_WITHOUT, _WITH):
            _switch(silence, is_silent=way == _WITHOUT)
            found[way] = measure()
        longest = max(longest, time.monotonic() - began)
        yield found


def _switch(silence: Path, *, is_silent: bool) -> None:
    if is_silent:
        silence.touch()
    else:
        silence.unlink(missing_ok=True)
    time.sleep(0.5)  # the driver looks every 0.2 s


def switched(options: argparse.Namespace) -> tuple[tuple[list[Pair], list[Pair]], list[int]]:
    """Measure one job with metrics on and off; return the turns at a rate and of bursts, and the sizes of answers."""
    began = time.monotonic()
    port = free_port()
    with broker_and_folder() as (broker, folder):
        silence, noted = folder / "silent", folder / "spent"
        noted.touch()
        environment = {"REEXPAND_HTTP": f"127.0.0.1:{port}", SWITCH: str(silence), SPENT: str(noted)}
        unlimited = Workload(quota=-1)  # clients gather more topics over all turns than a quota allows
        with (
            Driver(System("job", [*PATCHED, "switched"], environment), broker, folder, unlimited) as driver,
            scraping(port, silence, options.scrape) as answers,
        ):

            def turns(name: str, measure: Callable[[], dict[str, float]], minutes: float, *most: int) -> list[Pair]:
                pairs: list[Pair] = []
                for pair in by_turns(silence, measure, began + 60 * minutes, *most):
                    pairs.append(pair)
                    shown = ", ".join(f"{figures[name]:.2f} {way}" for way, figures in pair.items())
                    progress(f"{name}, turn {len(pairs)}: {shown}")
                return pairs

            progress("warming up")
            driver.latencies(round(options.warm_up * options.rate), options.rate)
            at_a_rate = turns(_P50, lambda: at_rate(driver, options.singles, options.rate, UNCOUNTED),
                              options.share_at_rate * options.minutes)  # fmt: skip
            for _ in range(options.warm_bursts):
                driver.burst(options.events)
            of_bursts = turns(_CPU, lambda: bursts(driver, options.events, noted), options.minutes, _MOST_TURNS)
        return (at_a_rate, of_bursts), answers


def summary(pairs: Sequence[Pair]) -> dict[str, dict[str, list[float]]]:
    """Return medians over turns with their range, of both, of their ratios and of their differences."""
    names = list(pairs[0][_WITH])
    return {
        **{way: by_column([pair[way] for pair in pairs]) for way in (_WITH, _WITHOUT)},
        f"{_WITH} / {_WITHOUT}": {name: _ratios(pairs, name) for name in names if name != _OWN},
        f"{_WITH} - {_WITHOUT}": {name: _differences(pairs, name) for name in names},
    }


def costs(at_a_rate: Sequence[Pair], of_bursts: Sequence[Pair]) -> str:
    """Return what is asked: the cost of a burst and of latency, each with the 95 % interval of its median."""
    cpu = [ratio - 1 for ratio in _ratios(of_bursts, _CPU)]
    p50 = _differences(at_a_rate, _P50)
    (cpu_low, cpu_high), (p50_low, p50_high) = interval(cpu), interval(p50)
    own = [pair[_WITH][_OWN] for pair in of_bursts]
    return (
        f"Cost of a burst, {len(cpu)} turns: {statistics.median(cpu):+.1%} of CPU "
        f"({cpu_low:+.1%} to {cpu_high:+.1%}; wanted: at most {_WANTED_CPU:.0%}). Cost of p50, {len(p50)} turns: "
        f"{statistics.median(p50):+.1f} ms ({p50_low:+.1f} to {p50_high:+.1f}; wanted: at most {_WANTED_MS:g} ms). "
        f"Own time in a burst: {statistics.median(own):.2f} % of its CPU ({min(own):.2f} to {max(own):.2f})"
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by bootstrap."""
    random = Random(1)
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(_DRAWS))
    return medians[_DRAWS // 40], medians[-_DRAWS // 40]


def _ratios(pairs: Sequence[Pair], name: str) -> list[float]:
    return [pair[_WITH][name] / pair[_WITHOUT][name] for pair in pairs]


def _differences(pairs: Sequence[Pair], name: str) -> list[float]:
    return [pair[_WITH][name] - pair[_WITHOUT][name] for pair in pairs]


def main() -> None:
    parser = run_arguments(
        __doc__,
        scrape=(5.0, "seconds between two scrapes; deploy/monitoring/prometheus.yml has 15"),
        minutes=(8.0, "time after which no further turn begins"),
        share_at_rate=(0.7, "share of the time for latency; the rest is for bursts (0.7)"),
    )
    parser.set_defaults(rounds=1, turns=4, events=50_000, warm_bursts=6, singles=160, warm_up=40)
    options = parser.parse_args()
    (at_a_rate, of_bursts), answers = switched(options)
    if not answers:
        sys.exit("the metrics were never served: the figures mean nothing")
    by_row = summary(of_bursts)
    figures = {row: {**found, **by_row[row]} for row, found in summary(at_a_rate).items()}
    report(figures, {}, options)
    progress(f"{costs(at_a_rate, of_bursts)}. {len(answers)} answers of {max(answers):,} bytes at most.")
