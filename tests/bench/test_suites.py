"""Each suite of `make bench` starts, measures small sizes and prints its figures."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message

from streaming.local.broker import Broker
from streaming.local.java import short_lived
from tests.bench.__main__ import SUITES
from tests.bench.streaming import driver, jobs
from tests.bench.streaming.driver import NO_OP, Driver
from tests.support.tail import Tail

SHORT = "--rounds 1 --turns 1 --events 500 --warm-bursts 1 --singles 20 --warm-up 0 --alone 2"
SMALL = {
    "job": f"{SHORT} --only job-sparks-defaults no-op-output",
    "delivery": SHORT,
    "metrics": f"{SHORT} --minutes 0 --scrape 0.2",
    "starts": "--kills 1 --topics 5",
    "cluster": "--rounds 1 --events 500 --warm-bursts 0 --bursts 1",
    "scale": "--repeats 2 --only stages whole --most 3000",
    "wide": "--topics 1000",
    "asking": "--topics 5000 --shards 2 --times 2 --events 4",
    "inquiry": "--topics 10000",
    "console": "--topics 1000",
    "backlog": "--events 2000 --per-trigger 500",
    "eager": "--topics 1000",
    "low-rate": "--paces 0.5 --intervals --events 20 --alone 2 --warm-up 1",
    "cold": "--topics 200 --patterns 100 --rounds 1",
    "memory": "--topics 2000 --patterns 500 --rounds 1",
    "resync": "--clients 100 --rounds 1",
    "columnar": "--turns 1 --visits 10 --most 8",
    "pattern-consumer": "--births 1 --topics 5 --patience 2 --pause 0",
    "matcher": "--topics 2000 --patterns 200 --no-go",
    "peers": f"{SHORT} --only no-op kafka-streams quix-streams bytewax pyflink",  # those installed
    "rocketmq": "--topics 2 --later 2 --burst 5",
    "rocketmq-watcher": "--topics 20 --idle 1 --births 2 --ends 1",
}
"""Options of the smallest run of each suite."""

SECONDS = 900

PEERS = Path(__file__).parent / "peers"
PROJECT = {"matcher", "streaming", "tests"}


@pytest.fixture(scope="module", autouse=True)
def _short_lived() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in short_lived(os.environ).items():
            patch.setenv(name, value)
        yield


@pytest.mark.parametrize(
    ("module", "requirements"),
    [
        ("quix_streams", "requirements.txt"),
        ("bytewax_flow", "requirements-bytewax.txt"),
        ("py_flink", "requirements-flink.txt"),
    ],
)
def test_a_peer_needs_no_package_that_its_environment_lacks(module: str, requirements: str) -> None:
    """Its modules of the project are imported without all other packages."""
    lines = (PEERS / requirements).read_text().splitlines()
    locked = {line.partition("==")[0] for line in lines if "==" in line}
    foreign = [
        name
        for name, owners in packages_distributions().items()
        if name not in PROJECT and not locked & {owner.lower().replace("_", "-") for owner in owners}
    ]
    nodes = ast.walk(ast.parse((PEERS / f"{module}.py").read_text()))
    imports = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    own = [name for name in imports if name.partition(".")[0] in PROJECT]
    assert own
    code = f"import sys, importlib; sys.modules |= dict.fromkeys({foreign}); [*map(importlib.import_module, {own})]"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_prints_figures(suite: str) -> None:
    command = [sys.executable, "-m", "tests.bench", suite, *SMALL[suite].split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-4_000:]
    assert any(character.isdigit() for character in done.stdout), done.stderr[-4_000:]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.mark.integration
def test_the_no_op_writes_in_transactions_as_the_job_does(broker: Broker, tmp_path: Path) -> None:
    """Their markers have offsets, but are no records."""
    with Driver(NO_OP, broker, tmp_path) as measured:
        with Tail(broker.bootstrap_servers, [measured.settings.updates]) as tail:
            records = len(tail.read())
        assert 0 < records < measured.written()


@pytest.mark.integration
def test_no_consumer_reads_while_a_backlog_is_measured(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would use the cores of the job."""

    class Unread(Consumer):
        def consume(self, *_: object) -> list[Message]:
            raise AssertionError("the bench reads updates")

    monkeypatch.setattr(driver, "Consumer", Unread)
    assert jobs.catch_up(broker, tmp_path, 2_000, 500)["events/s"] > 0
