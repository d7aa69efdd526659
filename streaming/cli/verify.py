"""`reexpand verify` and `rebuild`: comparison and repair of the updates, and a new checkpoint for them."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.cli import root
from streaming.cli.root import connection_options, progress_line, verbose_option
from streaming.cli.run import JobCommand, config_option, load, provide_java
from streaming.errors import NotVerified, ReexpandError

if TYPE_CHECKING:
    from streaming.spark.rebuild_note import RebuildNote


@click.command()
@click.option("--checkpoint", default=None, help="Checkpoint of the job: its directory or URI.")
@click.option("--updates", default=None, help="Updates topic of the job. [default: lite-subscription-updates]")
@click.option(
    "--dead-letters", default=None,
    help="Dead letters of the job, which tell what a quota refused. [default: lite-dead-letters]",
)  # fmt: skip
@click.option("--parent", "parents", multiple=True, help="Only the rows of this parent topic; repeatable.")
@click.option(
    "--inputs/--no-inputs", default=True, show_default=True,
    help="Work off the inputs from their beginning as well; without them only state and updates are compared.",
)  # fmt: skip
@click.option("--repair", is_flag=True, help="Write corrections to the updates topic, and verify again.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line: each difference, then a summary.")
@connection_options
def verify(
    *,
    checkpoint: str | None,
    updates: str | None,
    dead_letters: str | None,
    parents: tuple[str, ...],
    inputs: bool,
    repair: bool,
    as_json: bool,
) -> None:
    """Compare inputs, state and updates of a job.

    Each difference is named with its reason. The job may run meanwhile: without --repair it is only read. Input topics,
    shards and the like are those of the checkpoint; the names of the updates topic and of the dead letters are taken
    from the options or the environment (REEXPAND_UPDATES, ...), as `reexpand run` takes them.

    With --repair, a row that inputs and state agree on and the updates topic has otherwise gets a correction there: an
    ADD or a REMOVE with the cause REPAIRED. A state that is wrong itself is named, and not repaired.

    Exit code 0 when the relation is right, also after a repair; 1 when differences are left; 2 when they cannot be
    looked for, because Kafka or the checkpoint cannot be read, or an option is wrong.

    \b
    Example:
      reexpand verify --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand
      reexpand verify --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --parent orders --repair
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.verify import report, session

    try:
        settings = root.settings(checkpoint=checkpoint, updates=updates, dead_letters=dead_letters)
        client = for_librdkafka(settings)
        provide_java()
        choices = session.Choices(frozenset(parents), inputs, repair, client)
        with progress_line() as show:
            findings = session.verify(settings, choices, lambda what, done, of: show(f"reading {what}", done, of))
    except ReexpandError as error:
        raise NotVerified(str(error)) from error  # exit code 1 is that of differences
    if as_json:
        for each in report.as_json(findings):
            click.echo(json.dumps(each))
    else:
        report.show(findings)
    sys.exit(0 if findings.is_right else 1)


@click.command(cls=JobCommand)
@config_option
@click.option("--former", default=None, help="Checkpoint that the new one replaces; its job must have ended.")
@click.option(
    "--without-former", is_flag=True,
    help="Instead of --former: that checkpoint is lost, and no job writes to the updates topic.",
)  # fmt: skip
@click.option(
    "--from-state", is_flag=True,
    help="Begin with the state of --former, and read the inputs from where it stopped.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of sentences.")
@verbose_option
def rebuild(
    config_file: Path | None,
    *,
    former: str | None,
    without_former: bool,
    from_state: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a new checkpoint for the same updates topic.

    The new checkpoint may have other shards, another route depth, and another number of state partitions. The inputs
    are read from their beginning. Then the differences between the new state and the updates topic are written to it,
    as ADDs and REMOVEs with the cause REPAIRED. So consumers go on and see true differences only, none if nothing
    differs. Producers may go on as well.

    Where the inputs lack their beginning, --from-state takes the states of --former over, divided among the new shards.

    The job must have ended: its lease is held meanwhile, and its checkpoint is marked as replaced afterwards. If the
    rebuild is interrupted, the same command goes on. No job starts on a checkpoint whose rebuild is not complete.

    Options, environment variables and the file are those of `reexpand run`. --checkpoint names the new folder.

    Exit code 0 when the checkpoint is complete; 1 when the rebuild cannot go on at the moment; 2 when settings,
    checkpoints and Kafka topics do not fit each other.

    \b
    Example:
      reexpand rebuild --bootstrap-servers broker:9092 --former /var/lib/reexpand --checkpoint /var/lib/reexpand-2 \\
        --shards orders=16
    """
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.rebuild.session import Plan
    from streaming.operations.rebuild.session import rebuild as run_rebuild

    if (former is None) != without_former:
        raise click.UsageError("give --former, or --without-former if the former checkpoint is lost")
    if from_state and former is None:
        raise click.UsageError("--from-state needs --former")
    settings = load(config_file, given)
    provide_java()
    with progress_line() as show:
        note = run_rebuild(settings, Plan(former, for_librdkafka(settings), from_state), show)
    command = _job_command(config_file, given)
    if as_json:
        click.echo(json.dumps({**asdict(note), "checkpoint": settings.checkpoint, "run": command}))
    else:
        click.echo(_in_words(note, settings.checkpoint))
        click.echo(f"the job goes on with: {command}")


def _in_words(note: "RebuildNote", checkpoint: str) -> str:
    return (
        f"{checkpoint} is complete: {note.rows:,} rows hold; {note.added:,} ADD and {note.removed:,} REMOVE were "
        f"written to {note.updates} in {note.seconds:g} s"
    )


def _job_command(config_file: Path | None, given: Mapping[str, Any]) -> str:
    """Return the command that starts the job with the same options."""
    words = ["reexpand", "run"]
    if config_file is not None:
        words += ["--config", str(config_file)]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if name == "accept_loss" or value is None:  # of no effect afterwards
            continue
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif isinstance(value, tuple):
            for each in value:
                words += [option, str(each)]
        else:
            words += [option, str(value)]
    return shlex.join(words)
