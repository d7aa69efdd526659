"""Commands on the pages: each one is valid, and run by a test, or listed with the reason why it is not."""

import re
import shlex
from collections.abc import Iterator
from itertools import combinations, takewhile
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from _pytest.mark.expression import Expression
from click.shell_completion import get_completion_class

from streaming.cli import main

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "deploy", "matcher", "streaming")
PAGES = [*sorted(ROOT.glob("*.md")), *(page for part in FOLDERS for page in sorted((ROOT / part).rglob("*.md")))]
PROGRAMS = {"docker", "eval", "export", "kcat", "kubectl", "make", "pip", "python", "reexpand", "spark-submit"}

RUN_BY = {
    "export": "support/terminals.py",
    "kcat": "integration/test_reading_updates.py",
    "make chaos": "integration/test_chaos.py",
    "make demo": "integration/test_demo.py",
    "pip install": "integration/test_installation.py",
    "python -": "integration/test_tutorials.py",
    "python dispatcher.py": "integration/test_tutorials.py",
    "python -m streaming.examples.dispatcher": "unit/examples/test_dispatcher.py",
    "python -m streaming.examples.on_register": "integration/test_watch_kafka.py",
    "reexpand advise": "integration/test_advise.py",
    "reexpand backup": "integration/test_backup.py",
    "reexpand clients": "support/inspecting.py",
    "reexpand cloudevents": "integration/test_cloud_events.py",
    "reexpand compact-inputs": "integration/test_rebuild.py",
    "reexpand console": "unit/console/test_server.py",
    "reexpand demo": "integration/test_demo.py",
    "reexpand dlq": "integration/test_dlq.py",
    "reexpand expand": "unit/cli/test_match.py",
    "reexpand explain": "support/inspecting.py",
    "reexpand groups": "support/inspecting.py",
    "reexpand jars": "unit/cli/test_cli.py",
    "reexpand local": "integration/test_tutorials.py",
    "reexpand match": "unit/cli/test_match.py",
    "reexpand plan": "support/inspecting.py",
    "reexpand quarantine": "unit/cli/test_quarantine_command.py",
    "reexpand rebuild": "integration/test_rebuild.py",
    "reexpand restore": "integration/test_backup.py",
    "reexpand run": "integration/test_tutorials.py",
    "reexpand schema": "unit/records/test_schemas.py",
    "reexpand send": "support/inspecting.py",
    "reexpand status": "unit/cli/test_status.py",
    "reexpand subscriptions": "support/inspecting.py",
    "reexpand tail": "support/inspecting.py",
    "reexpand top": "unit/cli/test_top.py",
    "reexpand topics": "integration/test_permissions.py",
    "reexpand validate": "unit/cli/test_match.py",
    "reexpand verify": "integration/test_verify.py",
    "reexpand watch-kafka": "integration/test_watch_kafka.py",
    "reexpand watch-rocketmq": "support/rocketmq_watcher.py",
}
"""Program and verb, and the test that runs them."""

WHOLE_PAGES = {
    f"docs/{page}.md": "integration/test_tutorials.py" for page in ("kafka-consumer", "own-kafka", "rocketmq")
}
"""Pages whose commands are a session, and the test that runs all of them literally."""

NOT_RUN = {
    "docker build": "needs a container engine; tests/containers builds the image where there is one",
    "docker compose": "needs a container engine; tests/containers runs it where there is one",
    "docker run": "needs a container engine",
    "eval": "a shell's own completion; test_shell_completion_offers_the_verbs asks for what it asks",
    "helm install": "needs a cluster; unit/deploy/test_kubernetes.py renders the chart",
    "kubectl apply": "needs a cluster; unit/deploy/test_kubernetes.py renders what is applied",
    "kubectl create": "needs a cluster",
    "kubectl rollout": "needs a cluster",
    "make bench": "hours",
    "make check": "this and `make test` are all tests but the long ones",
    "make lint": "what has to pass before a change lands",
    "make soak": "an hour",
    "make setup": "what comes before every test",
    "make test": "this",
    "spark-submit": "a program of Spark's full distribution, which PySpark's has in part",
}
"""Program and verb, and why no test runs them."""


MARKERS = ("main", "integration", "containers", "long")
"""Markers by which the targets choose their tests."""

_SHELLS_OWN = {"&", "&&", "|", "<", ">", ">>", "2>&1"}
"""Words behind which a command has ended for those who read it."""


class Shown(NamedTuple):
    """A command on a page."""

    page: str
    words: tuple[str, ...]

    @property
    def kind(self) -> str:
        """Program and verb, as the tables have them."""
        program, *rest = self.words
        if program == "python":
            return " ".join(self.words[: 3 if rest[0] == "-m" else 2])
        if program in ("eval", "export", "kcat", "spark-submit"):
            return program
        return f"{program} {rest[0]}"


def _blocks(text: str) -> Iterator[str]:
    yield from re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for block in re.findall(r"(?:^    .*\n?)+", prose, re.MULTILINE):
        yield re.sub(r"^ {4}", "", block, flags=re.MULTILINE)


def _commands(block: str) -> Iterator[tuple[str, ...]]:
    block = re.sub(r"<<'END'\n.*?^END$", "", block.replace("\\\n", " "), flags=re.DOTALL | re.MULTILINE)
    for line in block.splitlines():
        if line.partition(" ")[0] in PROGRAMS:
            words = shlex.split(line.replace("<<<", ""), comments=True)
            yield tuple(takewhile(lambda word: word not in _SHELLS_OWN, words))


COMMANDS = [
    Shown(str(page.relative_to(ROOT)), words)
    for page in PAGES
    for block in _blocks(page.read_text(encoding="utf-8"))
    for words in _commands(block)
]
OWN = [shown for shown in COMMANDS if shown.words[0] == "reexpand"]


def _name(shown: Shown) -> str:
    return f"{shown.page}: {' '.join(shown.words)[:60]}"


def test_the_pages_show_commands() -> None:
    assert len(COMMANDS) >= 25
    assert {shown.words[0] for shown in COMMANDS} <= PROGRAMS


@pytest.mark.parametrize("shown", COMMANDS, ids=_name)
def test_each_command_is_run_or_listed(shown: Shown) -> None:
    """A new one needs a row in one of the tables above."""
    if shown.page not in WHOLE_PAGES:
        assert (shown.kind in RUN_BY) is not (shown.kind in NOT_RUN)


@pytest.mark.parametrize("page", [page for page in PAGES if str(page.relative_to(ROOT)) in WHOLE_PAGES])
def test_the_test_that_runs_a_whole_page_reads_it(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    assert name.rpartition("/")[2] in (ROOT / "tests" / WHOLE_PAGES[name]).read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", RUN_BY)
def test_the_test_that_runs_a_command_exists(kind: str) -> None:
    """And speaks of the verb."""
    text = (ROOT / "tests" / RUN_BY[kind]).read_text(encoding="utf-8")
    assert kind.rsplit(maxsplit=1)[-1].rpartition(".")[2] in text or "PAGE" in text


def test_each_verb_is_run_or_listed() -> None:
    assert {f"reexpand {verb}" for verb in main.commands} - RUN_BY.keys() - NOT_RUN.keys() == set()


@pytest.mark.parametrize("shown", OWN, ids=_name)
def test_each_option_exists(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is given as the verb wants it; files and folders need not be there."""
    command: click.Command = main
    words = list(shown.words[1:])
    for kind in (click.Path, click.File):
        monkeypatch.setattr(kind, "convert", lambda _self, value, *_: value)
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    # A command remembers the options for its help, which it has of its parent.
    parent = click.Context(main, **main.context_settings)
    with command.make_context(shown.words[1], [word.replace("PORT", "9092") for word in words], parent=parent) as made:
        assert made.params


@pytest.mark.parametrize("shown", [each for each in COMMANDS if each.words[0] == "make"], ids=_name)
def test_each_target_exists(shown: Shown) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in (word for word in shown.words[1:] if "=" not in word):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("marks", [marks for size in range(5) for marks in combinations(MARKERS, size)], ids=str)
def test_each_test_is_in_make_test_or_in_make_check_unless_it_is_long(marks: tuple[str, ...]) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    def is_marked(name: str, /, **_: object) -> bool:
        return name in marks

    def runs(target: str) -> bool:
        (expression,) = re.findall(rf"^{target}:.*\n\t\.venv/bin/pytest .*-m '(.*)'$", makefile, re.MULTILINE)
        return Expression.compile(expression).evaluate(is_marked)

    assert runs("test") + runs("check") == ("main" in marks or "long" not in marks)


def test_shell_completion_offers_the_verbs() -> None:
    completion = get_completion_class("bash")
    assert completion
    found = completion(main, {}, "reexpand", "_REEXPAND_COMPLETE").get_completions([], "watch-")
    assert {item.value for item in found} == {verb for verb in main.commands if verb.startswith("watch-")}
