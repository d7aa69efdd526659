"""Memory of two workers that have visited the same shards: bytes per topic and per pattern.

    make bench SUITE=memory BENCH="--topics 1000000 --parents 64"

What the workers share counts once (PSS in Linux). A figure is the difference between many and few topics, or between
all patterns and a fifth of them, divided by their number. Clients have five patterns each.
"""

import gc
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming.storage.archive import Folder
from streaming.tuning import Tuning
from streaming.worker.rows import InputRow
from tests.bench.command import parsed, show
from tests.bench.streaming.worker import Key, Keys, Parents

WORKERS = 2
FEW = 100  # topics and patterns of a shard
LARGE = 15_000  # topics of a shard that has snapshots
FILL = 10_000  # topics of a shard in a micro-batch


def main() -> None:
    options = parsed(
        __doc__,
        topics=(1_000_000, "of all parents together"),
        patterns=(100_000, "of each parent"),
        parents=(1, "parents with one shard each"),
        rounds=(3, "measurements"),
    )
    parents, figures = options.parents, dict[str, list[float]]()
    for _ in range(options.rounds):
        topics = _pss(parents, options.topics, FEW) - _pss(parents, FEW * parents, FEW)
        figures.setdefault("bytes per topic", []).append(topics / (options.topics - FEW * parents))
        sizes = options.patterns // 5, options.patterns
        fewer, more = (_pss(parents, LARGE * parents, patterns) for patterns in sizes)
        figures.setdefault("bytes per pattern", []).append((more - fewer) / (sizes[1] - sizes[0]) / parents)
    name = f"{options.topics:,} topics, {options.patterns:,} patterns x {options.parents:,} parents"
    show({name: figures}, "memory of two workers, what they share counted once", as_json=options.json)


def _pss(parents: int, topics: int, patterns: int) -> int:
    """Return the bytes of all workers together after a topic was created on each shard."""
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory(prefix="reexpand-memory-") as folder:
        shards = Parents(parents, Tuning().columnar_min_topics, patterns, Folder(folder))
        for start in range(0, topics, FILL * parents):
            shards.create(max(1, min(FILL * parents, topics - start) // parents))
        births, pipes, workers = shards.births(1), [context.Pipe() for _ in range(WORKERS)], []
        shards.restart()  # this process would share the snapshots too
        gc.collect()
        for _, there in pipes:
            workers.append(context.Process(target=_work, args=(shards, births, there)))
            workers[-1].start()
        ours = [here for here, _ in pipes]
        for asked in range(2):  # all have visited the shards, then all have been measured
            found = [here.recv() for here in ours]
            for here in ours:
                here.send(asked)
        for worker in workers:
            worker.join()
    return sum(found)


def _work(shards: Keys, births: dict[Key, list[InputRow]], there: Connection) -> None:
    shards.visit(births)
    births.clear()
    gc.collect()
    for _ in range(2):
        there.send(_own_pss())
        there.recv()


def _own_pss() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1_024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
