"""`reexpand status`, against the real server of metrics and health."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main
from streaming.config import Address
from streaming.local.server import free_port
from streaming.monitor.batch import BatchReport, InputLag, LagMeter
from streaming.monitor.health import Condition, Health
from streaming.monitor.metrics import Metrics
from streaming.monitor.server import HttpServer, routes
from streaming.worker.rows import KeyFacts


class Served:
    """A job's server, with its health and metrics."""

    def __init__(self, hang_seconds: float = 300) -> None:
        self.health, self.lag = Health(hang_seconds), LagMeter()
        self.metrics = Metrics(self.health, self.lag, lambda: {"driver": 210 * 10**6})
        self.server = HttpServer(Address("127.0.0.1", 0), routes(self.metrics.registry, self.health, local=True))

    def status(self, *options: str) -> Result:
        """Run the verb without rates."""
        return run("--http", (self.server.url or "").removeprefix("http://"), "--interval", "0", *options)

    def read(self, number: int, **counts: int) -> None:
        """Commit a micro-batch of 0.2 s with 10 records."""
        kinds = Counter({name.replace("_", ":", 1).replace("_", "-"): count for name, count in counts.items()})
        phases = {"triggerExecution": 0.2, "addBatch": 0.15, "walCommit": 0.02}
        key = KeyFacts("p", 0, 7, 3, 100, [int(time.time() * 1_000) - 50], 1.0, [])
        self.metrics.follow(BatchReport(number, 10, time.time(), phases, kinds, [key], 1, 100))


def run(*options: str) -> Result:
    return CliRunner().invoke(main, ["status", *options])


@pytest.fixture
def job() -> Iterator[Served]:
    served = Served()
    with served.server:
        yield served


def caught_up(job: Served, seconds: float = 0.0) -> None:
    job.health.enter(Condition.READY, "the query runs, and the inputs are read")
    job.health.note_lag(int(seconds * 10), 0.0)
    job.health.note_lag(int(seconds * 10), seconds)


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        (Condition.READY, 0),
        (Condition.STANDING_BY, 0),
        (Condition.STARTING, 3),
        (Condition.CATCHING_UP, 3),
        (Condition.STOPPING, 3),
        (Condition.KAFKA_UNREACHABLE, 4),
        (Condition.HUNG, 4),
    ],
)
def test_the_exit_code_follows_the_condition(condition: Condition, code: int) -> None:
    served = Served(-1 if condition is Condition.HUNG else 300)
    with served.server:
        served.health.enter(condition, "why")
        if condition in (Condition.READY, Condition.KAFKA_UNREACHABLE, Condition.HUNG):
            caught_up(served)
        if condition is Condition.KAFKA_UNREACHABLE:
            served.health.note_kafka(unreachable_for=7)
        result = served.status()
    assert (result.exit_code, result.stdout.partition(":")[0]) == (code, condition)


def test_a_ready_job_may_lag_too_much_for_its_operator(job: Served) -> None:
    caught_up(job, 20)
    assert [job.status("--max-lag", bound).exit_code for bound in ("30", "20", "19")] == [0, 0, 3]
    assert json.loads(job.status("--max-lag", "19", "--json").stdout)["healthy"] is False


def test_one_screen_has_all_figures(job: Served) -> None:
    caught_up(job, 2)
    job.lag.lags = {"lite-topic-events": InputLag(20, 2.0), "lite-clock": InputLag(0, 0.0)}
    for number in range(3):
        job.read(number, add_SUBSCRIBED=4, **{"dead-letter_unknown_action": 1})
    result = job.status()
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "ready: the query runs, and the inputs are read"
    assert lines[2:] == [
        "  lag           2 s, 20 unread: lite-topic-events 20",
        "  records       30",
        "  updates       12",
        "  dead letters  3: unknown-action 3",
        "  micro-batch   0.200 s on average of 3, last 0 s ago",
        "                work 0.150 s, log-offsets 0.020 s",
        "  latency       50% within 0.1 s, 99% within 0.1 s",
        "  size          topics 7, clients 0, parents 1",
        "  memory        driver 210 MB",
    ]
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("  uptime        0 s, version ")


def test_json_has_the_health_and_the_figures(job: Served) -> None:
    caught_up(job)
    job.read(0, add_SUBSCRIBED=4)
    found = json.loads(job.status("--json").stdout)
    assert (found["state"], found["healthy"], found["lag_records"]) == ("ready", True, 0)
    assert (found["records"], found["updates"]) == ({"total": 10, "per_second": None}, {"total": 4, "per_second": None})
    assert found["dead_letters_by_reason"] == {}
    assert found["micro_batch_seconds"] == pytest.approx({"total": 0.2, "work": 0.15, "log-offsets": 0.02})


def test_rates_are_those_of_the_interval(job: Served) -> None:
    """Records of before do not count."""
    caught_up(job)
    job.read(0)

    def work() -> None:
        time.sleep(0.2)
        job.read(1)

    worker = Thread(target=work)
    worker.start()
    found = json.loads(job.status("--interval", "1", "--json").stdout)
    worker.join()
    assert found["records"]["total"] == 20
    assert 5 < found["records"]["per_second"] <= 10


def test_there_is_no_rate_while_the_first_micro_batch_runs(job: Served) -> None:
    """Nor for the interval in which it ends: its records have taken longer."""
    caught_up(job, 20)
    http = (job.server.url or "").removeprefix("http://")
    lines = run("--http", http, "--interval", "0.1").stdout.splitlines()
    assert lines[3:7] == [
        *(f"  {name:<13} 0, no rate yet" for name in ("records", "updates", "dead letters")),
        "  micro-batch   the first one is running",
    ]
    worker = Timer(0.5, lambda: job.read(0))
    worker.start()
    found = json.loads(run("--http", http, "--interval", "1", "--json").stdout)
    worker.join()
    assert (found["records"], found["updates"]) == ({"total": 10, "per_second": None}, {"total": 0, "per_second": None})
    found = json.loads(run("--http", http, "--interval", "0.1", "--json").stdout)
    assert found["records"] == {"total": 10, "per_second": 0}


def test_an_idle_job_runs_no_first_micro_batch(job: Served) -> None:
    assert "  micro-batch   none yet" in job.status().stdout.splitlines()
    caught_up(job)
    assert "  micro-batch   none yet" in job.status().stdout.splitlines()


def test_without_a_job_there_is_one_sentence() -> None:
    where = f"127.0.0.1:{free_port()}"
    result = run("--http", where)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: no job answers at {where}: ")
    assert result.stderr.endswith("Check that it runs, and that --http is its `http` setting\n")


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"state": "up"}', b'{"error": "this address answers to localhost only"}']
)
def test_another_server_is_no_job(body: bytes) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Write no log."""

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        result = run("--http", f"127.0.0.1:{server.server_port}")
        server.shutdown()
    assert result.exit_code == 1
    assert "is not a reexpand job" in result.stderr


@pytest.mark.parametrize("text", ["off", "9464", "host", "host:x", "host:0", "[::1"])
def test_an_address_is_checked(text: str) -> None:
    result = run("--http", text)
    assert (result.exit_code, "expected HOST:PORT" in result.stderr) == (2, True)


@pytest.mark.parametrize("form", ["0.0.0.0:{}", "http://127.0.0.1:{}/", "localhost:{}"])
def test_forms_of_an_address(form: str, job: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from the variable of the job's setting."""
    caught_up(job)
    port = (job.server.url or "").rpartition(":")[2]
    monkeypatch.setenv("REEXPAND_HTTP", form.format(port))
    assert run("--interval", "0").exit_code == 0


def test_a_context_has_the_address(job: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It wins over the variable, and the option over both."""
    caught_up(job)
    address = (job.server.url or "").removeprefix("http://")
    (tmp_path / "reexpand").mkdir()
    (tmp_path / "reexpand/prod.toml").write_text(f'http = "{address}"')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("REEXPAND_HTTP", f"127.0.0.1:{free_port()}")
    assert run("--interval", "0").exit_code == 1
    assert run("--interval", "0", "--context", "prod").exit_code == 0
    assert run("--interval", "0", "--context", "prod", "--http", f"127.0.0.1:{free_port()}").exit_code == 1
