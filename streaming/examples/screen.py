"""Output of the demo: text, with colour and a progress bar on a terminal, or one JSON object per line."""

from __future__ import annotations

import json
import sys
import time
from typing import IO, TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from streaming.examples.scenario import ORDERS
from streaming.printable import printable
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
    "lazy: a topic changed, and was matched with patterns. eager: a subscription changed, and was matched with topics.",
    "The time at the end of a line is the latency from the event in Kafka to the update.",
)
_CLIENT_WIDTH = 15
_TOPIC_WIDTH = 34
_PATTERN_WIDTH = 25
_CAUSE_WIDTH = 23
_DIFFERENCES_SHOWN = 10


class TextScreen:
    """Output as text.

    Args:
        console: destination; standard output by default. Colour and progress bar require a terminal, and `NO_COLOR` is
            respected.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, emoji=False)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None
        self._downloading = False
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        for mark, style, meaning in _LEGEND:
            self._print(Text.assemble("  ", (mark, style), f"  {meaning}"))
        for note in _NOTES:
            self._print(Text(f"  {note}", "dim"))
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def phase(self, what: str, total: int | None = None, done: int = 0) -> None:
        """Print a line, and restart the progress bar."""
        self._restart_bar(what, total, done)
        self._line(Text(what, "dim"))

    def downloading(self, done: int, total: int, what: str) -> None:
        """Print a line at the first jar, and move the progress bar."""
        if not self._downloading:
            self._downloading = True
            self._line(Text("downloading the jars of Kafka and Spark, once", "dim"))
        self._restart_bar(f"downloading {what}", total, done)

    def scene(self, scene: Scene) -> None:
        """Print the title."""
        self._print(Text())
        self._print(Text(scene.title, "bold"))

    def sent(self, step: Step) -> None:
        """Print the description of the event."""
        self._line(Text.assemble((">", "cyan"), f" {step.says}"))
        if self._task is not None:
            self._progress.advance(self._task)
            task = self._progress.tasks[0]
            if task.total:
                self._progress.update(self._task, count=f"{task.completed:.0f}/{task.total:.0f}")

    def update(self, update: ReceivedUpdate, *, cold: bool) -> None:
        """Print client, topic, patterns, cause and latency."""
        mark, style = ("+", "green") if update.op is Op.ADD else ("-", "red")
        topic = f"{update.row.parent}/{update.row.lite_topic}"
        if not update.patterns:
            by = "by receiving everything"
        elif update.patterns == (update.row.lite_topic,):
            by = "by name"
        else:
            by = f"by {', '.join(update.patterns)}"
        cause = f"{update.path}: {update.cause.lower().replace('_', ' ')}"
        self._line(
            Text.assemble(
                "  ",
                (f"{mark} {update.row.client_id:{_CLIENT_WIDTH}} {topic:{_TOPIC_WIDTH}}", style),
                f" {by:{_PATTERN_WIDTH}} {cause:{_CAUSE_WIDTH}} ",
                (f"{update.latency_ms / 1000:5.2f} s{' (cold)' if cold else ''}", "dim" if cold else "bold"),
            )
        )

    def dead_letter(self, letter: DeadLetter) -> None:
        """Print reason, message and source."""
        topic, partition, offset = letter.source
        place = (f"  {topic}[{partition}]@{offset}", "dim")
        self._line(Text.assemble("  ", (f"! {letter.reason}", "yellow"), f": {letter.message}", place))

    def verdict(self, verdict: Verdict) -> None:
        """Print a table, and any differences."""
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
        """Print the address, and a command that sends an event."""
        self._print(Text())
        self._print(Text(f"Kafka listens on {settings.bootstrap_servers}. The log of the job is {log_file}."))
        self._print(Text("Send an event from another terminal to see its updates here:"))
        self._print(Text(f"  {by_hand(settings)}", "cyan"))
        self._print(Text("Ctrl-C stops everything."))

    def _restart_bar(self, what: str, total: int | None, done: int) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
        count = f"{done}/{total}" if total else ""
        self._task = self._progress.add_task(what, total=total, completed=done, count=count)

    def _line(self, text: Text) -> None:
        self._print(Text.assemble((f"{time.monotonic() - self._started:5.1f} s  ", "dim"), text))

    def _print(self, text: Text) -> None:
        shown = text if text.plain.isprintable() else Text(printable(text.plain))
        self._console.print(shown, soft_wrap=True)


class JsonScreen:
    """Output as one JSON object per line, with its `type` and, in `at`, the seconds since the start.

    Args:
        stream: destination; standard output by default.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = stream
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def phase(self, what: str, total: int | None = None, done: int = 0) -> None:
        """Write a `phase` object."""
        self._write("phase", what=what, total=total, done=done)

    def downloading(self, done: int, total: int, what: str) -> None:
        """Write a `download` object."""
        self._write("download", what=what, total=total, done=done)

    def scene(self, scene: Scene) -> None:
        """Write a `scene` object."""
        self._write("scene", title=scene.title)

    def sent(self, step: Step) -> None:
        """Write a `sent` object. The record is text, because some records are not JSON."""
        self._write("sent", stream=step.stream, says=step.says, key=step.key, value=step.value.decode())

    def update(self, update: ReceivedUpdate, *, cold: bool) -> None:
        """Write an `update` object."""
        self._write(
            "update",
            op=update.op,
            parentTopic=update.row.parent,
            group=update.row.group,
            clientId=update.row.client_id,
            liteTopic=update.row.lite_topic,
            patterns=update.patterns,
            cause=update.cause,
            path=update.path,
            latencyMs=update.latency_ms,
            cold=cold,
        )

    def dead_letter(self, letter: DeadLetter) -> None:
        """Write a `dead-letter` object."""
        self._write("dead-letter", reason=letter.reason, message=letter.message, source=letter.source._asdict())

    def verdict(self, verdict: Verdict) -> None:
        """Write a `summary` object."""
        self._write(
            "summary",
            ok=verdict.ok,
            check=verdict.sentence,
            sent=verdict.sent,
            updates=verdict.updates,
            deadLetters=verdict.dead_letters,
            latencyMs={"p50": verdict.percentile_ms(50), "p95": verdict.percentile_ms(95)},
            updatesMeasured=len(verdict.latencies_ms),
            updatesCold=verdict.cold,
            held=verdict.held,
            missing=[pair._asdict() for pair in verdict.missing],
            surplus=[pair._asdict() for pair in verdict.surplus],
            deadLettersMissing=[{**place._asdict(), "reason": why} for place, why in verdict.dead_letters_missing],
            deadLettersSurplus=[{**place._asdict(), "reason": why} for place, why in verdict.dead_letters_surplus],
        )

    def kept(self, settings: Settings, log_file: str) -> None:
        """Write a `kept` object."""
        self._write("kept", bootstrapServers=settings.bootstrap_servers, log=log_file, sendByHand=by_hand(settings))

    def _write(self, kind: str, **fields: Any) -> None:
        record = {"type": kind, "at": round(time.monotonic() - self._started, 3), **fields}
        print(json.dumps(record), file=self._stream, flush=True)


Screen = TextScreen | JsonScreen
"""Destination of the demo's output, as a context manager."""


def by_hand(settings: Settings) -> str:
    """Return a shell command that sends an event, using only installed packages."""
    event = json.dumps({"event": "CREATED", "parentTopic": ORDERS, "liteTopic": "eu__globex__order__paid"})
    return (
        f"{sys.executable} -c 'from confluent_kafka import Producer; "
        f'p = Producer({{"bootstrap.servers": "{settings.bootstrap_servers}"}}); '
        f'p.produce("{settings.topic_events}", """{event}""", "{ORDERS}"); p.flush()\''
    )


def _rows(verdict: Verdict) -> list[tuple[str, Text]]:
    p50, p95 = verdict.percentile_ms(50), verdict.percentile_ms(95)
    latency = "not measured" if p50 is None or p95 is None else f"{p50 / 1000:.2f} s / {p95 / 1000:.2f} s"
    measured = (
        f"event to update, {len(verdict.latencies_ms)} updates, without the {verdict.cold} of the first, cold "
        "micro-batch"
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
