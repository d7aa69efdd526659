"""`reexpand top`, against the job's own server of metrics, health and console, on a simulated broker."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from streaming.cli import main
from streaming.cli.status import JobServer
from streaming.config import Address, load
from streaming.console.server import JobConsole
from streaming.local.server import free_port
from streaming.monitor.batch import BatchReport, LagMeter
from streaming.monitor.health import Condition, Health
from streaming.monitor.metrics import Metrics
from streaming.monitor.server import HttpServer, routes
from streaming.worker.rows import KeyFacts
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add

TOKEN = "0123456789abcdef"  # noqa: S105 - of this test


class Monitored:
    """A job's server with its console, as `reexpand run` composes it."""

    def __init__(self, broker: Simulated, address: Address, **more: str) -> None:
        settings = load({"bootstrap_servers": broker.address, "checkpoint": "c", "updates": TOPIC,
                         "http": str(address), **more})  # fmt: skip
        self.health, lag = Health(300), LagMeter()
        self.metrics, self.console = Metrics(self.health, lag, dict), JobConsole(settings)
        found = [*routes(self.metrics.registry, self.health, local=address.is_loopback),
                 *self.console.routes(self.health, lag)]  # fmt: skip
        self.server = HttpServer(address, found)

    @property
    def http(self) -> str:
        """Address at which this machine reaches it."""
        return f"127.0.0.1:{(self.server.url or '').rpartition(':')[2]}"

    def read(self, number: int, records: int = 10) -> None:
        """Commit a micro-batch whose oldest event is 4 s old."""
        now = float(int(time.time()))  # exact in milliseconds
        keys = [KeyFacts("orders\x1b[2J", 3, 2_000, 1, 9_000, [int(now * 1_000) - 4_000], 1.0, [])]
        report = BatchReport(number, records, now, {"triggerExecution": 0.2}, Counter(), keys, 1, 100)
        self.metrics.follow(report)
        self.console.follow(report)


@contextmanager
def monitored(broker: Simulated, address: Address = Address("127.0.0.1", 0), **more: str) -> Iterator[Monitored]:  # noqa: B008
    found = Monitored(broker, address, **more)
    with found.server:
        found.health.enter(Condition.READY, "the query runs")
        found.health.note_lag(7, 1.5)
        found.health.note_lag(7, 1.5)
        yield found
    found.console.close()


@pytest.fixture
def broker() -> Simulated:
    return Simulated()


def top(*options: str) -> Result:
    before = signal.getsignal(signal.SIGTERM)
    try:
        return CliRunner().invoke(main, ["top", "--interval", "0.2", *options])
    finally:
        signal.signal(signal.SIGTERM, before)


def opened(job: Monitored, *options: str) -> None:
    assert json.loads(top("--http", job.http, "--once", "--json", *options).stdout)["console"] is None


def test_a_screen_has_the_figures_of_status_shards_and_clients(broker: Simulated) -> None:
    with monitored(broker) as job:
        job.read(0)
        opened(job)  # only later updates are counted by client
        server = JobServer(Address("127.0.0.1", int(job.http.rpartition(":")[2])), 5)
        assert eventually(lambda: '"ready":true' in server.get("/api/state")[1])
        broker.write(*(add(f"eu__{at}", parent="orders", client="c1", group="billing") for at in range(3)), partition=0)
        broker.write(add("eu__1", parent="orders", client="c2", group="audit"), partition=0)
        assert eventually(lambda: "orders audit/c2" in top("--http", job.http).stdout)
        lines = top("--http", job.http).stdout.splitlines()
    assert lines[0] == "ready: the query runs"
    assert "  records       10, 0.0 per second" in lines
    at = lines.index("slowest shards of the last five minutes")
    assert lines[at + 1 :] == [
        "  longest wait     topics    clients       state  parent topic, shard",
        "       4.000 s      2,000          1        9 kB  orders\\x1b[2J, 3",
        "",
        "clients with most updates, of the last 2,000",
        "       updates     topics  parent topic, group/client",
        "             3          3  orders billing/c1",
        "             1          1  orders audit/c2",
    ]
    assert max(map(len, lines)) <= 80


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let children end by Ctrl-C, which they ignore if a shell has started the tests in the background."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("interruptible")
def test_json_has_a_line_for_each_screen_with_the_rates_of_its_interval(broker: Simulated) -> None:
    with monitored(broker) as job:
        command = [sys.executable, "-m", "reexpand", "top", "--http", job.http, "--interval", "1", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            first = json.loads(process.stdout.readline())
            job.read(0)
            second = json.loads(process.stdout.readline())
            job.read(1, records=50)
            third = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
    assert (second["clients"], second["busiest_clients"]) == (0, [])
    assert (first["records"], first["lag_records"]) == ({"total": 0, "per_second": None}, 7)
    assert second["records"] == {"total": 10, "per_second": None}, "the first micro-batch has taken an unknown time"
    assert third["records"]["total"] == 60
    assert 0 < third["records"]["per_second"] <= 50
    assert [(shard["parent"], shard["shard"]) for shard in second["slowest_shards"]] == [("orders\x1b[2J", 3)]


def test_without_its_token_the_console_is_not_asked(broker: Simulated, tmp_path: Path) -> None:
    """The other figures need none. The token comes from a file, the environment or a context, and is not printed."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    (tmp_path / "reexpand").mkdir()
    everywhere = Address("0.0.0.0", 0)  # noqa: S104 - the address that needs a token
    with monitored(broker, everywhere, http_token_file=str(file)) as job, pytest.MonkeyPatch.context() as patch:
        (tmp_path / "reexpand/prod.toml").write_text(f'http = "{job.http}"\nhttp_token_file = "../token"')
        refused = top("--http", job.http)
        assert refused.exit_code == 0
        assert "shards and clients: the job's console needs its token: --token-file" in refused.stdout
        patch.setenv("REEXPAND_HTTP_TOKEN", TOKEN)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        for options in ((), ("--token-file", str(file))):
            opened(job, *options)
            patch.delenv("REEXPAND_HTTP_TOKEN", raising=False)
        result = top("--context", "prod")
        assert "clients with most updates" in result.stdout
        assert TOKEN not in result.output
        file.write_text("two\nlines")
        assert top("--context", "prod").stderr == (
            f"Error: the token in {file.parent}/reexpand/../token must be one line of ASCII characters\n"
        )
    with monitored(broker, everywhere) as job:
        assert "has no console at this address" in top("--http", job.http).stdout


def test_without_a_job_there_is_one_sentence() -> None:
    where = f"127.0.0.1:{free_port()}"
    for options in ((), ("--json",), ("-n", "3")):
        result = top("--http", where, *options)
        assert (result.exit_code, result.stderr.startswith(f"Error: no job answers at {where}: ")) == (1, True)


@pytest.mark.usefixtures("interruptible")
def test_a_terminal_is_refreshed_until_ctrl_c_and_keeps_the_last_screen(broker: Simulated) -> None:
    """A job that goes away is waited for."""
    port = free_port()
    address = Address("127.0.0.1", port)
    command = [sys.executable, "-m", "reexpand", "top", "--http", f"127.0.0.1:{port}", "--interval", "0.2"]
    master, slave = pty.openpty()
    read = bytearray()

    def shows(text: str) -> bool:
        while True:
            try:
                read.extend(os.read(master, 65_536))
            except BlockingIOError:
                return text.encode() in read

    def has_ended() -> bool:
        """Read on meanwhile, since a full terminal stops the process."""
        shows("")
        return process.poll() is not None

    os.set_blocking(master, False)
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with ExitStack() as stack:
        with monitored(broker, address):
            process = stack.enter_context(
                subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
            )
            stack.callback(process.kill)
            assert eventually(lambda: shows("ready: the query runs"), 60)
        assert eventually(lambda: shows("no job answers"), 60)
        read.clear()
        with monitored(broker, address) as job:
            job.read(0)
            assert eventually(lambda: shows("records       10"), 60)
            read.clear()
            process.send_signal(signal.SIGINT)
            assert eventually(has_ended, 60)
    assert process.returncode == 0
    assert shows("clients with most updates")
    os.close(master)
    os.close(slave)
    rest = read.decode().partition("\x1b[?1049l")[2]  # the terminal's former content is back
    assert re.search(r"ready: the query runs\r\n +uptime", rest)
