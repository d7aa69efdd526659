"""Common parts of the suites: arguments, a broker, times, and figures as a table or as JSON."""

import argparse
import inspect
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from streaming.local.broker import Broker
from streaming.local.process import scratch_folder
from streaming.storage.folder import private_folder

T = TypeVar("T")

Figure = float | str | Sequence[float] | None
"""A figure, or one figure of each turn."""


def arguments(described: object, **options: tuple[Any, str]) -> argparse.ArgumentParser:
    """Return a parser for the options of a suite.

    Args:
        described: docstring of the suite, or a function that has it.
        options: default and help of each option; an option with a list takes several values.
    """
    text = described if isinstance(described, str) else inspect.getdoc(described)
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, help_text) in {"json": (False, "print the figures as JSON"), **options}.items():
        given: dict[str, Any] = {"type": type(default)}
        if isinstance(default, bool):
            given = {"action": "store_true"}
        elif isinstance(default, list):
            given = {"type": type(default[-1]), "nargs": "*"}
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, help=help_text, **given)
    return parser


def parsed(described: object, **options: tuple[Any, str]) -> argparse.Namespace:
    """Return the options of a suite from the command line; the arguments are those of `arguments`."""
    return arguments(described, **options).parse_args()


@contextmanager
def broker_and_folder() -> Iterator[tuple[Broker, Path]]:
    """Run an embedded broker in a new folder, which other files may go to as well, until the block ends.

    A killed suite leaves up to ten gigabytes there, which the next suite removes.
    """
    private = private_folder(Path(tempfile.gettempdir()))
    parent = private and scratch_folder(private / "bench")
    with tempfile.TemporaryDirectory(dir=parent) as name, Broker(Path(name) / "kafka") as broker:
        yield broker, Path(name)


def progress(text: str) -> None:
    Console(stderr=True).print(text, markup=False)


def steps(name: str, count: int) -> Iterator[int]:
    """Yield the number of each step, after a line of progress."""
    for number in range(count):
        progress(f"{name}: {number + 1} of {count}")
        yield number


def in_turn(names: Iterable[str], rounds: int, once: Callable[[str], T]) -> dict[str, list[T]]:
    """Return the results of `once` for each name, measured round by round."""
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        for name, results in found.items():
            progress(f"round {number + 1} of {rounds}: {name}")
            results.append(once(name))
    return found


def milliseconds(
    work: Callable[[], object], repeats: int = 1, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Return the times of some work, in order."""
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(1_000 * (clock() - start))
    return times


def quantiles(values: Sequence[float], unit: str) -> dict[str, float]:
    """Return median, 95th percentile and maximum, named with their unit."""
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {f"p50 {unit}": statistics.median(ordered), f"p95 {unit}": p95, f"most {unit}": ordered[-1]}


def by_column(rows: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Return the figures of several turns by name."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def show(rows: Mapping[str, Mapping[str, Figure]], title: str, *, as_json: bool) -> None:
    """Print figures as JSON, or as a table; several values of a figure as their median and range."""
    if as_json:
        print(json.dumps(rows, indent=2))  # noqa: T201 - the command's output
        return
    columns = dict.fromkeys(name for row in rows.values() for name in row)
    table = Table("", *columns, title=title)
    for name, row in rows.items():
        table.add_row(name, *(_shown(row.get(column)) for column in columns))
    Console(width=180).print(table)


def _shown(figure: Figure) -> str:
    if figure is None or isinstance(figure, str):
        return figure or ""
    if not isinstance(figure, float | int):
        found = _shown(statistics.median(figure))
        return found if len(figure) == 1 else f"{found} ({_shown(min(figure))} to {_shown(max(figure))})"
    digits = 0 if abs(figure) >= 100 or figure == int(figure) else 1 if abs(figure) >= 10 else 2
    return f"{figure:,.{digits}f}"
