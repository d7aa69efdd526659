"""The console at the job's own address."""

from collections import Counter
from pathlib import Path

from starlette.applications import Starlette
from starlette.testclient import TestClient

from streaming.config import Settings, load
from streaming.console.server import JobConsole
from streaming.monitor.batch import TOTAL, BatchReport
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add

SECRET = "0123456789abcdef"  # noqa: S105 - of this test


def settings(servers: str, http: str = "127.0.0.1:0", **more: str) -> Settings:
    return load({"bootstrap_servers": servers, "checkpoint": "unused", "updates": TOPIC, "http": http, **more})


def test_it_shows_what_is_received_and_the_micro_batches_of_the_job(broker: Simulated) -> None:
    broker.write(add("eu__1", parent="orders"), partition=0)
    page = JobConsole(settings(broker.address))
    phases = {TOTAL: 2.0, "addBatch": 1.5}
    counts = Counter({"add:SUBSCRIBED": 2, "remove:UNSUBSCRIBED": 1, "dead-letter:not-json": 4})
    page.follow(BatchReport(7, 3, 100.0, phases, counts, [], 0, 0))
    page.follow(BatchReport(8, 0, 101.0, phases, Counter(), [], 0, 0))
    client = TestClient(Starlette(routes=page.routes()), base_url="http://127.0.0.1")
    try:
        assert eventually(lambda: client.get("/api/state").json()["rows"] == 1)
        assert client.get("/api/timings").json()["batches"] == [
            {"number": 7, "started_ms": 98_000, "seconds": 2.0, "records": 3, "updates": 3, "phases": {"addBatch": 1.5}}
        ]
    finally:
        page.close()


def test_it_reads_nothing_before_somebody_opens_it_and_others_need_the_token(tmp_path: Path) -> None:
    """Nor does it wait for a broker that is not there."""
    token = tmp_path / "token"
    token.write_text(SECRET)
    cases = [("127.0.0.1:0", {}, 1), ("off", {}, 0), ("0.0.0.0:0", {}, 0),
             ("0.0.0.0:0", {"http_token_file": str(token)}, 1)]  # fmt: skip
    for http, more, routes in cases:
        page = JobConsole(settings("127.0.0.1:1", http, **more))
        assert len(page.routes()) == routes
        page.close()
