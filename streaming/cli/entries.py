"""`reexpand dlq` and `quarantine`: dead letters and their replay, and entries that the job skips."""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from streaming.cli import output, root
from streaming.cli.root import checkpoint_option, combined, connection_options, json_option, main
from streaming.errors import LetterUnknown
from streaming.kafka.facts import EntryPlace
from streaming.printable import counted, printable

if TYPE_CHECKING:
    from streaming.config import Settings
    from streaming.kafka.letters import Letter
    from streaming.kafka.reader import TopicReader
    from streaming.operations.quarantine import HeldCheckpoint
    from streaming.worker.quarantine import Decision

_MESSAGE_CHARACTERS = 100
"""Maximum number of characters of a message in a list."""


class _ReasonType(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """Choice of the reasons of dead letters, which are imported when they are needed."""

    name = "reason"

    @cached_property
    def _choice(self) -> "click.Choice[str]":
        from streaming.records.model import Reason

        return click.Choice([str(reason) for reason in Reason])

    def get_metavar(self, *args: Any, **options: Any) -> str | None:
        """Return the reasons, for the help."""
        return self._choice.get_metavar(*args, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return a reason, or report an unknown one with the known ones."""
        return self._choice.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete a reason."""
        return self._choice.shell_complete(ctx, param, incomplete)


@contextmanager
def _letters(
    dead_letters: str | None, ids: Iterable[str] = (), reasons: Collection[str] = (), topics: Collection[str] = ()
) -> Iterator[tuple["Settings", "TopicReader", list["Letter"]]]:
    """Read the chosen dead letters; yield settings and reader as well."""
    from streaming.kafka import letters
    from streaming.kafka.options import for_librdkafka
    from streaming.kafka.reader import TopicReader

    settings = root.settings(dead_letters=dead_letters)
    with TopicReader(settings.bootstrap_servers, for_librdkafka(settings)) as reader:
        wanted = [EntryPlace.of(text) for text in ids]
        found = letters.read(reader, settings.dead_letters, letters.LetterFilter(wanted, reasons, topics))
        missing = set(wanted) - {letter.id for letter in found}
        if missing:
            raise LetterUnknown(
                f"the topic {settings.dead_letters} has no dead letter {', '.join(sorted(map(str, missing)))}, "
                "or its entry was already replayed; `reexpand dlq list` shows all dead letters"
            )
        yield settings, reader, found


_letters_options = combined(
    connection_options,
    click.option("--dead-letters", help="Kafka topic of the dead letters. [default: lite-dead-letters]"),
)
_filter_options = combined(
    click.option(
        "--reason", "reasons", multiple=True, type=_ReasonType(), help="Only dead letters with this reason; repeatable."
    ),
    click.option(
        "--topic", "topics", multiple=True, metavar="NAME",
        help="Only dead letters of entries from this Kafka topic; repeatable.",
    ),
)  # fmt: skip


@main.group()
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
@json_option("Print each dead letter as JSON, one per line.")
@_letters_options
def list_letters(*, dead_letters: str | None, reasons: tuple[str, ...], topics: tuple[str, ...], as_json: bool) -> None:
    """List dead letters in the order of writing, and count them by reason.

    Dead letters with replayed entries are omitted.

    \b
    Example:
      reexpand dlq list --bootstrap-servers broker:9092 --topic lite-group-events
    """
    from streaming.kafka import letters

    with _letters(dead_letters, (), reasons, topics) as (_, _, found):
        total = ", ".join(f"{count:,} {reason}" for reason, count in letters.counts(found).items())
    for letter in found:
        if as_json:
            output.json_line({"id": str(letter.id), **letter.value})
        else:
            message = str(letter.value.get("message"))
            shown = message if len(message) <= _MESSAGE_CHARACTERS else f"{message[:_MESSAGE_CHARACTERS]}..."
            output.line(f"{letter.id}  {letter.reason}  {shown}")
    if not as_json:
        output.line(f"{counted(len(found), 'dead letter')}{': ' if total else ''}{total}", err=True)


@dlq.command()
@click.argument("letter_id", metavar="ID")
@json_option("Print the dead letter as JSON.")
@_letters_options
def show(*, letter_id: str, dead_letters: str | None, as_json: bool) -> None:
    """Show a dead letter with its entry.

    \b
    Example:
      reexpand dlq show --bootstrap-servers broker:9092 'lite-subscription-events[2]@7#1'
    """
    with _letters(dead_letters, (letter_id,)) as (_, _, (letter,)):
        value = letter.value
    if as_json:
        output.json_line({"id": str(letter.id), **value})
        return
    cut = f", truncated ({value['originalEncoding']})" if value.get("truncated") else ""
    output.line(f"id       {letter.id}")
    output.line(f"reason   {letter.reason}")
    output.line(f"message  {value.get('message')}")
    click.echo(f"entry    {counted(value.get('originalBytes') or 0, 'byte')}{cut}")
    output.line(value.get("original") or "")


@dlq.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@_filter_options
@click.option("--all", "everything", is_flag=True, help="Replay the entries of all dead letters.")
@click.option("--dry-run", is_flag=True, help="Print the entries that would be written, and write nothing.")
@json_option("Print the result for each dead letter as JSON, one per line.")
@_letters_options
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
    from streaming.kafka.options import for_librdkafka
    from streaming.operations import dlq as way_back

    if not (ids or reasons or topics or everything):
        raise click.UsageError("select dead letters by id, --reason, --topic, or --all")
    with _letters(dead_letters, ids, reasons, topics) as (job, reader, found):
        entries = list(way_back.originals(reader, found))
        ready = [entry for entry in entries if isinstance(entry, way_back.Original)]
        lost = [entry for entry in entries if isinstance(entry, way_back.Lost)]
        if ready and not dry_run:
            way_back.write(job.bootstrap_servers, for_librdkafka(job), job.dead_letters, ready)
    done = "would be written" if dry_run else "written"
    for letter, problem in [*((entry.letter, None) for entry in ready), *lost]:
        record = {"id": str(letter.id), "written": not (dry_run or problem), "problem": problem}
        output.result(record, printable(f"{letter.id}  {letter.reason}  {problem or done}"), as_json=as_json)
    if not as_json:
        click.echo(f"{counted(len(ready), 'entry', 'entries')} {done}, {len(lost):,} cannot be", err=True)
    if lost:
        ctx.exit(1)


@main.group()
def quarantine() -> None:
    """Show and change the entries that the job skips.

    The job skips an entry that has killed or hung two Python workers, and writes a dead letter with the reason
    quarantined. You can do the same manually before the job reads the entry, or while its micro-batch cannot be
    committed. Entries have the same ids as in `reexpand dlq`: lite-topic-events[0]@12; ...@12#3 is the fourth request
    of a record.

    Exit code 0; 1 if Kafka does not answer; 2 if the entry is already applied, the checkpoint cannot be read, a driver
    uses it, or an option is invalid. Nothing is changed in this case.

    \b
    Example:
      reexpand quarantine list --checkpoint /var/lib/reexpand
    """


_decision_json_option = json_option("Print each decision as JSON, one per line.")
_change_options = combined(
    checkpoint_option,
    click.option("--driver-has-ended", is_flag=True, help="Do not check in Kafka for a driver of the checkpoint."),
    _decision_json_option,
    connection_options,
)


@quarantine.command("list")
@checkpoint_option
@_decision_json_option
@root.verbose_option
def list_decisions(*, checkpoint: str | None, as_json: bool) -> None:
    """List the skipped entries, oldest first.

    \b
    Example:
      reexpand quarantine list --checkpoint /var/lib/reexpand --json
    """
    held = _held(checkpoint, driver_has_ended=True, bootstrap_servers="unused")
    _show(held.checkpoint.quarantine.decisions, as_json=as_json)


@quarantine.command()
@click.argument("entry", metavar="ENTRY")
@click.option("--reason", default="left out by hand", show_default=True, help="Reason, for the dead letter.")
@_change_options
def add(*, entry: str, reason: str, checkpoint: str | None, driver_has_ended: bool, as_json: bool) -> None:
    """Make the job skip ENTRY.

    The job must have ended. The command checks in Kafka for a driver, which takes 10 s.

    \b
    Example:
      reexpand quarantine add --checkpoint /var/lib/reexpand --bootstrap-servers broker:9092 'lite-topic-events[0]@12'
    """
    place, held = EntryPlace.of(entry), _held(checkpoint, driver_has_ended=driver_has_ended)
    _show([held.add(place, reason)], as_json=as_json)


@quarantine.command()
@click.argument("entry", metavar="ENTRY")
@_change_options
def remove(*, entry: str, checkpoint: str | None, driver_has_ended: bool, as_json: bool) -> None:
    """Make the job apply ENTRY, if it has not read it yet.

    \b
    Example:
      reexpand quarantine remove --checkpoint /var/lib/reexpand --bootstrap-servers broker:9092 'lite-clock[0]@12'
    """
    place, held = EntryPlace.of(entry), _held(checkpoint, driver_has_ended=driver_has_ended)
    _show([held.remove(place)], as_json=as_json)


def _held(checkpoint: str | None, *, driver_has_ended: bool, **connection: str) -> "HeldCheckpoint":
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.checkpoint import JobCheckpoint, check_ended
    from streaming.operations.quarantine import HeldCheckpoint

    settings = root.settings(checkpoint=checkpoint, **connection)
    job = JobCheckpoint(settings.checkpoint)
    _ = job.partitions  # raises if there is no checkpoint
    kafka = settings.bootstrap_servers, for_librdkafka(settings)
    if not driver_has_ended:
        check_ended(job, *kafka)
    return HeldCheckpoint(job, *kafka)


def _show(decisions: "Iterable[Decision]", *, as_json: bool) -> None:
    for each in decisions:
        if as_json:
            click.echo(json.dumps({"id": str(each.place), **asdict(each)}, ensure_ascii=False))
        else:
            time = datetime.fromtimestamp(each.decided / 1_000, UTC).astimezone().isoformat(sep=" ", timespec="seconds")
            exempt = f"; applied in state partitions {', '.join(map(str, each.exempt))}" if each.exempt else ""
            click.echo(f"{each.place}  {time}  micro-batch {each.micro_batch}  {each.reason}{exempt}")
