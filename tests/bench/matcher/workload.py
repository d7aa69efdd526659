"""The workload of the comparison: topics like a fleet's telemetry and patterns of four kinds, always the same ones.

In the notation of NATS: segments joined by `.`, `*` is one segment, a trailing `>` one or more.
"""

import itertools
import random
from bisect import bisect
from collections.abc import Sequence
from typing import NamedTuple

# What a level is called, how many names it has, and the exponent of the Zipf law by which they are drawn.
LEVELS = [
    ("region", 24, 0.9),
    ("site", 300, 1.0),
    ("dev", 8000, 0.8),
    ("metric", 60, 1.0),
    ("agg", 12, 0.8),
    ("t", 200, 1.0),
]
NAMES = [[f"{name}{number:0{len(str(count - 1))}d}" for number in range(count)] for name, count, _ in LEVELS]
WEIGHTS = [list(itertools.accumulate(1 / (i + 1) ** exponent for i in range(count))) for _, count, exponent in LEVELS]
LENGTHS = list(itertools.accumulate([0.15, 0.45, 0.25, 0.15]))  # of 3, 4, 5 and 6 segments
ASKED = 100_000  # topics that are matched; half of the patterns are made from them, half from others
KINDS = {"exact": 0.4, "one": 0.3, "two": 0.1, "multi": 0.2}


class Workload(NamedTuple):
    """Topics and patterns."""

    topics: list[str]
    patterns: dict[int, list[str]]
    broad: list[str]
    selective: list[str]
    pairs: list[tuple[str, str]]


def generate(topic_count: int, pattern_counts: Sequence[int]) -> Workload:
    """Make `topic_count` distinct topics, and as many distinct patterns as each of `pattern_counts`."""
    draw = random.Random(20240611)
    seen: dict[tuple[str, ...], None] = {}
    while len(seen) < topic_count:
        length = 3 + bisect(LENGTHS, draw.random() * LENGTHS[-1])
        seen[tuple(NAMES[i][bisect(WEIGHTS[i], draw.random() * WEIGHTS[i][-1])] for i in range(length))] = None
    topics = list(seen)
    joined = [".".join(topic) for topic in topics]
    patterns = {count: _patterns(draw, topics, count) for count in pattern_counts}
    one, two, many = (NAMES[level] for level in (0, 1, 2))
    broad = [f"{one[0]}.>", f"*.*.*.{NAMES[3][0]}", f"{one[0]}.*.*.*"]
    selective = [joined[500], f"{one[0]}.*.{many[3]}.*", f"*.{two[2]}.{many[0]}.{NAMES[3][0]}", f"{one[3]}.{two[7]}.>"]
    asked = draw.choices(patterns[max(pattern_counts)], k=10_000)
    pairs = list(zip(asked, draw.choices(joined[:ASKED], k=len(asked)), strict=True))
    return Workload(joined, patterns, broad, selective, pairs)


def _patterns(draw: random.Random, topics: list[tuple[str, ...]], count: int) -> list[str]:
    wanted = {kind: int(count * share) for kind, share in KINDS.items()}
    found: dict[str, None] = {}
    while any(wanted.values()):
        near = len(topics) <= ASKED or draw.random() < 0.5
        topic = list(topics[draw.randrange(ASKED if near else len(topics)) % len(topics)])
        kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "multi":
            topic = [*topic[: draw.randrange(1, len(topic))], ">"]
        for place in draw.sample(range(len(topic)), {"one": 1, "two": 2}.get(kind, 0)):
            topic[place] = "*"
        text = ".".join(topic)
        if wanted[kind] and text not in found:
            wanted[kind] -= 1
            found[text] = None
    return list(found)
