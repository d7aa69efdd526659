"""Questions to a console with a million topics: `python -m tests.bench.streaming.console [TOPICS]`."""

# ruff: noqa: T201 - it is there to print

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from starlette.testclient import TestClient

from streaming.console.app import ConsoleSources, console
from streaming.console.explaining import explain_by_updates
from streaming.console.live import LiveRelation
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add

_PAGE_BYTES = 4_096
_REPEATS = 5


def main(topics: int) -> None:
    """Fill a console by hand, since the simulated broker forgets records, and time its answers."""
    broker = Simulated()  # which ends with this name
    with LiveRelation(broker.address, TOPIC) as live:
        live.wait_ready(10)
        before, seconds = _resident(), 0.0
        for number in range(topics):
            name = f"r{number % 5}__tenant{number % 977}__order__{number}"
            changes = {"patterns": [f"r{number % 5}__**"], "eventId": f"{number:016x}-{number:016x}"}
            key, value = add(name, parent="big", client=f"c{number % 50}", changes=changes)
            start = time.thread_time()
            live._client._apply(key, value, "a record of the bench")
            seconds += time.thread_time() - start
        print(f"{topics:,} topics: {_resident() - before:.0f} MB, {topics / seconds:,.0f} updates per second of CPU")
        page = TestClient(console(ConsoleSources(live, partial(explain_by_updates, live))), base_url="http://localhost")
        _time("first level", lambda: page.get("/api/level", params={"parent": "big"}))
        _time(
            "level, a page of 500",
            lambda: page.get("/api/level", params={"parent": "big", "prefix": "r1__", "size": 500}),
        )
        leaf = {"parent": "big", "prefix": "r1__tenant1__order__"}
        _time("topics of a level", lambda: page.get("/api/level", params=leaf))
        pair = {"parent": "big", "group": "g", "client": "c1", "topic": "r2__tenant1__order__977"}
        _time("explanation", lambda: page.get("/api/explain", params=pair))
        question = {"pattern": "*__tenant5__**", "parent": "big"}
        _time("playground", lambda: page.post("/api/match", json=question))


def _resident() -> float:
    """Return the memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES / 1e6


def _time(what: str, ask: Callable[[], Any]) -> None:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        assert ask().status_code == 200
        times.append((time.perf_counter() - start) * 1_000)
    print(f"{what}: median {median(times):.1f} ms, most {max(times):.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
