"""The section "A first event" of the main page, its commands as they stand there, in a folder of its own."""

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
    """The broker, the job, and the program that sends events and waits for the update."""
    first, program = re.findall(r"^```sh\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
    broker, _, job = (re.sub(r" +#.*", "", line) for line in first.splitlines())
    return broker, job, program


def test_who_follows_the_page_sees_an_update(tmp_path: Path) -> None:
    broker, job, program = commands()
    assert (broker.split()[1], job.split()[1]) == ("local", "run")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    said, log = tmp_path / "local.out", tmp_path / "run.log"
    started: list[subprocess.Popen[bytes]] = []

    def start(command: str, output: Path, **variables: str) -> None:
        words = ["bash", "-c", f"exec {command}"]
        with output.open("wb") as file:
            environment = {"HOME": str(Path.home()), "PATH": path, **variables}
            started.append(subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=file, stderr=file))

    def printed() -> list[str]:
        return re.findall(r"Kafka listens on (\S+?);", said.read_text())

    try:
        start(broker, said)
        assert eventually(lambda: bool(printed()), WAIT_SECONDS, 0.2), said.read_text()
        address = {"KAFKA": printed()[0]}
        start(job, log, **address)
        done = subprocess.run(["bash", "-c", program], cwd=tmp_path, env={"PATH": path, **address}, capture_output=True,
                              text=True, timeout=WAIT_SECONDS, check=False)  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "{'eu__1'}\n"), done.stderr + log.read_text()
        for process in reversed(started):
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_SECONDS) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
