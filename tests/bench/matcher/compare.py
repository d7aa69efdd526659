"""Compare the matcher with its peers, side by side in one run: `make bench SUITE=matcher`.

Peers that are not installed are left out: paho-mqtt and pytrie come from PyPI, nats-server through the Go in PATH.
Times are CPU seconds of the process, the median of a few repeats; all peers must find as many matches.
"""

# ruff: noqa: T201 - it is there to print

import argparse
import gc
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matcher import PatternIndex, TopicIndex, expand, matches
from matcher.batch import FlatPatterns, FlatTopics
from tests.bench.matcher.peers import DictTopics, DictTrie, paho, pytrie, regular_expressions, to_mqtt
from tests.bench.matcher.workload import ASKED, Workload, generate

HERE = Path(__file__).parent
REPEATS = 5
BATCHES = (100, 1_000, 10_000)


def seconds(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """Return the median CPU time of some work and its last result; short work is done many times in a row."""
    spent = []
    result = work()
    rounds = 1
    gc.disable()  # its share depends on all that a process holds, and so on who is measured before
    for _ in range(repeats):
        begin = time.process_time()
        for _ in range(rounds):
            result = work()
        spent.append((time.process_time() - begin) / rounds)
        rounds = max(1, min(1_000, round(0.02 / (spent[0] + 1e-6))))
    gc.enable()
    return statistics.median(spent), result


def resident() -> float:
    """Return the megabytes that this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def one_by_one(name: str, build: Callable[[], Callable[[str], Any]], topics: list[str]) -> dict[str, Any]:
    """Measure single look-ups."""
    before = resident()
    match = build()
    memory = resident() - before
    spent, found = seconds(lambda: sum(len(match(topic)) for topic in topics), 3)
    return {"peer": name, "rate": len(topics) / spent, "matches": found / len(topics), "mb": memory}


def in_batches(patterns: list[str], topics: list[str], size: int) -> dict[str, Any]:
    """Measure the flat arrays, strings in, pairs of numbers out."""
    index = FlatPatterns(patterns, "nats")
    topics = topics[: len(topics) if size > BATCHES[0] else 20_000]
    batches = [topics[start : start + size] for start in range(0, len(topics), size)]
    spent, found = seconds(lambda: sum(len(index.match_batch(batch)[0]) for batch in batches))
    name = f"FlatPatterns, batches of {size:,}"
    return {"peer": name, "rate": len(topics) / spent, "matches": found / len(topics), "mb": index.nbytes / 1e6}


def index_of(patterns: list[str], dialect: str, policy: str | None = None) -> Callable[[str], list[int]]:
    """Build a PatternIndex and return its look-up."""
    index: PatternIndex[int] = PatternIndex(dialect)
    for number, pattern in enumerate(patterns):
        index.add(pattern, number, policy=policy)
    return index.match


def matching(load: Workload, count: int, nats: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measure who finds all patterns of a topic how fast."""
    patterns, topics = load.patterns[count], load.topics[:ASKED]
    few = topics[: ASKED // 5]
    mqtt_patterns, mqtt_few = list(map(to_mqtt, patterns)), list(map(to_mqtt, few))
    rows = [in_batches(patterns, topics, size) for size in BATCHES]
    rows += [row for row in nats if row["task"] == "match" and row["patterns"] == count]
    rows.append(one_by_one("PatternIndex, nats", lambda: index_of(patterns, "nats"), few))
    rows.append(one_by_one("PatternIndex, mqtt", lambda: index_of(mqtt_patterns, "mqtt"), mqtt_few))
    rows.append(one_by_one("dict trie", lambda: DictTrie(patterns).match, few))
    if importlib.util.find_spec("paho"):
        rows.append(one_by_one("paho MQTTMatcher", lambda: paho(patterns), mqtt_few))
    rows.append(one_by_one("re, one a pattern", lambda: regular_expressions(patterns), few[: 2_000_000 // count]))
    return rows


def prefixes(load: Workload) -> list[dict[str, Any]]:
    """Measure who finds all prefixes of a text."""
    texts = list(dict.fromkeys(topic[: 3 + number % 20] for number, topic in enumerate(load.topics[:40_000])))[:10_000]
    few = load.topics[: ASKED // 5]
    rows = [one_by_one("PatternIndex, wamp prefixes", lambda: index_of(texts, "wamp", "prefix"), few)]
    if importlib.util.find_spec("pytrie"):
        rows.append(one_by_one("pytrie", lambda: pytrie(texts), few))
    return rows


def expanding(load: Workload, nats: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Measure who finds all topics of a pattern how fast."""
    builders: dict[str, Callable[[], Callable[[str], Any]]] = {
        "FlatTopics": lambda: FlatTopics(load.topics, "nats").expand,
        "TopicIndex": lambda: filled(load.topics).expand,
        "dict trie": lambda: DictTopics(load.topics).expand,
    }
    rows = []
    for name, build in builders.items():
        before = resident()
        ask = build()
        memory = resident() - before
        ask(load.selective[0])
        for pattern in load.broad + load.selective:
            spent, found = seconds(lambda ask=ask, pattern=pattern: ask(pattern), 3)  # type: ignore[misc]
            rows.append({"peer": name, "pattern": pattern, "us": spent * 1e6, "found": len(found), "mb": memory})
        del ask
    return rows + [row for row in nats if row["task"] == "expand"]


def filled(topics: list[str]) -> TopicIndex:
    """Build a TopicIndex."""
    index = TopicIndex("nats")
    for topic in topics:
        index.add(topic)
    return index


def floor(load: Workload) -> dict[str, float]:
    """Measure what the RFC asks for: one check, and the expansion of 1,000 candidates."""
    spent, _ = seconds(lambda: [matches(pattern, topic, "nats") for pattern, topic in load.pairs])
    lite = [topic.replace(".", "__") for topic in load.topics[:1_000]]
    whole, _ = seconds(lambda: expand(["region00__**", "*__site000__*__*"], lite))
    return {"one check, us": spent / len(load.pairs) * 1e6, "expand 1,000 candidates, ms": whole * 1e3}


def nats_server(load: Workload) -> list[dict[str, Any]]:
    """Build and run nats-server's own structures on the same workload."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        (data / "topics").write_text("\n".join(load.topics), encoding="ascii")
        (data / "expand").write_text("\n".join(load.broad + load.selective), encoding="ascii")
        for count, patterns in load.patterns.items():
            (data / f"patterns{count}").write_text("\n".join(patterns), encoding="ascii")
        subprocess.run(["go", "build", "-o", data / "peer", "."], cwd=HERE / "go", check=True)
        counts = [str(count) for count in load.patterns]
        lines = subprocess.run([data / "peer", data, *counts], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def table(title: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
    """Print rows as Markdown."""
    print(f"\n## {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        cells = (format(row[column], form) if column in row else "" for column, form in columns.items())
        print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Run all comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000, help="topics (without --no-go at least 100,000)")
    parser.add_argument("--patterns", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="numbers of patterns")
    parser.add_argument("--no-go", action="store_true", help="leave out nats-server")
    options = parser.parse_args()
    load = generate(options.topics, options.patterns)
    nats = [] if options.no_go or shutil.which("go") is None else nats_server(load)
    for count in load.patterns:
        columns = {"peer": "", "rate": ",.0f", "matches": ".3f", "mb": ".1f"}
        table(f"All patterns of a topic, {count:,} patterns: topics a second", matching(load, count, nats), columns)
    table("All prefixes of a text, 10,000 prefixes: texts a second", prefixes(load), columns)
    columns = {"pattern": "", "peer": "", "us": ",.0f", "found": ",", "mb": ".0f"}
    rows = sorted(expanding(load, nats), key=lambda row: (load.broad + load.selective).index(row["pattern"]))
    table(f"All topics of a pattern, {len(load.topics):,} topics: microseconds", rows, columns)
    print()
    for name, value in floor(load).items():
        print(f"{name}: {value:.2f}")


if __name__ == "__main__":
    main()
