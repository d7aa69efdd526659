"""Output of the demo: text, with colour and a progress bar on a terminal, or one JSON object per line."""

from __future__ import annotations

import json
import sys
import time
from shlex import quote
from shutil import which
from typing import TYPE_CHECKING, Any, Self

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from streaming.examples.scenario import ORDERS
from streaming.printable import counted, printable
from streaming.records.updates import Op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.config import Settings
    from streaming.examples.scenario import Scene, Step
    from streaming.examples.verdict import DeadLetter, ReceivedUpdate, Verdict

_LEGEND = (
    (">", "cyan", "an event is sent to Kafka"),
    ("+", "green", "update: a client receives a topic, by these patterns"),
    ("-", "red", "update: a client no longer receives a topic"),
    ("!", "yellow", "dead letter: the event could not be applied, with the reason"),
)
_NOTES = (
    "lazy: a topic changed, and was matched with patterns",
    "eager: a subscription changed, and was matched with topics",
    "seconds at the end: latency from the event in Kafka to the update",
)
_CLIENT_WIDTH = 15
_TOPIC_WIDTH = 34
_PATTERN_WIDTH = 25
_CAUSE_WIDTH = 23
_DIFFERENCES_SHOWN = 10
_INDENT = 12
"""Columns before the text of an update, and before the following lines of a text that is too long for a terminal."""

_UPDATE_WIDTH = 118
"""Columns of a line with an update; narrower terminals get two lines."""

_COMMAND_WIDTH = 76
"""Characters of the longest command in one line."""


class Screen:
    """Destination of the demo's output, as a context manager.

    JSON objects have a `type` and, in `at`, the seconds since the start.

    Args:
        console: destination of text; standard output by default. Colour and progress bar require a terminal, and
            `NO_COLOR` is respected.
    """

    def __init__(self, console: Console | None = None, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._console = console or Console(highlight=False, emoji=False)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=as_json or not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._downloading = False
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        if not self._as_json:
            for mark, style, meaning in _LEGEND:
                self._print(Text.assemble("  ", (mark, style), f"  {meaning}"))
            for note in _NOTES:
                self._print(Text(f"  {note}", "dim"))
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def phase(self, what: str, total: int | None = None, done: int = 0) -> None:
        """Show a step of the demo, and restart the progress bar."""
        if not self.write("phase", what=what, total=total, done=done):
            self._restart_bar(what, total, done)
            self.line(Text(what, "dim"))

    def downloading(self, done: int, total: int, what: str) -> None:
        """Show the progress of downloads. As text, this is a line at the first jar, and the progress bar."""
        if self.write("download", what=what, total=total, done=done):
            return
        if not self._downloading:
            self._downloading = True
            self.line(Text("downloading the jars of Kafka and Spark, once", "dim"))
        self._restart_bar(f"downloading {what}", total, done)

    def scene(self, scene: Scene) -> None:
        """Show the title of a scene."""
        if not self.write("scene", title=scene.title):
            self._print(Text())
            self._print(Text(scene.title, "bold"))

    def sent(self, step: Step) -> None:
        """Show an event. In JSON, the record is text, because some records are not JSON."""
        if self.write("sent", stream=step.stream, says=step.says, key=step.key, value=step.value.decode()):
            return
        self.line(Text.assemble((">", "cyan"), f" {step.says}"))
        if self._task is not None:
            self._progress.advance(self._task)
            task = self._progress.tasks[0]
            if task.total:
                self._progress.update(self._task, count=f"{task.completed:.0f}/{task.total:.0f}")

    def update(self, update: ReceivedUpdate, *, cold: bool) -> None:
        """Show an update: client, topic, patterns, cause and latency."""
        row, path, latency = update.row, update.path, update.latency_ms
        if self.write(
            "update", op=update.op, parentTopic=row.parent, group=row.group, clientId=row.client_id,
            liteTopic=row.lite_topic, patterns=update.patterns, cause=update.cause, path=path, latencyMs=latency,
            cold=cold,
        ):  # fmt: skip
            return
        mark, style = ("+", "green") if update.op is Op.ADD else ("-", "red")
        topic = f"{row.parent}/{row.lite_topic}"
        if not update.patterns:
            by = "by receiving everything"
        elif update.patterns == (row.lite_topic,):
            by = "by name"
        else:
            by = f"by {', '.join(update.patterns)}"
        cause = f"{path}: {update.cause.lower().replace('_', ' ')}"
        what = Text.assemble("  ", (f"{mark} {row.client_id:{_CLIENT_WIDTH}} {topic:{_TOPIC_WIDTH}}", style))
        why = Text.assemble(
            f"{by:{_PATTERN_WIDTH}} {cause:{_CAUSE_WIDTH}} ",
            (f"{latency / 1000:5.2f} s{' (cold)' if cold else ''}", "dim" if cold else "bold"),
        )
        if self._console.is_terminal and self._console.width < _UPDATE_WIDTH:
            what.rstrip()
            self.line(what)
            self._print(Text.assemble(" " * _INDENT, why))
        else:
            self.line(Text.assemble(what, " ", why))

    def dead_letter(self, letter: DeadLetter) -> None:
        """Show a dead letter: reason, message and source."""
        if self.write("dead-letter", reason=letter.reason, message=letter.message, source=letter.source._asdict()):
            return
        topic, partition, offset = letter.source
        place = (f"  {topic}[{partition}]@{offset}", "dim")
        self.line(Text.assemble("  ", (f"! {letter.reason}", "yellow"), f": {letter.message}", place))

    def verdict(self, verdict: Verdict) -> None:
        """Show the outcome: a table, and any differences."""
        p50, p95 = verdict.percentile_ms(50), verdict.percentile_ms(95)
        if self.write(
            "summary",
            ok=verdict.ok,
            check=verdict.sentence,
            sent=verdict.sent,
            updates=verdict.updates,
            deadLetters=verdict.dead_letters,
            latencyMs={"p50": p50, "p95": p95},
            updatesMeasured=len(verdict.latencies_ms),
            updatesCold=verdict.cold,
            held=verdict.held,
            missing=[pair._asdict() for pair in verdict.missing],
            surplus=[pair._asdict() for pair in verdict.surplus],
            deadLettersMissing=[{**place._asdict(), "reason": why} for place, why in verdict.dead_letters_missing],
            deadLettersSurplus=[{**place._asdict(), "reason": why} for place, why in verdict.dead_letters_surplus],
        ):
            return
        self._progress.stop()
        self._print(Text())
        self._print(Text("Summary", "bold"))
        table = Table.grid(padding=(0, 2))
        for name, value in _rows(verdict):
            if self._console.is_terminal:
                table.add_row(Text(f"  {name}", "dim"), value)
            else:
                self._print(Text.assemble(f"  {name:17}  ", value))
        if table.row_count:
            self._console.print(table)
        for line in verdict.differences[:_DIFFERENCES_SHOWN]:
            self._print(Text(f"  {line}", "red"))
        if len(verdict.differences) > _DIFFERENCES_SHOWN:
            self._print(Text(f"  and {len(verdict.differences) - _DIFFERENCES_SHOWN} more", "red"))

    def kept(self, settings: Settings, log_file: str) -> None:
        """Show the address, and a command that sends an event."""
        address, command = settings.bootstrap_servers, by_hand(settings)
        if self.write("kept", bootstrapServers=address, log=log_file, sendByHand=command):
            return
        self._print(Text())
        self._print(Text(f"Kafka listens on {address}. The log of the job is {log_file}."))
        self._print(Text("Send an event from another terminal to see its updates here:"))
        for option in (" send topic ", " --bootstrap-servers ") if len(command) > _COMMAND_WIDTH else ():
            command = command.replace(option, f" \\\n   {option}")
        self._console.print(Text(f"  {command}", "cyan"), soft_wrap=True)
        self._print(Text("Ctrl-C stops everything."))

    def _restart_bar(self, what: str, total: int | None, done: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        count = f"{done}/{total}" if total else ""
        self._task = self._progress.add_task(what, total=total, completed=done, count=count)

    def write(self, kind: str, **fields: Any) -> bool:
        """Write a JSON object; return False if the output is text."""
        if self._as_json:
            click.echo(json.dumps({"type": kind, "at": round(time.monotonic() - self._started, 3), **fields}))
        return self._as_json

    def line(self, text: Text) -> None:
        """Print a line with the seconds since the start."""
        self._print(Text.assemble((f"{time.monotonic() - self._started:5.1f} s  ", "dim"), text))

    def _print(self, text: Text) -> None:
        shown = text if text.plain.isprintable() else Text(printable(text.plain))
        lines = [shown]
        if self._console.is_terminal and shown.cell_len > self._console.width:
            first, *others = shown.wrap(self._console, self._console.width - _INDENT)
            lines = [first, *(Text.assemble(" " * _INDENT, each) for each in others)]
        for line in lines:
            self._console.print(line, soft_wrap=True)


def by_hand(settings: Settings) -> str:
    """Return a shell command that sends an event."""
    program = "reexpand" if which("reexpand") else f"{quote(sys.executable)} -m reexpand"
    event = f"send topic eu__globex__order__paid --parent {ORDERS}"
    return f"{program} {event} --bootstrap-servers {settings.bootstrap_servers}"


def _rows(verdict: Verdict) -> list[tuple[str, Text]]:
    p50, p95 = verdict.percentile_ms(50), verdict.percentile_ms(95)
    latency = "not measured" if p50 is None or p95 is None else f"{p50 / 1000:.2f} s / {p95 / 1000:.2f} s"
    measured = (
        f"event to update, {counted(len(verdict.latencies_ms), 'update')}, "
        f"without the {verdict.cold} of the first, cold micro-batch"
    )
    passed, style = ("passed", "green") if verdict.ok else ("FAILED", "bold red")
    return [
        ("events sent", _counts(verdict.sent)),
        ("updates", _counts(verdict.updates)),
        ("dead letters", _counts(verdict.dead_letters)),
        ("latency p50 / p95", Text(f"{latency} ({measured})")),
        ("check", Text.assemble((passed, style), f": {verdict.sentence}")),
    ]


def _counts(counts: Mapping[str, int]) -> Text:
    parts = ", ".join(f"{count} {name}" for name, count in counts.items())
    return Text(f"{sum(counts.values())} ({parts})" if parts else "0")
