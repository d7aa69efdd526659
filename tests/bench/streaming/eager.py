"""Expanding one pattern over the topics of a shard: its index against a scan of all topics, in one run.

    python -m tests.bench.streaming.eager --topics 1000000

The scan is a compiled regular expression, the fastest there is in Python.
"""

import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from random import Random

from rich.table import Table

from streaming.records.model import LITE, NO_METADATA
from streaming.state import ShardDelta, ShardState
from streaming.state.blocks import Block
from streaming.state.client import Interest
from tests.bench.command import arguments, show

REGIONS, TENANTS = 20, 1_000
SEGMENT = "(?:(?!__).)*"


def wanted(pattern: str) -> Interest:
    """What a client asks for that asks for one pattern."""
    return Interest(patterns=True, blocks=(Block(1, 0, 0, LITE, (pattern,)),))


def scan(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression."""
    parts = {"*": SEGMENT, "**": ".*"}
    return re.compile("__".join(parts.get(segment, re.escape(segment)) for segment in pattern.split("__")), re.DOTALL)


def expanded(shard: ShardState, pattern: str) -> int:
    """How many topics the index finds."""
    return len(list(shard.topics_of(wanted(pattern))))


def scanned_through(names: list[str], expression: re.Pattern[str]) -> int:
    """How many topics the expression finds."""
    return sum(expression.fullmatch(name) is not None for name in names)


def timed(work: Callable[[], int], repeats: int) -> tuple[float, int]:
    """Milliseconds in the median, and how many topics were found."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = work()
        times.append(1_000 * (time.perf_counter() - start))
    return statistics.median(times), found


def main() -> None:
    """Runs each pattern and prints the table."""
    parser = arguments(__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000, help="of the shard")
    parser.add_argument("--repeats", type=int, default=5, help="expansions of each pattern")
    options = parser.parse_args()
    random = Random(1)
    names = [
        f"region{random.randrange(REGIONS):02}__tenant{random.randrange(TENANTS):03}__session{number:08}"
        for number in range(options.topics)
    ]
    shard = ShardState()
    shard.apply(ShardDelta(added=dict.fromkeys(names, NO_METADATA)))
    build, _ = timed(partial(expanded, shard, "*__tenant000__*"), 1)
    figures: dict[str, dict[str, float]] = {}
    for pattern in ("*__tenant007__*", "region03__tenant007__*", "region03__**"):
        indexed, found = timed(partial(expanded, shard, pattern), options.repeats)
        scanned, same = timed(partial(scanned_through, names, scan(pattern)), options.repeats)
        if found != same:
            raise SystemExit(f"{pattern}: the index finds {found} topics, the scan {same}")
        figures[pattern] = {"topics": found, "index ms": indexed, "scan ms": scanned, "times": scanned / indexed}
    table = Table("", *next(iter(figures.values())), title=f"{options.topics:,} topics; index built in {build:,.0f} ms")
    for pattern, row in figures.items():
        table.add_row(
            pattern, *(f"{value:,.2f}" if name == "index ms" else f"{value:,.0f}" for name, value in row.items())
        )
    show({"build ms": build, **figures}, table, as_json=options.json)


if __name__ == "__main__":
    main()
