"""`reexpand dlq`: dead letters, and their replay."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from streaming.cli import printing
from streaming.cli.root import connection_options, settings
from streaming.errors import LetterUnknown

if TYPE_CHECKING:
    from streaming.config import Settings
    from streaming.kafka.letters import Letter
    from streaming.kafka.reader import TopicReader

F = TypeVar("F", bound=Callable[..., Any])

_REASON_HELP = "Only dead letters with this reason; repeatable."
_TOPIC_HELP = "Only dead letters of entries from this Kafka topic; repeatable."
_MESSAGE_CHARACTERS = 100
"""Maximum number of characters of a message in a list."""


class _Dlq(NamedTuple):
    """Reader of a job's dead letters."""

    settings: "Settings"
    options: dict[str, str]
    reader: "TopicReader"

    def letters(
        self, ids: tuple[str, ...] = (), reasons: tuple[str, ...] = (), topics: tuple[str, ...] = ()
    ) -> list["Letter"]:
        from streaming.kafka import letters

        wanted = [letters.LetterId.of(text) for text in ids]
        chosen = letters.LetterFilter(wanted, reasons, topics)
        found = letters.read(self.reader, self.settings.dead_letters, chosen)
        missing = set(wanted) - {letter.id for letter in found}
        if missing:
            raise LetterUnknown(
                f"the topic {self.settings.dead_letters} has no dead letter {', '.join(sorted(map(str, missing)))}, "
                "or its entry was already replayed; `reexpand dlq list` shows all dead letters"
            )
        return found


def _common_options(command: F) -> F:
    for option in (
        click.option(
            "--dead-letters", default=None, help="Kafka topic of the dead letters. [default: lite-dead-letters]"
        ),
        connection_options,
    ):
        command = option(command)
    return command


def _filter_options(command: F) -> F:
    command = click.option("--topic", "topics", multiple=True, metavar="NAME", help=_TOPIC_HELP)(command)
    return click.option("--reason", "reasons", multiple=True, metavar="REASON", help=_REASON_HELP)(command)


@contextmanager
def _open(dead_letters: str | None) -> Iterator[_Dlq]:
    from streaming.kafka.options import for_librdkafka
    from streaming.kafka.reader import TopicReader

    loaded = settings(dead_letters=dead_letters)
    options = for_librdkafka(loaded)
    with TopicReader(loaded.bootstrap_servers, options) as reader:
        yield _Dlq(loaded, options, reader)


@click.group()
def dlq() -> None:
    """Show dead letters, and replay their entries.

    A dead letter is an entry that could not be applied. Its id is the position of the entry in Kafka, such as
    lite-topic-events[0]@12; ...@12#3 is the fourth request of a record.

    Exit code 0, 1 if Kafka cannot be read or written or a dead letter does not exist, 2 if an option is invalid.

    \b
    Example:
      reexpand dlq list --bootstrap-servers broker:9092 --reason quota-exceeded
      reexpand dlq show --bootstrap-servers broker:9092 'lite-topic-events[0]@12'
      reexpand dlq replay --bootstrap-servers broker:9092 --reason quota-exceeded --dry-run
    """


@dlq.command("list")
@_filter_options
@click.option("--json", "as_json", is_flag=True, help="Print each dead letter as JSON, one per line.")
@_common_options
def list_letters(
    *,
    dead_letters: str | None,
    reasons: tuple[str, ...],
    topics: tuple[str, ...],
    as_json: bool,
) -> None:
    """List dead letters in the order of writing, and count them by reason.

    Dead letters with replayed entries are omitted.

    \b
    Example:
      reexpand dlq list --bootstrap-servers broker:9092 --topic lite-group-events
    """
    from streaming.kafka import letters

    with _open(dead_letters) as opened:
        found = opened.letters(reasons=reasons, topics=topics)
    for letter in found:
        if as_json:
            printing.json_line(_as_json(letter))
        else:
            message = str(letter.value.get("message"))
            shown = message if len(message) <= _MESSAGE_CHARACTERS else f"{message[:_MESSAGE_CHARACTERS]}..."
            printing.line(f"{letter.id}  {letter.reason}  {shown}")
    if not as_json:
        total = ", ".join(f"{count:,} {reason}" for reason, count in letters.counts(found).items())
        printing.line(f"{len(found):,} dead letters{': ' if total else ''}{total}", err=True)


@dlq.command()
@click.argument("letter_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print the dead letter as JSON.")
@_common_options
def show(
    *,
    letter_id: str,
    dead_letters: str | None,
    as_json: bool,
) -> None:
    """Show a dead letter with its entry.

    \b
    Example:
      reexpand dlq show --bootstrap-servers broker:9092 'lite-subscription-events[2]@7#1'
    """
    with _open(dead_letters) as opened:
        (letter,) = opened.letters((letter_id,))
    if as_json:
        printing.json_line(_as_json(letter))
        return
    value = letter.value
    cut = f", truncated ({value['originalEncoding']})" if value.get("truncated") else ""
    printing.line(f"id       {letter.id}")
    printing.line(f"reason   {letter.reason}")
    printing.line(f"message  {value.get('message')}")
    click.echo(f"entry    {value.get('originalBytes'):,} bytes{cut}")
    printing.line(value.get("original") or "")


@dlq.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_filter_options
@click.option("--all", "everything", is_flag=True, help="Replay the entries of all dead letters.")
@click.option("--dry-run", is_flag=True, help="Print the entries that would be written, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result for each dead letter as JSON, one per line.")
@_common_options
@click.pass_context
def replay(
    ctx: click.Context,
    *,
    ids: tuple[str, ...],
    dead_letters: str | None,
    reasons: tuple[str, ...],
    topics: tuple[str, ...],
    everything: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the entries of dead letters to their input topics again.

    Use it after fixing the cause: bind a group to its parent, raise a quota or limit, or install a kind of selector.
    An entry that is invalid itself is rejected again. A replayed entry is a new record with the current time, after all
    records that were sent in the meantime.

    A replayed dead letter is done: it is not listed or replayed again.

    \b
    Example:
      reexpand dlq replay --bootstrap-servers broker:9092 --reason group-bound-elsewhere
    """
    from streaming.operations.dlq import replay as way_back

    if not (ids or reasons or topics or everything):
        raise click.UsageError("select dead letters by id, --reason, --topic, or --all")
    with _open(dead_letters) as opened:
        entries = list(way_back.originals(opened.reader, opened.letters(ids, reasons, topics)))
        ready = [entry for entry in entries if isinstance(entry, way_back.Original)]
        lost = [entry for entry in entries if isinstance(entry, way_back.Lost)]
        if ready and not dry_run:
            job = opened.settings
            way_back.write(job.bootstrap_servers, opened.options, job.dead_letters, ready)
    done = "would be written" if dry_run else "written"
    for letter, problem in [*((entry.letter, None) for entry in ready), *lost]:
        if as_json:
            click.echo(json.dumps({"id": str(letter.id), "written": not (dry_run or problem), "problem": problem}))
        else:
            printing.line(f"{letter.id}  {letter.reason}  {problem or done}")
    if not as_json:
        click.echo(f"{len(ready):,} entries {done}, {len(lost):,} cannot be", err=True)
    if lost:
        ctx.exit(1)


def _as_json(letter: "Letter") -> str:
    return json.dumps({"id": str(letter.id), **letter.value}, ensure_ascii=False)
