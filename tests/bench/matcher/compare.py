"""Compare the matcher with its peers, side by side in one run: `make bench SUITE=matcher`.

Peers that are not installed are left out: paho-mqtt and pytrie come from PyPI, nats-server through the Go in PATH.
Times are CPU seconds of the process, the median of a few repeats; all peers must find as many matches.
"""

import gc
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matcher import PatternIndex, TopicIndex, expand, matches
from matcher.batch import FlatPatterns, FlatTopics
from tests.bench.command import parsed, show
from tests.bench.matcher.peers import DictTopics, DictTrie, paho, pytrie, regular_expressions, to_mqtt
from tests.bench.matcher.workload import ASKED, Workload, generate
from tests.support.processes import resident_bytes

Row = dict[str, float]

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
    return resident_bytes(os.getpid()) / 1e6


def one_by_one(build: Callable[[], Callable[[str], Any]], topics: list[str]) -> Row:
    before = resident()
    match = build()
    memory = resident() - before
    spent, found = seconds(lambda: sum(len(match(topic)) for topic in topics), 3)
    return {"rate": len(topics) / spent, "matches": found / len(topics), "mb": memory}


def in_batches(patterns: list[str], topics: list[str], size: int) -> Row:
    """Measure the flat arrays, strings in, pairs of numbers out."""
    index = FlatPatterns(patterns, "nats")
    topics = topics[: len(topics) if size > BATCHES[0] else 20_000]
    batches = [topics[start : start + size] for start in range(0, len(topics), size)]
    spent, found = seconds(lambda: sum(len(index.match_batch(batch)[0]) for batch in batches))
    return {"rate": len(topics) / spent, "matches": found / len(topics), "mb": index.nbytes / 1e6}


def index_of(patterns: list[str], dialect: str, policy: str | None = None) -> Callable[[str], list[int]]:
    """Build a PatternIndex and return its look-up."""
    index: PatternIndex[int] = PatternIndex(dialect)
    for number, pattern in enumerate(patterns):
        index.add(pattern, number, policy=policy)
    return index.match


def matching(load: Workload, count: int) -> dict[str, Row]:
    """Measure all patterns of a topic: topics per second."""
    patterns, topics = load.patterns[count], load.topics[:ASKED]
    few = topics[: ASKED // 5]
    mqtt_patterns, mqtt_few = list(map(to_mqtt, patterns)), list(map(to_mqtt, few))
    rows = {f"FlatPatterns, batches of {size:,}": in_batches(patterns, topics, size) for size in BATCHES}
    rows["PatternIndex, nats"] = one_by_one(lambda: index_of(patterns, "nats"), few)
    rows["PatternIndex, mqtt"] = one_by_one(lambda: index_of(mqtt_patterns, "mqtt"), mqtt_few)
    rows["dict trie"] = one_by_one(lambda: DictTrie(patterns).match, few)
    if importlib.util.find_spec("paho"):
        rows["paho MQTTMatcher"] = one_by_one(lambda: paho(patterns), mqtt_few)
    rows["re, one per pattern"] = one_by_one(lambda: regular_expressions(patterns), few[: 2_000_000 // count])
    return rows


def prefixes(load: Workload) -> dict[str, Row]:
    """Measure all prefixes of a text: texts per second."""
    texts = list(dict.fromkeys(topic[: 3 + number % 20] for number, topic in enumerate(load.topics[:40_000])))[:10_000]
    few = load.topics[: ASKED // 5]
    rows = {"PatternIndex, wamp prefixes": one_by_one(lambda: index_of(texts, "wamp", "prefix"), few)}
    if importlib.util.find_spec("pytrie"):
        rows["pytrie"] = one_by_one(lambda: pytrie(texts), few)
    return rows


def expanding(load: Workload) -> dict[str, Row]:
    """Measure all topics of a pattern, in microseconds."""
    builders: dict[str, Callable[[], Callable[[str], Any]]] = {
        "FlatTopics": lambda: FlatTopics(load.topics, "nats").expand,
        "TopicIndex": lambda: filled(load.topics).expand,
        "dict trie": lambda: DictTopics(load.topics).expand,
    }
    rows = {}
    for name, build in builders.items():
        before = resident()
        ask = build()
        memory = resident() - before
        ask(load.selective[0])
        for pattern in load.broad + load.selective:
            spent, found = seconds(lambda ask=ask, pattern=pattern: ask(pattern), 3)  # type: ignore[misc]
            rows[f"{pattern}: {name}"] = {"us": spent * 1e6, "found": len(found), "mb": memory}
        del ask
    return rows


def filled(topics: list[str]) -> TopicIndex:
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


def nats_server(load: Workload) -> dict[str, dict[str, Row]]:
    """Measure nats-server's own structures on the same workload, by task: the number of patterns, or `expand`."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        (data / "topics").write_text("\n".join(load.topics), encoding="ascii")
        (data / "expand").write_text("\n".join(load.broad + load.selective), encoding="ascii")
        for count, patterns in load.patterns.items():
            (data / f"patterns{count}").write_text("\n".join(patterns), encoding="ascii")
        subprocess.run(["go", "build", "-o", data / "peer", "."], cwd=HERE / "go", check=True)
        counts = [str(count) for count in load.patterns]
        lines = subprocess.run([data / "peer", data, *counts], check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in map(json.loads, lines.splitlines()):
        if row.pop("task") == "match":
            found[str(row.pop("patterns"))][row.pop("peer")] = row
        else:
            found["expand"][f"{row.pop('pattern')}: {row.pop('peer')}"] = row
    return found


def main() -> None:
    options = parsed(
        __doc__,
        topics=(1_000_000, "topics (without --no-go at least 100,000)"),
        patterns=([1_000, 10_000, 100_000], "numbers of patterns"),
        no_go=(False, "leave out nats-server"),
    )
    load = generate(options.topics, options.patterns)
    nats = {} if options.no_go or shutil.which("go") is None else nats_server(load)
    tables = {
        f"all patterns of a topic, {count:,} patterns": matching(load, count) | nats.get(str(count), {})
        for count in load.patterns
    }
    tables["all prefixes of a text, 10,000 prefixes"] = prefixes(load)
    expanded = expanding(load) | nats.get("expand", {})
    tables[f"all topics of a pattern, {len(load.topics):,} topics"] = dict(sorted(expanded.items()))
    tables["needs of the RFC"] = {"": floor(load)}
    for title, rows in tables.items():
        show(rows, title, as_json=options.json)
