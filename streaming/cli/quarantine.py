"""`reexpand quarantine`: entries that the job skips."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streaming.cli import root
from streaming.cli.root import checkpoint_option, connection_options, verbose_option

if TYPE_CHECKING:
    from streaming.operations.quarantine import HeldCheckpoint
    from streaming.worker.quarantine import Decision, EntryPlace

F = TypeVar("F", bound=Callable[..., Any])

_json_option = click.option("--json", "as_json", is_flag=True, help="Print each decision as JSON, one per line.")


def _change_options(command: F) -> F:
    for option in (
        connection_options,
        _json_option,
        click.option("--driver-has-ended", is_flag=True, help="Do not check in Kafka for a driver of the checkpoint."),
        checkpoint_option,
    ):
        command = option(command)
    return command


@click.group()
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


@quarantine.command("list")
@checkpoint_option
@_json_option
@verbose_option
def list_decisions(*, checkpoint: str | None, as_json: bool) -> None:
    """List the skipped entries, oldest first.

    \b
    Example:
      reexpand quarantine list --checkpoint /var/lib/reexpand --json
    """
    held = _held(checkpoint, bootstrap_servers="unused")
    _show(held.checkpoint.quarantine.decisions, as_json=as_json)


@quarantine.command()
@click.argument("entry", metavar="ENTRY")
@click.option("--reason", default="left out by hand", show_default=True, help="Reason, for the dead letter.")
@_change_options
def add(
    *,
    entry: str,
    reason: str,
    checkpoint: str | None,
    driver_has_ended: bool,
    as_json: bool,
) -> None:
    """Make the job skip ENTRY.

    The job must have ended. The command checks in Kafka for a driver, which takes 10 s.

    \b
    Example:
      reexpand quarantine add --checkpoint /var/lib/reexpand --bootstrap-servers broker:9092 'lite-topic-events[0]@12'
    """
    place, held = _place(entry), _held(checkpoint)
    if not driver_has_ended:
        held.check_ended()
    _show([held.add(place, reason)], as_json=as_json)


@quarantine.command()
@click.argument("entry", metavar="ENTRY")
@_change_options
def remove(
    *,
    entry: str,
    checkpoint: str | None,
    driver_has_ended: bool,
    as_json: bool,
) -> None:
    """Make the job apply ENTRY, if it has not read it yet.

    \b
    Example:
      reexpand quarantine remove --checkpoint /var/lib/reexpand --bootstrap-servers broker:9092 'lite-clock[0]@12'
    """
    place, held = _place(entry), _held(checkpoint)
    if not driver_has_ended:
        held.check_ended()
    _show([held.remove(place)], as_json=as_json)


def _held(checkpoint: str | None, **connection: str) -> "HeldCheckpoint":
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.quarantine import HeldCheckpoint
    from streaming.operations.verify.progress import JobCheckpoint

    settings = root.settings(checkpoint=checkpoint, **connection)
    job = JobCheckpoint(settings.checkpoint)
    _ = job.partitions  # raises if there is no checkpoint
    return HeldCheckpoint(job, settings.bootstrap_servers, for_librdkafka(settings))


def _place(text: str) -> "EntryPlace":
    from streaming.kafka.letters import LetterId
    from streaming.worker.quarantine import EntryPlace

    return EntryPlace(*LetterId.of(text))


def _show(decisions: "list[Decision] | tuple[Decision, ...]", *, as_json: bool) -> None:
    for each in decisions:
        if as_json:
            click.echo(json.dumps({"id": str(each.place), **asdict(each)}, ensure_ascii=False))
        else:
            time = datetime.fromtimestamp(each.decided / 1_000, UTC).astimezone().isoformat(sep=" ", timespec="seconds")
            exempt = f"; applied in state partitions {', '.join(map(str, each.exempt))}" if each.exempt else ""
            click.echo(f"{each.place}  {time}  micro-batch {each.micro_batch}  {each.reason}{exempt}")
