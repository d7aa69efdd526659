"""A command under a guardian ends with whoever asked for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from streaming.local import guardian
from tests.support.processes import eventually, gone, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Guarded = tuple[subprocess.Popen[bytes], int]


@pytest.fixture
def guard() -> Iterator[Callable[..., Guarded]]:
    """Starts a guardian with a command; gives the guardian and the command's process id."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> Guarded:
        process = subprocess.Popen(
            [sys.executable, "-IS", guardian.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        started.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield start
    for process in started:
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()  # whatever a test has found, the next one starts without its processes
            raise


def test_the_command_dies_when_its_input_ends(guard: Callable[..., Guarded]) -> None:
    """The end of input is what a killed owner leaves behind."""
    process, pid = guard("sleep", "600")
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 128 + signal.SIGKILL
    assert gone(pid)
    process.stdin = None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills the children of a killed process")
def test_the_command_dies_with_its_guardian(guard: Callable[..., Guarded]) -> None:
    process, pid = guard("sleep", "600")
    process.kill()
    assert gone(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_byte_is_a_signal(guard: Callable[..., Guarded], number: signal.Signals) -> None:
    process, pid = guard("sleep", "600")
    assert process.stdin is not None
    process.stdin.write(bytes([number]))
    assert process.wait(60) == 128 + number
    assert gone(pid)


def test_a_paused_command_can_go_on(guard: Callable[..., Guarded]) -> None:
    process, pid = guard("sleep", "600")
    assert process.stdin is not None
    process.stdin.write(bytes([signal.SIGSTOP]))
    assert eventually(lambda: state(pid) == "T")
    process.stdin.write(bytes([signal.SIGTERM]))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.stdin.write(bytes([signal.SIGCONT]))
    assert process.wait(60) == 128 + signal.SIGTERM


def test_output_and_exit_code_are_the_commands(guard: Callable[..., Guarded]) -> None:
    process, _ = guard("sh", "-c", "echo one; echo two >&2; exit 7")
    assert process.wait(60) == 7
    assert process.stderr is not None
    assert process.stderr.read() == b"one\ntwo\n"
