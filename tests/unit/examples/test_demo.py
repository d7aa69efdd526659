"""The demo's folder, and its exit code."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from streaming.config import Settings
from streaming.errors import ReexpandError
from streaming.examples import demo as runner
from streaming.examples.scenario import ORDERS, appears, relation, subscribes, wildcard_group
from streaming.examples.screen import Screen
from streaming.examples.verdict import Coordinates, ReceivedUpdate, Transcript, judge
from streaming.oracle import Effective

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streaming.examples.verdict import DeadLetter, Verdict

STEPS = [wildcard_group("g", ORDERS), subscribes("c", "g", ORDERS), appears(ORDERS, "eu__a")]
TRANSCRIPT = Transcript([(step, Coordinates("in", 0, offset)) for offset, step in enumerate(STEPS)])
SETTINGS = Settings.model_construct(bootstrap_servers="127.0.0.1:9092", checkpoint="checkpoint")


class FinishedJob:
    """A finished job that ends with a given exit code."""

    def __init__(self, code: int = 0) -> None:
        self.code = code

    def stop(self) -> int:
        return self.code

    def failure(self, how: str) -> ReexpandError:
        return ReexpandError(how)


class WrittenPlay:
    """A finished play with a given content of the updates topic."""

    def __init__(self, *held: Effective) -> None:
        self.held = set(held)

    def all(self, _: object) -> None:
        """Play nothing."""

    def verdict(self) -> Verdict:
        return judge(TRANSCRIPT, self.held, relation(STEPS))


class SilentFollower:
    """A job that never answers."""

    relation = frozenset[Effective]()

    def poll(self, _: float) -> Iterator[ReceivedUpdate | DeadLetter]:
        return iter(())


def play(held: list[Effective], code: int = 0) -> int:
    screen = Screen(as_json=True)
    return runner._play(WrittenPlay(*held), FinishedJob(code), screen, SETTINGS, keep=False)  # type: ignore[arg-type]


RIGHT, SURPLUS = Effective(ORDERS, "g", "c", "eu__a"), Effective(ORDERS, "g", "c", "eu__b")


@pytest.mark.parametrize(
    ("held", "code"), [([RIGHT], 0), ([], 1), ([RIGHT, SURPLUS], 1)], ids=["right", "missing", "surplus"]
)
def test_the_exit_code_tells_whether_the_result_is_right(held: list[Effective], code: int) -> None:
    """A job that does not end in order is an error."""
    assert play(held) == code
    with pytest.raises(ReexpandError, match=r"exit code 3"):
        play(held, code=3)


def test_a_job_that_never_answers_is_not_waited_for_for_ever() -> None:
    demo = runner.Play(SETTINGS, Screen(as_json=True), SilentFollower(), lambda: None)  # type: ignore[arg-type]
    demo._transcript.sent.extend(TRANSCRIPT.sent)
    assert not demo._watch(0.05, demo._settled)


def test_the_folder_is_empty_at_first_and_only_logs_stay(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for _ in range(2):
        with runner.demo_folder(home) as folder:
            assert list(folder.iterdir()) == []
            for part in ("kafka", "checkpoint", "spark"):
                (folder / part).mkdir()
            (folder / "kafka" / "broker.log").write_text("started")
            (folder / "job.log").write_text("ready")
        assert sorted(path.name for path in folder.rglob("*")) == ["broker.log", "job.log"]


def test_a_home_in_use_and_one_that_cannot_be_written_are_reported(tmp_path: Path) -> None:
    with (
        runner.demo_folder(tmp_path) as folder,
        pytest.raises(ReexpandError, match=r"Another demo is running in .*another --home"),
        runner.demo_folder(tmp_path),
    ):
        pass
    assert not folder.joinpath("kafka").exists()
    (tmp_path / "file").touch()
    with (
        pytest.raises(ReexpandError, match=r"cannot work in .*file/home"),
        runner.demo_folder(tmp_path / "file" / "home"),
    ):
        pass


def test_the_demo_itself_needs_no_spark() -> None:
    """Importing Spark takes seconds; only the job's process needs it."""
    program = "import sys, streaming.examples.demo, streaming.examples.screen; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
