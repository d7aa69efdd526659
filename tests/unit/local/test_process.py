"""A helper program does not outlive whoever runs it, and keeps a lock for as long as it lives."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from streaming.local.process import Child, run
from tests.support.processes import alive, eventually, gone

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[IO[str]]:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_lines_and_exit_code_are_handed_over(lock: IO[str], tmp_path: Path) -> None:
    lines: list[str] = []
    assert run(["sh", "-c", "pwd; echo err >&2; exit 3"], lock, lines.append, tmp_path) == 3
    assert lines == [f"{tmp_path}\n", "err\n"]


def test_an_error_in_between_ends_the_program(lock: IO[str]) -> None:
    """As Ctrl-C does while a progress bar is drawn."""
    pids: list[int] = []

    def interrupt(line: str) -> None:
        pids.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(["sh", "-c", "echo $$; exec sleep 600"], lock, interrupt)
    assert gone(pids[0])


def test_a_program_whose_owner_is_killed_ends_before_its_lock_is_free(tmp_path: Path) -> None:
    """Whoever takes the lock next meets no program that still writes."""
    script = (
        "import fcntl, sys; from streaming.local.process import run; lock = open(sys.argv[1], 'w'); "
        "fcntl.flock(lock, fcntl.LOCK_EX); "
        "run(['sh', '-c', 'echo $$; exec sleep 600'], lock, lambda line: print(line, end='', flush=True))"
    )
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert is_locked(path)
        owner.send_signal(signal.SIGKILL)
    assert eventually(lambda: not is_locked(path), interval=0.005)
    assert not alive(pid)


def test_scratch_folders_of_ended_processes_are_removed(tmp_path: Path) -> None:
    """By themselves in the end, or by the next process if they were killed. The folder of a living process stays."""
    script = (
        "import sys; from pathlib import Path; from streaming.local.process import scratch_folder; "
        "folder = scratch_folder(Path(sys.argv[1])); (folder / 'file').touch(); "
        "print(folder, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]

    @contextmanager
    def owner() -> Iterator[tuple[subprocess.Popen[str], Path]]:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())

    with owner() as (killed, former):
        killed.kill()
    assert (former / "file").exists()
    with owner() as (_, folder):
        assert not former.exists()
        with owner() as (_, other):
            assert {each.name for each in tmp_path.iterdir()} == {folder.name, other.name, "lock"}
        assert (folder / "file").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["lock"]


def test_a_wait_for_a_child_ends_with_a_result_with_the_child_or_with_the_time(tmp_path: Path) -> None:
    child = Child(["sleep", "60"], tmp_path / "log")
    try:
        answers = iter([None, "", "up"])
        assert child.wait_for(lambda: next(answers), 60) == "up"
        assert child.wait_for(lambda: None, 0.1) is None
    finally:
        child.kill()
    assert child.wait_for(lambda: True, 60) is None
