"""Judging new topics one by one against judging them by column, by the number of topics a key: CPU of the worker alone.

    python -m tests.bench.streaming.columnar [--turns N]

Both ways take turns in one process, on the same topics; the ratio is by column over one by one.
"""

import statistics
import time
from collections.abc import Iterator
from math import inf

import orjson

from streaming.records.model import BIND_TOPIC
from streaming.tuning import Tuning
from streaming.worker import InputRow, InputRows, Worker, WorkerConfig
from streaming.worker.process import without_collection
from tests.bench.command import arguments, show
from tests.bench.streaming.workload import Workload
from tests.support import values

GROUPS, SUBSCRIPTIONS, TOPICS, _ = range(4)
CONFIG = WorkerConfig(("groups", "subscriptions", "topics", "clock"))
SHAPES = ((1, 1), (8, 1), (32, 1), (64, 1), (100, 1), (1_000, 1), (1, 1_000))
"""Topics a key in a micro-batch, and keys."""


class Keys:
    """Parents with 100 patterns each, of which two match a topic, and a worker."""

    def __init__(self, keys: int, columnar_min_topics: float) -> None:
        self._worker = Worker(CONFIG, Tuning(columnar_min_topics=columnar_min_topics))
        self._workload = Workload(parents=keys, quota=-1)
        self._offset = 0
        self._states: dict[str, bytes | None] = {}
        for event in self._workload.group_events():
            self._visit(event["attributes"][BIND_TOPIC], InputRows.of([self._row(GROUPS, event)]))
        for request in self._workload.requests():
            self._visit(request["topic"], InputRows.of([self._row(SUBSCRIPTIONS, request)]))

    def micro_batch(self, topics: int) -> float:
        """Create topics on each key; return the CPU seconds a key."""
        rows: dict[str, list[InputRow]] = {}
        for parent, topic in self._workload.topics(topics * len(self._workload.parents)):
            rows.setdefault(parent, []).append(self._row(TOPICS, values.created(topic, parent, timestamp=1)))
        columns = {parent: InputRows.of(own) for parent, own in rows.items()}
        with without_collection():
            start = time.process_time()
            for parent, own in columns.items():
                self._visit(parent, own)
            return (time.process_time() - start) / len(rows)

    def _visit(self, parent: str, rows: InputRows) -> None:
        steps = self._worker.work(parent, 0, rows, self._states.get(parent))
        while True:
            try:
                list(next(steps).all_rows())
            except StopIteration as end:
                self._states[parent] = end.value
                return

    def _row(self, stream: int, value: object) -> InputRow:
        self._offset += 1
        return InputRow(stream, 0, self._offset, 0, 1, orjson.dumps(value))


def measure(topics: int, keys: int, turns: int, all_visits: int) -> Iterator[tuple[float, float]]:
    """Yield the milliseconds a key one by one and by column, for each turn."""
    ways = Keys(keys, inf), Keys(keys, 1)
    visits = max(3, all_visits // (topics * keys))
    for _ in range(turns + 1):
        one_by_one, by_column = (statistics.median(way.micro_batch(topics) for _ in range(visits)) for way in ways)
        yield one_by_one * 1_000, by_column * 1_000


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--turns", type=int, default=7, help="measurements of each shape, after one to warm up")
    parser.add_argument("--most", type=int, default=1_000, help="leave out shapes with more topics or keys")
    parser.add_argument("--visits", type=int, default=2_000, help="visits to keys in one measurement, at least")
    options = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = {}
    for topics, keys in (shape for shape in SHAPES if max(shape) <= options.most):
        _, *found = measure(topics, keys, options.turns, options.visits)
        one_by_one, by_column = map(list, zip(*found, strict=True))
        ratios = [column / single for single, column in found]
        row = {"one by one ms": one_by_one, "by column ms": by_column, "ratio": ratios}
        figures[f"{topics:,} topics per key, {keys:,} keys"] = row
    show(figures, "CPU of a worker per key", as_json=options.json)


if __name__ == "__main__":
    main()
