"""Suites that measure a worker alone, without Spark and Kafka."""

import dataclasses
import re
import statistics
import time
from collections.abc import Callable, Generator
from functools import partial
from math import inf
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import orjson

from streaming import coordinator
from streaming.records.model import BIND_TOPIC, LITE, NO_METADATA
from streaming.records.subscribers import ClientKey
from streaming.state import Shard, ShardDelta, ShardState, settle, snapshot_content
from streaming.state.blocks import Block
from streaming.state.client import Interest
from streaming.storage.archive import Folder
from streaming.storage.store import Archives
from streaming.tuning import Tuning
from streaming.worker.inquiry import listing
from streaming.worker.inquiry.pair import explain_pair
from streaming.worker.inquiry.planning import plan_shard, read
from streaming.worker.inquiry.questions import Ask, Question
from streaming.worker.process import without_collection
from streaming.worker.rows import InputRow, InputRows, Output, OutputKind
from streaming.worker.worker import Worker, WorkerConfig
from tests.bench.command import milliseconds, parsed, show
from tests.bench.streaming.workload import GROUP, Workload
from tests.support import events
from tests.support.events import exclusive, quota, replace
from tests.support.states import GROUPS, SUBSCRIPTIONS, TOPICS, as_read
from tests.support.story import Story

CONFIG = WorkerConfig(("groups", "subscriptions", "topics", "clock"), client_timeout_ms=120_000)
Key = tuple[str, int]


class Visit(NamedTuple):
    """CPU seconds of a micro-batch, bytes appended to states, and rows of updates."""

    seconds: float
    written: int
    updates: int


class Keys:
    """A worker and the states of its keys."""

    def __init__(self, tuning: Tuning | None = None, archives: Archives | None = None) -> None:
        self._config = dataclasses.replace(CONFIG, archives=archives)
        self._tuning = tuning or Tuning()
        self._worker = Worker(self._config, self._tuning)
        self._offset = 0
        self._states: dict[Key, bytes | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to visit the keys."""
        return {name: value for name, value in vars(self).items() if name not in ("_worker", "_workload")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._worker = Worker(self._config, self._tuning)

    def restart(self) -> None:
        """Start another worker, which has no state decoded."""
        self._worker = Worker(self._config, self._tuning)

    def row(self, stream: int, event: events.Event) -> InputRow:
        self._offset += 1
        return InputRow(stream, 0, self._offset, 0, self._offset, orjson.dumps(event))

    def visit(self, rows: dict[Key, list[InputRow]]) -> Visit:
        columns = {key: InputRows.of(own) for key, own in rows.items()}
        written = updates = 0
        with without_collection():
            start = time.process_time()
            for key, own in columns.items():
                former = self._states.get(key) or b""
                for output in self._work(key, own):
                    updates += sum(kind == OutputKind.UPDATES for kind, *_ in output.all_rows())
                now = self._states[key] or b""
                written += len(now) - (len(former) if now.startswith(former) else 0)
            return Visit(time.process_time() - start, written, updates)

    def _work(self, key: Key, rows: InputRows) -> Generator[Output, None, None]:
        self._states[key] = yield from self._worker.work(*key, rows, self._states.get(key))


SHAPES = ((1, 1), (8, 1), (32, 1), (64, 1), (100, 1), (1_000, 1), (1, 1_000))
"""Topics per key in a micro-batch, and keys."""


class Parents(Keys):
    """Parents with patterns, of which two match a topic."""

    def __init__(
        self,
        keys: int,
        columnar_min_topics: float,
        patterns: int = 100,
        archives: Archives | None = None,
        quota: int = -1,
    ) -> None:
        super().__init__(Tuning(columnar_min_topics=columnar_min_topics), archives)
        self._workload = Workload(parents=keys, patterns=patterns, quota=quota)
        for event in self._workload.group_events():
            self.visit({(event["attributes"][BIND_TOPIC], 0): [self.row(GROUPS, event)]})
        for request in self._workload.requests():
            self.visit({(request["topic"], 0): [self.row(SUBSCRIPTIONS, request)]})

    def births(self, topics: int) -> dict[Key, list[InputRow]]:
        """Return rows that create topics on each key."""
        rows: dict[Key, list[InputRow]] = {}
        for parent, topic in self._workload.topics(topics * len(self._workload.parents)):
            event = events.created(topic, parent, timestamp=1)
            rows.setdefault((parent, 0), []).append(self.row(TOPICS, event))
        return rows

    def create(self, topics: int) -> float:
        """Create topics on each key; return milliseconds per key."""
        rows = self.births(topics)
        return 1_000 * self.visit(rows).seconds / len(rows)

    def ask(self, client: str) -> float:
        """Subscribe a new client to one pattern on each key; return milliseconds per key."""
        rows: dict[Key, list[InputRow]] = {}
        for parent in self._workload.parents:
            names = {"client": client, "group": GROUP.format(parent=parent), "parent": parent}
            request = replace(f"region07__{self._workload.tenant()}__*", **names, version=1)
            rows[parent, 0] = [self.row(SUBSCRIPTIONS, request)]
        return 1_000 * self.visit(rows).seconds / len(rows)


def columnar() -> None:
    """Judging new topics one by one against judging them by column, by the number of topics per key.

    Both ways take turns in one process, on the same topics; the ratio is by column over one by one.
    """
    options = parsed(
        columnar,
        turns=(7, "measurements of each shape, after one to warm up"),
        most=(1_000, "leave out shapes with more topics or keys"),
        visits=(2_000, "visits to keys in one measurement, at least"),
    )
    figures: dict[str, dict[str, list[float]]] = {}
    for topics, keys in (shape for shape in SHAPES if max(shape) <= options.most):
        ways = Parents(keys, inf), Parents(keys, 1)
        visits = max(3, options.visits // (topics * keys))
        turns = [
            [statistics.median(way.create(topics) for _ in range(visits)) for way in ways]
            for _ in range(options.turns + 1)
        ]
        one_by_one, by_column = map(list, zip(*turns[1:], strict=True))
        ratios = [column / single for single, column in turns[1:]]
        row = {"one by one ms": one_by_one, "by column ms": by_column, "ratio": ratios}
        figures[f"{topics:,} topics per key, {keys:,} keys"] = row
    show(figures, "CPU of a worker per key", as_json=options.json)


def cold() -> None:
    """First visit of a shard after a start of its worker, and the next visit: 100 new topics each, or a new client."""
    options = parsed(
        cold,
        topics=(3_000, "of the shard"),
        patterns=(20_000, "of the shard, five per client"),
        quota=(-1, "topics that a client may hold; -1 for any number"),
        rounds=(7, "starts"),
    )
    figures: dict[str, list[float]] = {}
    with TemporaryDirectory(prefix="reexpand-cold-") as folder:
        shard = Parents(1, Tuning().columnar_min_topics, options.patterns, Folder(folder), options.quota)
        for start in range(0, options.topics, 20_000):
            shard.create(min(20_000, options.topics - start))
        for number in range(options.rounds):
            shard.restart()
            for visit in ("first ms", "next ms"):
                figures.setdefault(visit, []).append(shard.create(100))
            shard.restart()
            for visit in ("first pattern ms", "next pattern ms"):
                figures.setdefault(visit, []).append(shard.ask(f"{visit} {number}"))
    name = f"{options.topics:,} topics, {options.patterns:,} patterns"
    show({name: figures}, "CPU of a worker for 100 new topics, or for a pattern of a new client", as_json=options.json)


def resync() -> None:
    """Cost of 10,000 clients that repeat their sets: CPU of the worker, and the state that is written.

    The clients are in 100 groups and have 10 patterns each. The reference is their first subscription in the same run.
    """
    options = parsed(resync, clients=(10_000, "clients"), rounds=(5, "repetitions"))
    keys = Keys()
    groups = [events.wildcard(group=f"group{number:03}") for number in range(100)]
    keys.visit({("p", 0): [keys.row(GROUPS, group) for group in groups]})

    def ask() -> Visit:
        rows: dict[Key, list[InputRow]] = {}
        for number in range(options.clients):
            group = f"group{number % 100:03}"
            patterns = [f"region{number % 50}__*__kind{kind}" for kind in range(10)]
            client = f"10.0.{number // 256}.{number % 256}@1"
            request = events.replace(*patterns, client=client, group=group, version=1)
            for key in (("p", 0), (coordinator.COORDINATOR, coordinator.bucket_of(group))):
                rows.setdefault(key, []).append(keys.row(SUBSCRIPTIONS, request))
        return keys.visit(rows)

    def figures(visits: list[Visit]) -> dict[str, list[float]]:
        return {
            "us per client": [1e6 * visit.seconds / options.clients for visit in visits],
            "state bytes written per client": [visit.written / options.clients for visit in visits],
            "updates": [visit.updates for visit in visits],
        }

    first, *again = (ask() for _ in range(1 + options.rounds))
    ratios = [visit.seconds / first.seconds for visit in again]
    rows = {"subscribe": figures([first]), "ask again": figures(again), "ratio": {"us per client": ratios}}
    show(rows, f"{options.clients:,} clients", as_json=options.json)


def eager() -> None:
    """Expanding one pattern over the topics of a shard: an index in memory, a snapshot, and a scan of all topics.

    The scan is a compiled regular expression, the fastest in Python.
    """
    options = parsed(eager, topics=(1_000_000, "of the shard"), repeats=(5, "expansions of each pattern"))
    random = Random(1)
    names = [
        f"region{random.randrange(20):02}__tenant{random.randrange(1_000):03}__session{number:08}"
        for number in range(options.topics)
    ]
    shard, snapshot = ShardState(), ShardState()
    for state in (shard, snapshot):
        state.apply(ShardDelta(added=dict.fromkeys(names, NO_METADATA)))
    settle(snapshot, as_read(snapshot_content(snapshot)))

    def expand(state: ShardState, pattern: str) -> int:
        wanted = Interest(patterns=True, blocks=(Block(1, 0, 0, LITE, (pattern,)),))
        return len(list(state.topics_of(wanted)))

    def scan(pattern: str) -> int:
        parts = ({"*": "(?:(?!__).)*", "**": ".*"}.get(part, re.escape(part)) for part in pattern.split("__"))
        expression = re.compile("__".join(parts), re.DOTALL)
        return sum(expression.fullmatch(name) is not None for name in names)

    (build,) = milliseconds(partial(expand, shard, "*__tenant000__*"))
    figures: dict[str, dict[str, float | list[float]]] = {}
    for pattern in ("*__tenant007__*", "region03__tenant007__*", "region03__**"):
        ways = partial(expand, shard, pattern), partial(expand, snapshot, pattern), partial(scan, pattern)
        found, *others = (way() for way in ways)
        if others != [found, found]:
            raise SystemExit(f"{pattern}: the index finds {found} topics, the snapshot and the scan {others}")
        indexed, mapped, scanned = (milliseconds(way, options.repeats) for way in ways)
        times = [slow / fast for slow, fast in zip(scanned, mapped, strict=True)]
        figures[pattern] = {
            "topics": found,
            "index ms": indexed,
            "snapshot ms": mapped,
            "scan ms": scanned,
            "scan/snapshot": times,
        }
    show(figures, f"{options.topics:,} topics; index built in {build:,.0f} ms", as_json=options.json)


def inquiry() -> None:
    """CPU that one answer takes from a worker whose shard has a million topics.

    The shard has 1,000 clients by pattern, and groups of each kind. The first answer of a kind may build an index of
    the shard, which the others use.
    """
    options = parsed(inquiry, topics=(1_000_000, "of the shard"))
    topics: int = options.topics
    groups = [quota(-1, group="g"), quota(2_000, group="q"), exclusive(group="x", quota=str(-1))]
    requests = [replace(f"t__{number}__*", client=f"c{number}") for number in range(1_000)]
    rivals = [replace("t__5__*", client=f"e{number}", group="x") for number in range(3)]
    state = Story(*groups, *requests, replace("t__**", client="cq", group="q"), *rivals).state
    state.apply(ShardDelta(added=dict.fromkeys((f"t__{n % 1_000}__{n}" for n in range(topics)), NO_METADATA)))
    figures = {}
    for name, answer in _answers(state, topics).items():
        first, second = milliseconds(lambda answer=answer: orjson.dumps(answer()), 2, time.process_time)  # type: ignore[misc]
        figures[name] = {"first ms": first, "second ms": second, "bytes": len(orjson.dumps(answer()))}
    show(figures, f"CPU, {topics:,} topics", as_json=options.json)


def _answers(state: ShardState, topics: int) -> dict[str, Callable[[], Any]]:
    shard = Shard("p")
    wide = Question("q", Ask.PLAN, stream="subscriptions", record=replace("**", client="new"))
    further = dataclasses.replace(wide, cursor=topics // 2, group="g", client="new")
    planned = read(wide, "s", 0)
    by_pattern = Question("q", Ask.TOPICS, pattern="t__999__*", cursor=topics // 2)
    return {
        "explain: received": lambda: explain_pair(state, shard, ClientKey("g", "c7"), "t__7__7"),
        "explain: no match": lambda: explain_pair(state, shard, ClientKey("g", "c7"), "t__8__8"),
        "explain: exclusive": lambda: explain_pair(state, shard, ClientKey("x", "e0"), "t__5__5"),
        "explain: quota": lambda: explain_pair(state, shard, ClientKey("q", "cq"), "t__7__90007"),
        "topics: 100": lambda: listing.topics(state, Question("q", Ask.TOPICS, limit=100)),
        "topics: 10,000": lambda: listing.topics(state, Question("q", Ask.TOPICS, limit=10_000)),
        "topics: by pattern, one look": lambda: listing.topics(state, by_pattern),
        "clients: 1,000": lambda: listing.clients(state, Question("q", Ask.CLIENTS)),
        "subscriptions: 1,000": lambda: listing.subscriptions(state, Question("q", Ask.SUBSCRIPTIONS)),
        "plan: **, first answer": lambda: plan_shard(state, shard, planned, wide),
        "plan: **, a further one": lambda: plan_shard(state, shard, planned, further),
    }
