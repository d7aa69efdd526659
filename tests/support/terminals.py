"""Terminals in which tests run the commands of a page literally, with the duration of each step."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tests.support.processes import MARK, eventually, marked

ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 300
"""Largest duration of a step, or of a block in a shell."""

READY = {"local": "Next:", "run": "ready", "watch-kafka": "ready", "console": "The console is at"}
"""Verbs that keep running, and the text that they print when the next step can begin."""

_ENDED = re.compile(r"\x1e(\d+\.\d+)\n")
"""Time that the shell prints after a command, behind a record separator."""


class Step(NamedTuple):
    """A command of a page, and its duration in seconds."""

    page: str
    command: str
    seconds: float


def blocks(text: str, language: str = "sh") -> list[str]:
    """Return the code blocks of a page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def section(text: str, heading: str) -> str:
    """Return the text of a section."""
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def table(steps: Iterable[Step]) -> str:
    """Return durations as a table in Markdown."""
    rows = [f"| {step.page} | `{step.command}` | {step.seconds:.1f} |\n" for step in steps]
    return "".join(["\n| page | step | seconds |\n|---|---|---|\n", *rows])


class Terminals:
    """Terminals of a page. Each command is a step.

    Args:
        page: path of the page below the project's folder.
        folder: empty folder in which all commands run.
        steps: list to which the steps are added.

    Attributes:
        text: content of the page.
        environment: variables of all terminals.
    """

    def __init__(self, page: str, folder: Path, steps: list[Step]) -> None:
        self.text = (ROOT / page).read_text(encoding="utf-8")
        self.folder = folder
        self._page = page
        self._steps = steps
        self._mark = uuid4().hex
        self._started: list[subprocess.Popen[bytes]] = []
        path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
        self.environment = {"HOME": str(Path.home()), "PATH": path, MARK: self._mark}

    def kill(self) -> None:
        """End all processes that still run."""
        for process in self._started:
            process.kill()
            process.wait()

    def note(self, command: str, seconds: float) -> None:
        """Add a step."""
        self._steps.append(Step(self._page, command, seconds))

    def save(self, name: str) -> None:
        """Save the only Python program of the page."""
        (program,) = blocks(self.text, "python")
        (self.folder / name).write_text(program, encoding="utf-8")

    def open(self, block: str) -> None:
        """Run a block whose commands keep running in terminals of their own, and export the broker's address."""
        for line in block.splitlines():
            command = re.sub(r" +#.*", "", line)
            if command.startswith("export "):
                variable, _, address = command.removeprefix("export ").partition("=")
                assert address in ("127.0.0.1:PORT", "broker:9092")
                self.environment[variable] = self._address()
            else:
                if command.startswith("reexpand run "):
                    assert self._suggested() in command
                self.start(command)

    def start(self, command: str, awaited: str = "") -> None:
        """Start a command that keeps running, and wait until it prints a text, by default that it is ready."""
        begun = time.monotonic()
        command = re.sub(r" +#.*", "", command.strip())
        with self._log(len(self._started)).open("wb") as file:
            self._started.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=file, stderr=file
                )
            )
        self._await(awaited or READY.get(command.split()[1], ""))
        self.note(command, time.monotonic() - begun)

    def prints(self, line: str) -> None:
        """Wait until the command that was started last prints a line, as a step."""
        begun = time.monotonic()
        self._await(f"{line}\n")
        assert line in self._log(len(self._started) - 1).read_text().splitlines()
        self.note(f"# {line}", time.monotonic() - begun)

    def _await(self, text: str) -> None:
        log, process = self._log(len(self._started) - 1), self._started[-1]
        eventually(lambda: text in log.read_text() or process.poll() is not None, WAIT_SECONDS, 0.05)
        assert text in log.read_text(), log.read_text()
        assert process.poll() is None, log.read_text()

    def run(self, *shell: str) -> str:
        """Run blocks in one shell until all of its processes have ended, and return their output."""
        commands = [command for block in shell for command in _commands(block)]
        script = "".join(f"{command}\nprintf '\\036%s\\n' $EPOCHREALTIME\n" for command in commands)
        begun = time.time()
        process = subprocess.Popen(
            ["bash", "-euc", script], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=WAIT_SECONDS * len(shell))
        finally:
            if process.returncode != 0:  # its background processes would go on
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, output + errors
        for command, ended in zip(commands, map(float, _ENDED.findall(output)), strict=True):
            self.note(command.splitlines()[0], ended - begun)
            begun = ended
        return _ENDED.sub("", output)

    def stop(self) -> None:
        """Interrupt all processes, the last one first. Check the exit codes, and that no process is left."""
        for process in reversed(self._started):
            process.send_signal(signal.SIGINT)
            is_verb = "reexpand " in str(process.args)
            assert process.wait(WAIT_SECONDS) == (0 if is_verb else -signal.SIGINT), process.args
        assert eventually(lambda: marked(self._mark) == [], WAIT_SECONDS, 0.2), marked(self._mark)

    def _log(self, number: int) -> Path:
        return self.folder / f"terminal-{number}.log"

    def _address(self) -> str:
        """Address that `reexpand local` has printed in the first terminal."""
        return self._printed(r"^Kafka listens on (\S+?);")

    def _suggested(self) -> str:
        """Checkpoint of the command that `reexpand local` suggests."""
        return self._printed("^Next: reexpand run .*(--checkpoint .*)$")

    def _printed(self, pattern: str) -> str:
        (found,) = re.findall(pattern, self._log(0).read_text(), re.MULTILINE)
        return str(found)


def _commands(block: str) -> Iterator[str]:
    """Yield the commands of a block: lines, each with its here-document."""
    return (found.group().rstrip() for found in re.finditer(r"^.*<<'END'.*\n(?:.*\n)*?END$|^.+$", block, re.MULTILINE))
