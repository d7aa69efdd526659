"""The section "A first event" of the main page: its commands, run in an empty folder."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import eventually

PAGE = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## A first event\n")[2].partition("\n## ")[0]
WAIT_SECONDS = 120

pytestmark = pytest.mark.long


def commands() -> tuple[str, str, str]:
    """The broker, the job, and the lines that send events."""
    first, events = re.findall(r"^```sh\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    broker, export, job = (re.sub(r" +#.*", "", line) for line in first.splitlines())
    assert export == "export REEXPAND_BOOTSTRAP_SERVERS=127.0.0.1:PORT"
    return broker, job, events


def test_the_commands_of_the_page_print_an_update(tmp_path: Path) -> None:
    broker, job, events = commands()
    assert (broker.split()[1], job.split()[1]) == ("local", "run")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    output, log = tmp_path / "local.out", tmp_path / "run.log"
    started: list[subprocess.Popen[bytes]] = []

    def start(command: str, output: Path, **variables: str) -> None:
        words = ["bash", "-c", f"exec {command}"]
        with output.open("wb") as file:
            environment = {"HOME": str(Path.home()), "PATH": path, **variables}
            started.append(subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=file, stderr=file))

    def printed() -> list[str]:
        return re.findall(r"Kafka listens on (\S+?);", output.read_text())

    try:
        start(broker, output)
        assert eventually(lambda: bool(printed()), WAIT_SECONDS, 0.2), output.read_text()
        address = {"REEXPAND_BOOTSTRAP_SERVERS": printed()[0]}
        start(job, log, **address)
        assert eventually(lambda: "ready" in log.read_text(), WAIT_SECONDS, 0.2), log.read_text()
        done = subprocess.run(["bash", "-e", "-c", events], cwd=tmp_path, env={"PATH": path, **address},
                              capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr + log.read_text()
        assert re.search(r"^ADD +orders billing/c1 eu__1 +TOPIC_CREATED +eu__\*", done.stdout, re.MULTILINE)
        for process in reversed(started):
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_SECONDS) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
