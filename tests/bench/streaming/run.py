"""The job against the no-op query of the same plan, side by side on one broker: latency and burst throughput as ratios.

The no-op comes three times: as it is, which only counts; passing each event on; and with as much output as the job has.
The job comes twice: as it is, and on Spark's defaults where it has chosen otherwise for speed. The suite `delivery`
compares it with the job that delivers at least once.

    make bench SUITE=job BENCH="--rounds 3"

A machine is not equally fast all the time, so the systems run side by side and take turns of some seconds, while the
others are stopped; a ratio is that of two neighbouring turns. Each round has processes of its own.

Latency is what a consumer of the updates topic sees: from handing a topic event to the producer until its first
update is read, at a steady rate of events, and of events that come alone, into an idle job. A burst is produced as fast
as the broker takes it, into an idle job; its time ends when the broker has the last update. What a burst's updates cost
a reader on the same cores is not the job's, so they are read by nobody. Java compiles what is hot over minutes, so each
process warms up first: some minutes at the steady rate, and some bursts before those that count. CPU is that of a
system's own processes, in bursts and at the steady rate; neither the broker's nor the producer's and consumer's.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from streaming.local.broker import Broker
from tests.bench.command import arguments, broker_and_folder, by_column, progress, show, steps
from tests.bench.peers import systems as peers
from tests.bench.streaming.check import Wrong, check
from tests.bench.streaming.cpu import cpu_seconds
from tests.bench.streaming.driver import JOB, NO_OP, PATCHED, Driver, System

ALONE_RATE = 1.0
"""Events per second that come alone: none meets another."""

WARM_SECONDS = 20
"""Of warming up in one turn."""

UNCOUNTED = 20
"""Events at the beginning of a turn at the steady rate."""

REVIVING_BURSTS, REVIVING_EVENTS = 8, 640
"""Small bursts before a turn is measured, and their events.

Spark ends Python workers that were idle for a minute, and a stopped job is idle. New workers must have seen all
parents, as the workers of a running job have.
"""

NAIVE = System("job-sparks-defaults", [*PATCHED, "naive"])
ECHO = System("no-op-echo", [*NO_OP.command, "echo"], records=1)
SAME_OUTPUT = System("no-op-output", [*NO_OP.command, "same-output"], records=2)
AT_LEAST_ONCE = System("job-at-least-once", [*JOB.command, "--delivery", "at-least-once"])
SYSTEMS = {system.name: system for system in (JOB, NAIVE, NO_OP, ECHO, SAME_OUTPUT, AT_LEAST_ONCE)}
OF_JOB = [system.name for system in (JOB, NAIVE, NO_OP, ECHO, SAME_OUTPUT)]

Turn = Callable[[Driver], dict[str, float]]
"""What a system does while the others rest; returns figures."""


class Turns:
    """Systems that run side by side, of which one at a time does something."""

    def __init__(self, broker: Broker, folder: Path, wrong: dict[str, str]) -> None:
        """What is wrong with a system goes into `wrong`, and it has no further turn."""
        self._broker, self._folder, self._wrong = broker, folder, wrong
        self._drivers: dict[str, Driver] = {}
        self._step = 1
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def start(self, system: System) -> None:
        def prepare(driver: Driver) -> dict[str, float]:
            driver.prepare()
            if not (system.counts or system.records):
                check(driver, self._broker.bootstrap_servers)
            return {}

        driver = self._drivers[system.name] = Driver(system, self._broker, self._folder)
        self._exit.callback(driver.close)
        self._take(system.name, prepare)

    def each(self, turn: Turn) -> dict[str, dict[str, float]]:
        """One turn of each system; forth at one time and back at the next, so that nobody always follows the same."""
        found = {name: self._take(name, turn) for name in list(self._drivers)[:: self._step]}
        self._step = -self._step
        return {name: found[name] for name in self._drivers}

    def _take(self, name: str, turn: Turn) -> dict[str, float]:
        driver = self._drivers[name]
        driver.wake()
        try:
            return turn(driver)
        except Wrong as error:
            progress(f"{name} is left out: {error}")
            self._wrong[name] = str(error)
            del self._drivers[name]
            return {}
        finally:
            driver.rest()


def measure(turns: Turns, options: argparse.Namespace) -> Iterator[dict[str, dict[str, float]]]:
    """The figures of each system, turn by turn, when all of them are warm."""

    def warm(driver: Driver) -> dict[str, float]:
        driver.latencies(round(WARM_SECONDS * options.rate), options.rate)
        return {}

    def revive(driver: Driver) -> None:
        for _ in range(REVIVING_BURSTS if options.warm_up else 0):
            driver.burst(REVIVING_EVENTS)

    def steady(driver: Driver) -> dict[str, float]:
        revive(driver)
        return at_rate(driver, options.singles, options.rate, UNCOUNTED)

    def alone(driver: Driver) -> dict[str, float]:
        revive(driver)
        return {"alone ms": 1000 * statistics.median(driver.latencies(options.alone, ALONE_RATE))}

    def burst(driver: Driver) -> dict[str, float]:
        revive(driver)
        before = cpu_seconds(driver.pid)
        seconds = driver.burst(options.events)
        cpu = 100_000 / options.events * (cpu_seconds(driver.pid) - before)
        return {"events/s": options.events / seconds, "CPU s per 100,000": cpu}

    for _ in steps("warm-up", round(options.warm_up / WARM_SECONDS)):
        turns.each(warm)
    quiet = [_together(turns, steady, alone) for _ in steps("latency", options.turns)]
    for _ in steps("burst that warms up", options.warm_bursts):
        turns.each(burst)
    for figures in quiet:
        found = turns.each(burst)
        yield {name: {**figures[name], **found[name]} for name in found}


def _together(turns: Turns, *several: Turn) -> dict[str, dict[str, float]]:
    """Several turns of each system as one."""
    found: dict[str, dict[str, float]] = {}
    for turn in several:
        for name, figures in turns.each(turn).items():
            found.setdefault(name, {}).update(figures)
    return found


def at_rate(driver: Driver, events: int, rate: float, uncounted: int) -> dict[str, float]:
    """Latency and cores in use at a steady rate, after events that are not counted."""
    driver.latencies(uncounted, rate)
    before, start = cpu_seconds(driver.pid), time.monotonic()
    latencies = driver.latencies(events, rate)
    cores = (cpu_seconds(driver.pid) - before) / (time.monotonic() - start)
    quantiles = statistics.quantiles(latencies, n=20)
    return {"p50 ms": 1000 * quantiles[9], "p95 ms": 1000 * quantiles[18], "cores": cores}


Figures = Mapping[str, Mapping[str, list[float]]]
"""Figures of each turn, by system or pair of systems."""


def summary(found: Sequence[Mapping[str, dict[str, float]]]) -> dict[str, dict[str, list[float]]]:
    """Return the figures of all turns, and the ratios of the job to each other system turn by turn."""
    names = list(dict.fromkeys(name for turn in found for name in turn))
    figures = {name: by_column([turn[name] for turn in found if name in turn]) for name in names}
    for name in names:
        pairs = [(turn[JOB.name], turn[name]) for turn in found if {JOB.name, name} <= turn.keys()]
        if pairs and name != JOB.name:
            ratios = [{figure: job[figure] / other[figure] for figure in job} for job, other in pairs]
            figures[f"job / {name}"] = by_column(ratios)
    return figures


def compare(systems: Sequence[System], options: argparse.Namespace) -> tuple[Figures, dict[str, str]]:
    """Measure the systems alternately; return the figures, and the defect of each system that has none."""
    wrong: dict[str, str] = {}
    found: list[dict[str, dict[str, float]]] = []
    with broker_and_folder() as (broker, folder):
        for number in range(options.rounds):
            progress(f"round {number + 1} of {options.rounds}: start")
            with Turns(broker, folder, wrong) as turns:
                for system in systems:
                    if system.name not in wrong:
                        turns.start(system)
                for turn, figures in enumerate(measure(turns, options)):
                    found.append(figures)
                    rates = ", ".join(f"{name} {each['events/s']:,.0f}/s" for name, each in figures.items())
                    progress(f"turn {turn + 1} of {options.turns}: bursts of {rates}")
    return summary([{name: turn[name] for name in turn if name not in wrong} for turn in found]), wrong


def report(figures: Figures, wrong: Mapping[str, str], options: argparse.Namespace) -> None:
    """Print the figures.

    Raises:
        SystemExit: the updates of a system are wrong, so it has no figures.
    """
    if options.json or figures:
        show(figures, "median (min to max) over turns", as_json=options.json)
    if wrong:
        raise SystemExit("\n".join(f"{system} has no figures: {reason}" for system, reason in wrong.items()))


def run_arguments(description: str | None, **others: tuple[Any, str]) -> argparse.ArgumentParser:
    return arguments(
        description,
        rounds=(2, "processes of each system"),
        turns=(6, "turns that are counted in each round"),
        events=(100_000, "topic events of a burst"),
        warm_bursts=(10, "bursts before the first one that is counted"),
        singles=(300, "events of a turn whose latency is measured"),
        alone=(12, "events of a turn that come alone"),
        rate=(20.0, "events per second while latency is measured"),
        warm_up=(240.0, "seconds at that rate before the first turn"),
        **others,
    )


def main() -> None:
    parser = run_arguments(__doc__)
    parser.add_argument("--former", metavar="COMMAND", help="`reexpand` of another release, instead of the no-ops")
    names = (*SYSTEMS, *peers.NAMES)
    parser.add_argument(
        "--only", nargs="+", choices=names, default=OF_JOB, metavar="SYSTEM", help=f"of {', '.join(names)}"
    )
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        systems = [SYSTEMS[name] for name in options.only if name in SYSTEMS]
        systems += peers.installed(options.only, Path(folder))
        if options.former is not None:
            systems = [JOB, System("former release", [options.former, "run"])]
        report(*compare(systems, options), options)
