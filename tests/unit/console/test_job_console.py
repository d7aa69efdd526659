"""The console at the job's own address."""

import time
from collections import Counter
from pathlib import Path

from starlette.applications import Starlette
from starlette.testclient import TestClient

from streaming.config import Settings, load
from streaming.console.server import JobConsole
from streaming.monitor.batch import TOTAL, BatchReport, LagMeter
from streaming.monitor.health import Condition, Health
from streaming.worker.rows import KeyFacts
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add

SECRET = "0123456789abcdef"  # noqa: S105 - of this test


def settings(servers: str, http: str = "127.0.0.1:0", **more: str) -> Settings:
    return load({"bootstrap_servers": servers, "checkpoint": "unused", "updates": TOPIC, "http": http, **more})


def test_it_shows_what_is_received_and_the_micro_batches_of_the_job(broker: Simulated) -> None:
    broker.write(add("eu__1", parent="orders"), partition=0)
    page = JobConsole(settings(broker.address))
    phases = {TOTAL: 2.0, "addBatch": 1.5, "commitOffsets": 0.25}
    counts = Counter({"add:SUBSCRIBED": 2, "remove:UNSUBSCRIBED": 1, "dead-letter:not-json": 4})
    now = float(int(time.time()))  # exact in milliseconds
    key = KeyFacts("orders", 3, 2, 1, 9, [int(now * 1_000) - 4_000], 1.0, [])
    page.follow(BatchReport(7, 3, now, phases, counts, [key], 0, 0))
    page.follow(BatchReport(8, 0, 101.0, phases, Counter(), [], 0, 0))
    health, lag = Health(300), LagMeter()
    client = TestClient(Starlette(routes=page.routes(health, lag)), base_url="http://127.0.0.1")
    try:
        assert eventually(lambda: client.get("/api/state").json()["rows"] == 1)
        assert client.get("/api/timings").json()["batches"] == [
            {
                "number": 7,
                "started_ms": int((now - 2) * 1_000),
                "seconds": 2.0,
                "records": 3,
                "updates": 3,
                "phases": {"work": 1.5, "commit": 0.25},
            }
        ]
        health.enter(Condition.READY, "the query runs")
        health.note_lag(7, 1.5)
        lag.look({"t": {0: 9}}, {"t": {0: 2}})
        found = client.get("/api/overview").json()
        job = {name: found["job"][name] for name in ("state", "level", "lag_records", "lag_seconds", "rates")}
        assert job == {"state": "ready", "level": "good", "lag_records": 7, "lag_seconds": 1.5, "rates": None}
        assert found["shards"] == [
            {"parent": "orders", "shard": 3, "topics": 2, "clients": 1, "bytes": 9, "seconds": 4.0}
        ]
        assert client.get("/api/state").json()["job"]["reason"] == "the query runs"
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
        assert len(page.routes(Health(300), LagMeter())) == routes
        page.close()
