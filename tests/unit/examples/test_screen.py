"""Output of the demo: on a terminal, piped, and as JSON."""

from __future__ import annotations

import io
import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from streaming.cli import main
from streaming.config import Settings
from streaming.examples.scenario import SCENES
from streaming.examples.screen import Screen
from streaming.examples.verdict import Coordinates, DeadLetter, ReceivedUpdate, Verdict
from streaming.oracle import Effective
from streaming.records.model import Stream
from streaming.records.updates import Cause, Op

WHO = Effective("orders", "audit", "sales-dashboard", "us__globex__invoice__issued")
UPDATES = [
    ReceivedUpdate(op, WHO, patterns, cause, 1_000, 1_340)
    for op, cause, patterns in itertools.product(Op, Cause, [(), ("eu__**",), ("*__*__order__*", "eu__**")])
]
LETTER = DeadLetter("not-json", "the value [/] is not JSON", Coordinates("in", 0, 7), 1_000)
VERDICT = Verdict(
    sent={"topics": 2}, updates={"ADD": 1, "REMOVE": 0}, dead_letters={}, latencies_ms=[340], cold=3, held=1,
    missing=[], surplus=[], dead_letters_missing=[], dead_letters_surplus=[],
)  # fmt: skip
WRONG = replace(VERDICT, missing=[WHO] * 15, surplus=[WHO])
SETTINGS = Settings.model_construct(bootstrap_servers="127.0.0.1:9092", checkpoint="checkpoint")
COLOUR = re.compile(r"\x1b\[[\d;]*(?:3[0-7]|9[0-7]|38|48)[\d;]*m")


def show_everything(screen: Screen) -> None:
    with screen:
        screen.downloading(1, 2, "a jar")
        screen.downloading(2, 2, "another jar")
        screen.phase("starting Kafka")
        screen.phase("the job answers", 37)
        for scene in SCENES:
            screen.scene(scene)
            for step in scene.steps:
                screen.sent(step)
        for update, cold in itertools.product(UPDATES, [True, False]):
            screen.update(update, cold=cold)
        screen.dead_letter(LETTER)
        screen.verdict(VERDICT)
        screen.verdict(WRONG)
        screen.kept(SETTINGS, "job.log")


def shown(*, terminal: bool) -> str:
    """Return the text of a report of each kind."""
    file = io.StringIO()
    show_everything(Screen(Console(file=file, force_terminal=terminal, width=100, highlight=False)))
    return file.getvalue()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


def test_piped_text_is_plain() -> None:
    """No escape sequence, no dependence on a width, no remains of a progress bar; one line for each thing, aligned.

    A wrong result is shown with its differences.
    """
    text = shown(terminal=False)
    assert text.isascii()
    assert set(text) - {"\n"} == {character for character in text if character.isprintable()}
    lines = text.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert sum("downloading" in line for line in lines) == 1
    assert sum(" s  > " in line for line in lines) == sum(len(scene.steps) for scene in SCENES)
    assert [line.strip() for line in lines if "passed:" in line] == [f"check              passed: {VERDICT.sentence}"]
    assert "not-json: the value [/] is not JSON  in[0]@7" in text
    updates = [line for line in lines if " s    + " in line or " s    - " in line]
    assert len(updates) == 2 * len(UPDATES)
    assert len({line.index(" by ") for line in updates}) == 1
    assert len({re.search(r"(lazy|eager):", line).start() for line in updates}) == 1  # type: ignore[union-attr]
    for part in ("+ sales-dashboard", "orders/us__globex__invoice__issued", "receiving everything", "0.34 s"):
        assert part in updates[0]
    assert "FAILED: the result differs from the batch oracle: 15 missing from the updates topic" in text
    assert "missing: sales-dashboard (audit) receives orders/us__globex__invoice__issued" in text
    assert "and 6 more" in text


def test_a_terminal_gets_colour_and_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless `NO_COLOR` is set."""
    text = shown(terminal=True)
    assert COLOUR.search(text)
    assert "37/37" in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert not COLOUR.search(shown(terminal=True))


@pytest.mark.parametrize("cause", Cause)
def test_text_and_json_agree_on_the_path(cause: Cause, capsys: pytest.CaptureFixture[str]) -> None:
    """Lazy: a topic is created, deleted or expired, or a quota has room again."""
    topics = {Cause.TOPIC_CREATED, Cause.TOPIC_DELETED, Cause.TOPIC_EXPIRED, Cause.QUOTA_FREED}
    path = "lazy" if cause in topics else "eager"
    update = replace(UPDATES[0], cause=cause)
    file = io.StringIO()
    Screen(Console(file=file)).update(update, cold=False)
    Screen(as_json=True).update(update, cold=False)
    assert f" {path}: " in file.getvalue()
    assert json.loads(capsys.readouterr().out)["path"] == path


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_everything(Screen(as_json=True))
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {record["type"] for record in records} == {
        "phase", "download", "scene", "sent", "update", "dead-letter", "summary", "kept",
    }  # fmt: skip
    assert [record["ok"] for record in records if record["type"] == "summary"] == [True, False]
    update = next(record for record in records if record["type"] == "update")
    assert (update["op"], update["path"], update["latencyMs"]) == ("ADD", "lazy", 340)


@pytest.mark.parametrize("is_on_the_path", [True, False])
def test_the_command_for_a_terminal_is_a_command(is_on_the_path: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - as the table says
    """A shell splits it as meant, the verb accepts it, and it sends a topic event."""
    monkeypatch.setattr("streaming.examples.screen.which", lambda name: name if is_on_the_path else None)
    file = io.StringIO()
    Screen(Console(file=file)).kept(SETTINGS, "job.log")
    shown = re.search(r"updates here:\n(.*?\n)Ctrl-C", file.getvalue(), re.DOTALL)
    assert shown
    split = subprocess.run(["sh", "-c", f"printf '%s\\n' {shown[1]}"], capture_output=True, text=True, check=True)
    words = split.stdout.splitlines()
    program = ["reexpand"] if is_on_the_path else [sys.executable, "-m", "reexpand"]
    assert words[: len(program)] == program
    sent: list[Any] = []
    monkeypatch.setattr("streaming.inspect.planning.send", lambda _, stream, record: sent.append((stream, record)))
    assert CliRunner().invoke(main, words[len(program) :]).exit_code == 0
    ((stream, record),) = sent
    assert (stream, record["parentTopic"], record["event"]) == (Stream.TOPICS, "orders", "CREATED")


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_gets_whole_words(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Continued lines are indented below the text."""
    monkeypatch.setattr("streaming.examples.screen.which", lambda name: name)
    file = io.StringIO()
    show_everything(Screen(Console(file=file, force_terminal=True, no_color=True, width=width, highlight=False)))
    lines = [re.sub(r"\x1b\[[\d;?]*[A-Za-z]|\r", "", line) for line in file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    lines = [line for line in lines if not re.search(r"\d+/37 +\d", line)]  # the progress bar
    updates = [number for number, line in enumerate(lines) if re.search(r" s    [+-] ", line)]
    assert len(updates) == 2 * len(UPDATES)
    for number in updates:
        assert re.match(r" {12}by .* [\d.]+ s( \(cold\))?$", lines[number + 1]), lines[number + 1]


def test_a_long_text_continues_below_its_beginning() -> None:
    file = io.StringIO()
    screen = Screen(Console(file=file, force_terminal=True, no_color=True, width=80, highlight=False))
    words = [f"word{number}" for number in range(40)]
    screen.dead_letter(replace(LETTER, message=" ".join(words)))
    lines = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.startswith(" " * 12) for line in lines[1:])
    assert [word for word in " ".join(lines).split() if word.startswith("word")] == words
