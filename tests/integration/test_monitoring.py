"""Metrics and health of a real job in trouble, as Prometheus and probes see them."""

import json
import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from streaming.local.broker import Broker
from streaming.local.server import free_port
from streaming.records.model import Stream
from tests.support.brokers import StartBroker
from tests.support.processes import eventually
from tests.support.prometheus import DASHBOARD, is_installed, probe, sample, scraping
from tests.support.running_job import SETTLE_SECONDS, START_SECONDS, Job, Streams, running


@pytest.mark.long
def test_probes_tell_the_conditions_of_a_job_apart(own_broker: StartBroker, tmp_path: Path) -> None:
    """One that catches up, works, hangs, lacks Kafka, stands by, and takes over from one that has crashed."""
    broker = own_broker()
    streams = Streams(broker.bootstrap_servers, tmp_path / "checkpoint").create()
    options = ("--hang-seconds", "6", "--log-format", "json", "--max-offsets-per-trigger", "250", "--http")
    standby = f"127.0.0.1:{free_port()}"
    backlog(streams, 20_000)
    with running(streams, tmp_path / "first", *options, "127.0.0.1:0") as first:
        address = first.address()
        assert probe(f"{address}/readyz")[1]["state"] == "catching-up"
        assert eventually(lambda: probe(f"{address}/readyz")[0] == 200, SETTLE_SECONDS, 0.5)
        assert "catching up: " in first.said()
        assert "caught up" in first.said()
        with scraping(address, f"http://{standby}") if is_installed() else nullcontext() as prometheus:
            hang(streams, first, address)
            lose_kafka(broker, first, address)
            open_dashboard(prometheus)
            with Job(streams, tmp_path / "second", *options, standby, "--standby") as second:
                take_over(first, second)
                ask_prometheus(prometheus)


def take_over(first: Job, second: Job) -> None:
    """Kill the first job while the second one stands by."""
    assert eventually(lambda: "standing by" in second.said(), START_SECONDS, 0.5)
    address = second.address()
    codes = [probe(f"{address}{path}")[0] for path in ("/healthz", "/readyz", "/readyz?role=holder")]
    assert codes == [200, 200, 503]
    first.kill()
    assert eventually(lambda: probe(f"{address}/readyz?role=holder")[0] == 200, SETTLE_SECONDS, 0.5)
    assert probe(f"{address}/readyz")[1]["former_driver"] == "crashed"
    assert sample(address, "reexpand_recovery_seconds", until="caught-up") > 0


def backlog(streams: Streams, count: int) -> None:
    feed = streams.producer()
    for number in range(count):
        feed.send(Stream.TOPICS, {"event": "CREATED", "parentTopic": "p", "liteTopic": f"t{number}"}, "p")
    feed.flush()


def hang(streams: Streams, job: Job, address: str) -> None:
    """Stop the Python workers within a micro-batch, and let them go on."""
    workers = job.workers()
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        backlog(streams, 1)
        assert eventually(lambda: probe(f"{address}/healthz")[0] == 503, 60, 0.5)
        assert probe(f"{address}/readyz")[1]["state"] == "hung"
        assert probe(f"{address}/healthz")[1]["reason"].startswith("micro-batch ")
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    assert eventually(lambda: probe(f"{address}/readyz")[0] == 200, SETTLE_SECONDS, 0.5)


def lose_kafka(broker: Broker, job: Job, address: str) -> None:
    """Stop the broker for longer than a micro-batch may take: that is no hang."""
    broker.stop()
    assert eventually(lambda: probe(f"{address}/readyz")[1]["state"] == "kafka-unreachable", 60, 0.5)
    time.sleep(8)
    assert probe(f"{address}/healthz")[0] == 200
    assert sample(address, "reexpand_kafka_unreachable_seconds") > 8
    broker.start()
    assert eventually(lambda: probe(f"{address}/readyz")[0] == 200, SETTLE_SECONDS, 0.5)
    events = [json.loads(line)["event"] for line in job.said().splitlines() if line.startswith("{")]
    assert len([event for event in events if event.startswith("Kafka unreachable since ")]) == 1
    assert len([event for event in events if event.startswith("Kafka is back after ")]) == 1


def open_dashboard(address: str | None) -> None:
    """Ask Prometheus what the dashboard asks, while a job works."""
    if address is None:
        return
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "5m")
            found = query(address, expression)
            assert found or "> 0" in expression, f"{panel['title']}: {expression}"


def ask_prometheus(address: str | None) -> None:
    """Check that it has scraped both jobs, knows what has happened, and is about to tell the crash."""
    if address is None:
        pytest.skip("all but Prometheus was checked: it is not installed (Debian: prometheus)")
    assert query(address, "count(count_over_time(reexpand_build_info[10m]))") == ["2"]
    assert query(address, 'count(max_over_time(reexpand_state{state="hung"}[10m]) == 1)') == ["1"]
    assert query(address, "count(max_over_time(reexpand_kafka_unreachable_seconds[10m]) > 8)") == ["1"]
    assert eventually(lambda: query(address, 'count(ALERTS{alertname="ReexpandDown"})') == ["1"], 60, 0.5)


def query(address: str, expression: str) -> list[str]:
    """Return the values of a query's answer."""
    with urlopen(f"{address}/api/v1/query?{urlencode({'query': expression})}", timeout=60) as answer:  # noqa: S310 - as above
        return [str(each["value"][1]) for each in json.load(answer)["data"]["result"]]
