"""Expanding one pattern over the topics of a shard: its index against a scan of all topics, in one run.

    python -m tests.bench.streaming.eager --topics 1000000

The scan is a compiled regular expression, the fastest there is in Python.
"""

import re
from functools import partial
from random import Random

from streaming.records.model import LITE, NO_METADATA
from streaming.state import ShardDelta, ShardState
from streaming.state.blocks import Block
from streaming.state.client import Interest
from tests.bench.command import arguments, milliseconds, show

REGIONS, TENANTS = 20, 1_000
SEGMENT = "(?:(?!__).)*"


def wanted(pattern: str) -> Interest:
    """What a client asks for that asks for one pattern."""
    return Interest(patterns=True, blocks=(Block(1, 0, 0, LITE, (pattern,)),))


def scan(pattern: str) -> re.Pattern[str]:
    parts = {"*": SEGMENT, "**": ".*"}
    return re.compile("__".join(parts.get(segment, re.escape(segment)) for segment in pattern.split("__")), re.DOTALL)


def expanded(shard: ShardState, pattern: str) -> int:
    return len(list(shard.topics_of(wanted(pattern))))


def scanned_through(names: list[str], expression: re.Pattern[str]) -> int:
    return sum(expression.fullmatch(name) is not None for name in names)


def main() -> None:
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
    (build,) = milliseconds(partial(expanded, shard, "*__tenant000__*"))
    figures: dict[str, dict[str, float | list[float]]] = {}
    for pattern in ("*__tenant007__*", "region03__tenant007__*", "region03__**"):
        by_index, by_scan = partial(expanded, shard, pattern), partial(scanned_through, names, scan(pattern))
        if (found := by_index()) != (same := by_scan()):
            raise SystemExit(f"{pattern}: the index finds {found} topics, the scan {same}")
        indexed, scanned = milliseconds(by_index, options.repeats), milliseconds(by_scan, options.repeats)
        times = [slow / fast for slow, fast in zip(scanned, indexed, strict=True)]
        figures[pattern] = {"topics": found, "index ms": indexed, "scan ms": scanned, "times": times}
    show(figures, f"{options.topics:,} topics; index built in {build:,.0f} ms", as_json=options.json)


if __name__ == "__main__":
    main()
