"""Questions to a console with a million topics: `make bench SUITE=console`."""

import time
from functools import partial
from os import getpid

from starlette.testclient import TestClient

from streaming.console.app import ConsoleSources, console
from streaming.console.explaining import explain_by_updates
from streaming.console.live import LiveRelation
from tests.bench.command import milliseconds, parsed, show
from tests.support.processes import resident_bytes
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add

_REPEATS = 5


def main() -> None:
    """Fill a console by hand, since the simulated broker forgets records, and time its answers."""
    options = parsed(__doc__, topics=(1_000_000, "topics of the console"))
    broker = Simulated()  # which ends with this name
    with LiveRelation(broker.address, TOPIC) as live:
        live.wait_ready(10)
        before, seconds = resident_bytes(getpid()), 0.0
        for number in range(options.topics):
            name = f"r{number % 5}__tenant{number % 977}__order__{number}"
            changes = {"patterns": [f"r{number % 5}__**"], "eventId": f"{number:016x}-{number:016x}"}
            key, value = add(name, parent="big", client=f"c{number % 50}", changes=changes)
            start = time.thread_time()
            live._client._apply(key, value, "a record of the bench")
            seconds += time.thread_time() - start
        memory, rate = (resident_bytes(getpid()) - before) / 1e6, options.topics / seconds
        page = TestClient(console(ConsoleSources(live, partial(explain_by_updates, live))), base_url="http://localhost")
        level: dict[str, str | int] = {"parent": "big", "prefix": "r1__", "size": 500}
        leaf = {"parent": "big", "prefix": "r1__tenant1__order__"}
        pair = {"parent": "big", "group": "g", "client": "c1", "topic": "r2__tenant1__order__977"}
        question = {"pattern": "*__tenant5__**", "parent": "big"}
        asked = {
            "first level": partial(page.get, "/api/level", params={"parent": "big"}),
            "level, a page of 500": partial(page.get, "/api/level", params=level),
            "topics of a level": partial(page.get, "/api/level", params=leaf),
            "explanation": partial(page.get, "/api/explain", params=pair),
            "playground": partial(page.post, "/api/match", json=question),
        }
        for ask in asked.values():
            ask().raise_for_status()
        figures = {name: {"ms": milliseconds(ask, _REPEATS)} for name, ask in asked.items()}
        show(figures, f"{options.topics:,} topics: {memory:.0f} MB, {rate:,.0f} updates/s of CPU", as_json=options.json)
