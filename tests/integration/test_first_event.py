"""The commands of the main page and of the dispatcher's tutorial, run literally and timed in an empty folder."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import eventually

ROOT = Path(__file__).parents[2]
FIRST_EVENT = (ROOT / "README.md").read_text(encoding="utf-8").partition("## A first event\n")[2].partition("\n## ")[0]
DISPATCHER = (ROOT / "docs/dispatcher.md").read_text(encoding="utf-8")
OWN_KAFKA = (ROOT / "docs/own-kafka.md").read_text(encoding="utf-8")
WAIT_SECONDS = 120

pytestmark = pytest.mark.long


def blocks(page: str, language: str = "sh") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@contextmanager
def timed(commands: str) -> Iterator[None]:
    """Print the duration of a step, which `make test-tutorials` shows."""
    begun = time.monotonic()
    yield
    sys.stdout.write(f"{time.monotonic() - begun:7.1f} s  {commands.strip().splitlines()[0]}\n")


class Terminals:
    """Processes of a tutorial: those that keep running, and commands that end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        self.environment = {"HOME": str(Path.home()), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    def start(self, command: str, awaited: str) -> str:
        """Start a command that keeps running, and return its output once a text is in it."""
        log = self._folder / f"{len(self._started)}.log"
        with log.open("wb") as file:
            self._started.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"], cwd=self._folder, env=self.environment, stdout=file, stderr=file
                )
            )
        with timed(command):
            assert eventually(lambda: awaited in log.read_text(), WAIT_SECONDS, 0.2), log.read_text()
        return log.read_text()

    def printed(self) -> str:
        """Return the output so far of the command that was started last."""
        return (self._folder / f"{len(self._started) - 1}.log").read_text()

    def run(self, commands: str) -> str:
        with timed(commands):
            done = subprocess.run(
                ["bash", "-e", "-c", commands], cwd=self._folder, env=self.environment, capture_output=True, text=True,
                timeout=WAIT_SECONDS, check=False,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end_last(self) -> None:
        """Kill the process that was started last."""
        process = self._started.pop()
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Interrupt all processes, the last one first, and check that they end in order."""
        for process in reversed(self._started):
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_SECONDS) == 0

    def kill(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@contextmanager
def servers(block: str, folder: Path) -> Iterator[Terminals]:
    """Run the broker and the job of a tutorial's first block."""
    broker, export, job = (re.sub(r" +#.*", "", line) for line in block.splitlines())
    assert (broker.split()[1], job.split()[1]) == ("local", "run")
    variable, _, address = export.removeprefix("export ").partition("=")
    assert address == "127.0.0.1:PORT"
    terminals = Terminals(folder)
    try:
        (printed,) = re.findall(r"Kafka listens on (\S+?);", terminals.start(broker, "Next:"))
        terminals.environment[variable] = printed
        terminals.start(job, "ready")
        yield terminals
        terminals.stop()
    finally:
        terminals.kill()


def test_the_commands_of_the_main_page_print_an_update(tmp_path: Path) -> None:
    first, events = blocks(FIRST_EVENT)
    with servers(first, tmp_path) as terminals:
        output = terminals.run(events)
    assert re.search(r"^ADD +orders billing/c1 eu__1 +TOPIC_CREATED +eu__\*", output, re.MULTILINE), output


def test_the_dispatcher_of_the_tutorial_prints_a_message(tmp_path: Path) -> None:
    first, topic, dispatcher, events, *_ = blocks(DISPATCHER)
    (tmp_path / "dispatcher.py").write_text(blocks(DISPATCHER, "python")[0], encoding="utf-8")
    with servers(first, tmp_path) as terminals:
        terminals.run(topic)
        terminals.start(re.sub(r" +#.*", "", dispatcher), "ready")
        terminals.run(events)
        assert eventually(lambda: "\nc1 hello\n" in terminals.printed(), WAIT_SECONDS), terminals.printed()
        terminals.end_last()


def test_the_commands_for_a_kafka_of_ones_own_end_in_order(tmp_path: Path) -> None:
    """With another address and folder than on the page, and without the browser and the advice for large parents."""
    page = OWN_KAFKA.replace("/var/lib/reexpand", str(tmp_path / "checkpoint"))
    export, topics, job, events, result, checks = blocks(page)
    terminals = Terminals(tmp_path)
    try:
        (address,) = re.findall(r"Kafka listens on (\S+?);", terminals.start("reexpand local", "Next:"))
        variable, _, example = export.removeprefix("export ").strip().partition("=")
        assert example == "broker:9092"
        terminals.environment[variable] = address
        assert "exists" in terminals.run(topics)
        terminals.start(job, "ready")
        assert terminals.run(events).count("sent: ") == 3
        tail, console = result.splitlines()
        assert console == "reexpand console --open"
        assert eventually(lambda: "billing/c1 eu__1" in terminals.run(tail), WAIT_SECONDS, 1)
        explain, verify, letters = checks.splitlines()
        assert terminals.run(explain).startswith("yes: client 'c1'")
        assert "the relation is right" in terminals.run(verify)
        assert terminals.run(letters) == ""
        assert "orders, 0" in terminals.run("reexpand top --once")
        terminals.stop()
    finally:
        terminals.kill()
