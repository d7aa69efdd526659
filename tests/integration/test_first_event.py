"""The first event of the main page, and the tutorial on dispatchers: their commands, run in an empty folder."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import eventually

ROOT = Path(__file__).parents[2]
FIRST_EVENT = (ROOT / "README.md").read_text(encoding="utf-8").partition("## A first event\n")[2].partition("\n## ")[0]
DISPATCHER = (ROOT / "docs/dispatcher.md").read_text(encoding="utf-8")
WAIT_SECONDS = 120

pytestmark = pytest.mark.long


def blocks(page: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


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
        assert eventually(lambda: awaited in log.read_text(), WAIT_SECONDS, 0.2), log.read_text()
        return log.read_text()

    def run(self, commands: str) -> str:
        """Run commands, and return their output."""
        done = subprocess.run(
            ["bash", "-e", "-c", commands], cwd=self._folder, env=self.environment, capture_output=True, text=True,
            timeout=WAIT_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stop(self) -> None:
        """Interrupt all processes, the last one first, and check that they end in order."""
        for process in reversed(self._started):
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_SECONDS) == 0

    def kill(self) -> None:
        """End whatever still runs."""
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


def test_the_dispatcher_of_the_tutorial_delivers_a_message(tmp_path: Path) -> None:
    first, topics, dispatcher, events, message = blocks(DISPATCHER)
    with servers(first, tmp_path) as terminals:
        terminals.run(topics)
        terminals.start(re.sub(r" +#.*", "", dispatcher), "ready")
        assert terminals.run(events + message).splitlines()[-1] == "c1 hello"
