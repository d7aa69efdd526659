"""`reexpand verify`, `rebuild`, `backup`, `restore` and `compact-inputs`: a checkpoint and its Kafka topics."""

import json
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.cli import context, root
from streaming.cli.output import progress_line, result
from streaming.cli.root import checkpoint_option, connection_options, json_option, main
from streaming.cli.run import config_option, load, provide_java
from streaming.cli.setting_options import JobCommand
from streaming.errors import NotVerified, ReexpandError
from streaming.printable import counted

if TYPE_CHECKING:
    from streaming.operations.backup import Manifest


@main.command()
@checkpoint_option
@root.updates_option
@click.option(
    "--dead-letters",
    help="Dead letters of the job, which contain rejections by quota. [default: lite-dead-letters]",
)  # fmt: skip
@root.parents_option
@click.option(
    "--inputs/--no-inputs", default=True, show_default=True,
    help="Also replay the inputs from the beginning. Without inputs, only state and updates are compared.",
)  # fmt: skip
@click.option("--repair", is_flag=True, help="Write corrections to the updates topic, and verify again.")
@json_option("Print one JSON object per line: each difference, and a summary.")
@connection_options
def verify(*, parents: tuple[str, ...], inputs: bool, repair: bool, as_json: bool, **given: str | None) -> None:
    """Compare inputs, state and updates of a job.

    Each difference is reported with its reason. The job may be running. Without --repair nothing is written. Input
    topics, shards and similar settings come from the checkpoint. The names of the updates topic and the dead letters
    come from the options or the environment (REEXPAND_UPDATES, ...), as for `reexpand run`.

    With --repair, if the updates topic differs from both inputs and state, a correction is written to it: an ADD or a
    REMOVE with the cause REPAIRED. A wrong state is reported but not repaired.

    Exit code 0 if the relation is correct, possibly after a repair; 1 if differences remain; 2 if the comparison is not
    possible, because Kafka or the checkpoint cannot be read, or an option is invalid.

    \b
    Example:
      reexpand verify --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand
      reexpand verify --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --parent orders --repair
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.verify import findings as report
    from streaming.operations.verify import session

    try:
        settings = root.settings(**given)
        client = for_librdkafka(settings)
        provide_java()
        choices = session.Choices(frozenset(parents), inputs, repair, client)
        with progress_line() as show:
            findings = session.verify(settings, choices, lambda what, done, of: show(f"reading {what}", done, of))
    except ReexpandError as error:
        raise NotVerified(str(error)) from error  # exit code 1 means differences
    if as_json:
        for each in report.as_json(findings):
            click.echo(json.dumps(each))
    else:
        report.show(findings)
    sys.exit(0 if findings.is_right else 1)


@main.command(cls=JobCommand)
@config_option
@click.option("--former", help="Checkpoint to replace; its job must have ended.")
@click.option(
    "--without-former", is_flag=True,
    help="Instead of --former, if that checkpoint is lost and no job writes to the updates topic.",
)  # fmt: skip
@click.option(
    "--from-state", is_flag=True,
    help="Start with the state of --former, and read the inputs from its position.",
)  # fmt: skip
@json_option("Print one JSON object instead of text.")
@root.verbose_option
def rebuild(
    config_file: Path | None, *, former: str | None, without_former: bool, from_state: bool, as_json: bool, **given: Any
) -> None:
    """Create a new checkpoint for the same updates topic.

    The new checkpoint may have different shards, route depth, and number of state partitions. The inputs are read from
    the beginning. Then the differences between the new state and the updates topic are written to the topic, as ADDs
    and REMOVEs with the cause REPAIRED. Consumers and producers continue, and consumers see only actual differences.

    If the inputs are incomplete, --from-state distributes the state of --former among the new shards.

    The job must have ended. The rebuild holds its lease, and marks its checkpoint as replaced at the end. Run the same
    command again after an interruption. No job starts on a checkpoint with an incomplete rebuild.

    Options, environment variables and the file are the same as for `reexpand run`. --checkpoint is the new folder.

    Exit code 0 if the checkpoint is complete; 1 if the rebuild cannot continue at the moment; 2 if settings,
    checkpoints and Kafka topics do not match.

    \b
    Example:
      reexpand rebuild --bootstrap-servers broker:9092 --former /var/lib/reexpand --checkpoint /var/lib/reexpand-2 \\
        --shards orders=16
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations import rebuild as session

    if (former is None) != without_former:
        raise click.UsageError("give --former, or --without-former if the former checkpoint is lost")
    if from_state and former is None:
        raise click.UsageError("--from-state needs --former")
    settings = load(config_file, given)
    provide_java()
    with progress_line() as show:
        note = session.rebuild(settings, session.Plan(former, for_librdkafka(settings), from_state), show)
    command = _job_command(config_file, given)
    result(
        {**asdict(note), "checkpoint": settings.checkpoint, "run": command},
        f"{settings.checkpoint} is complete: {counted(note.rows, 'row')}; {note.added:,} ADD and "
        f"{note.removed:,} REMOVE were written to {note.updates} in {note.seconds:g} s",
        f"next: {command}",
        as_json=as_json,
    )


def _job_command(config_file: Path | None, given: Mapping[str, Any]) -> str:
    """Return the command that starts the job with the same options."""
    words = ["reexpand", "run"]
    for option, chosen in (("--config", config_file), ("--context", context.name())):
        words += [] if chosen is None else [option, str(chosen)]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if name == "accept_loss" or value is None:  # no effect after the rebuild
            continue
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [option, str(each)]
    return shlex.join(words)


_local_checkpoint_option = click.option("--checkpoint", help="Checkpoint of the job: its local directory.")


@main.command()
@click.argument("destination", type=click.Path(path_type=Path))
@_local_checkpoint_option
@json_option("Print one JSON object instead of text.")
@root.verbose_option
def backup(destination: Path, *, checkpoint: str | None, as_json: bool) -> None:
    """Copy a checkpoint to a new folder. The job may be running.

    The copy contains the last committed micro-batch, with a manifest of sizes and digests. It is renamed to its final
    name after all files are on disk and were verified. The checkpoint is only read. It must be a local folder: URIs are
    not supported.

    A restored copy can be used only if the job has written no updates since. Otherwise the job rejects it, and
    `reexpand rebuild` creates a new checkpoint from it.

    Exit code 0 if the copy is complete; 1 if the checkpoint is damaged, or files cannot be read or written; 2 if there
    is nothing to copy, the destination exists, or an option is invalid.

    \b
    Example:
      reexpand backup --checkpoint /var/lib/reexpand /backup/reexpand-monday
    """
    from streaming.operations import backup as backups

    begun = time.monotonic()
    place = backups.local(root.settings(checkpoint=checkpoint, bootstrap_servers="unused").checkpoint)
    with progress_line() as show:
        manifest = backups.backup(place, destination.absolute(), show)
    facts, text = _copied(manifest, begun)
    said = f"micro-batch {manifest.micro_batch} of {place} is in {destination}: {text}"
    result({**facts, "destination": str(destination)}, said, as_json=as_json)


@main.command()
@click.argument("source", type=click.Path(path_type=Path))
@_local_checkpoint_option
@click.option(
    "--replace", is_flag=True,
    help="Rename an existing checkpoint to a name with the time; needs --bootstrap-servers, see below.",
)  # fmt: skip
@click.option(
    "--driver-has-ended", is_flag=True, help="With --replace: do not check in Kafka for a driver of the checkpoint."
)
@json_option("Print one JSON object instead of text.")
@connection_options
def restore(source: Path, *, checkpoint: str | None, replace: bool, driver_has_ended: bool, as_json: bool) -> None:
    """Restore a checkpoint from the backup SOURCE.

    All files are first compared with the manifest. An existing checkpoint is an error unless --replace is given. With
    --replace, the command checks in Kafka for a driver of the checkpoint, which takes 10 s.

    If the job has written updates since the backup, it rejects the restored checkpoint. `reexpand rebuild` then
    creates a new checkpoint for the same updates topic.

    Exit code 0 if the checkpoint is restored; 1 if the backup is damaged, or files cannot be read or written; 2 if a
    checkpoint exists, a driver uses it, or an option is invalid. Nothing is changed in this case.

    \b
    Example:
      reexpand restore --checkpoint /var/lib/reexpand --bootstrap-servers broker:9092 --replace /backup/reexpand-monday
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations import backup as backups
    from streaming.operations.checkpoint import JobCheckpoint, check_ended

    begun = time.monotonic()
    asks = replace and not driver_has_ended
    connection = {} if asks else {"bootstrap_servers": "unused", "kafka_options": None}
    settings = root.settings(checkpoint=checkpoint, **connection)
    place = backups.local(settings.checkpoint)
    if asks and backups.is_occupied(place):
        check_ended(JobCheckpoint(str(place)), settings.bootstrap_servers, for_librdkafka(settings))
    with progress_line() as show:
        manifest, former = backups.restore(source.absolute(), place, show, replace=replace)
    facts, text = _copied(manifest, begun)
    said = [f"the former checkpoint is {former}"] if former else []
    said.append(f"micro-batch {manifest.micro_batch} is restored to {place}: {text}")
    result({**facts, "checkpoint": str(place), "former": former and str(former)}, *said, as_json=as_json)


def _copied(manifest: "Manifest", begun: float) -> tuple[dict[str, object], str]:
    """Return the result of a copy, for JSON and as text."""
    count, seconds = len(manifest.files), round(time.monotonic() - begun, 1)
    facts = {
        "microBatch": manifest.micro_batch, "files": count, "bytes": manifest.size, "time": manifest.time,
        "release": manifest.release, "seconds": seconds,
    }  # fmt: skip
    return facts, f"{counted(count, 'file')}, {manifest.size:,} bytes, in {seconds} s; copied at {manifest.time}"


@main.command()
@checkpoint_option
@click.option(
    "--backup", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A backup of that checkpoint, made by `reexpand backup`.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Remove the records. Without it they are only counted.")
@json_option("Print one JSON object instead of a table.")
@connection_options
def compact_inputs(*, checkpoint: str | None, backup: Path, yes: bool, as_json: bool) -> None:
    """Remove input records whose effect is in a backup.

    The state of a job contains the effect of all records that it has read. While a copy of the state exists, these
    records are not needed. The command removes the records from the four inputs that the job had read at the time of
    the backup. The job may be running.

    Keep the backup: without records and without state, nothing can be recreated. From then on, create new checkpoints
    with `reexpand rebuild --from-state`. `reexpand verify` compares only state and updates. Other jobs on the same
    inputs must have read the records too.

    Exit code 0 if the records are removed or counted; 1 if Kafka does not answer, or the backup is damaged; 2 if the
    backup is of another checkpoint, or an option is invalid.

    \b
    Example:
      reexpand compact-inputs --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --backup /backup/monday
    """
    from rich.console import Console
    from rich.table import Table

    from streaming.kafka.options import for_librdkafka
    from streaming.operations import compaction

    settings = root.settings(checkpoint=checkpoint)
    servers, options = settings.bootstrap_servers, for_librdkafka(settings)
    with progress_line() as show:
        removals = compaction.plan(servers, options, settings.checkpoint, backup, show)
    if yes:
        compaction.remove(servers, options, removals)
    rows = [(*each.partition, each.size, each.records) for each in removals]
    total = sum(each.records for each in removals)
    if as_json:
        partitions = [{"topic": topic, "partition": number, "records": records, "of": size}
                      for topic, number, size, records in rows]  # fmt: skip
        click.echo(json.dumps({"removed": yes, "records": total, "partitions": partitions}))
        return
    table = Table("input", "partition", "records", "in the backup", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for topic, number, size, records in rows:
        table.add_row(topic, str(number), f"{size:,}", f"{records:,}")
    Console(highlight=False).print(table)
    click.echo(
        f"{counted(total, 'record was', 'records were')} removed"
        if yes
        else f"nothing was removed; --yes removes {counted(total, 'record')}"
    )
