"""`reexpand verify`: inputs, state and updates of a job compared, and the updates repaired."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.root import bootstrap_servers_option, kafka_options_option, progress_line, verbose_option
from streaming.cli.run import provide_java
from streaming.errors import NotVerified, ReexpandError

if TYPE_CHECKING:
    from streaming.config import Settings
    from streaming.operations.verify.findings import Findings
    from streaming.operations.verify.session import Choices


@click.command()
@bootstrap_servers_option
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
@kafka_options_option
@verbose_option
def verify(
    *,
    bootstrap_servers: str | None,
    checkpoint: str | None,
    updates: str | None,
    dead_letters: str | None,
    parents: tuple[str, ...],
    inputs: bool,
    repair: bool,
    as_json: bool,
    kafka_options: Path | None,
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
    from streaming import config
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.verify import report
    from streaming.operations.verify.session import Choices

    try:
        settings = config.load(
            {
                "bootstrap_servers": bootstrap_servers,
                "checkpoint": checkpoint,
                "updates": updates,
                "dead_letters": dead_letters,
                "kafka_options": kafka_options,
            }
        )
        client = for_librdkafka(settings)
        provide_java()
        findings = _verify(settings, Choices(frozenset(parents), inputs, repair, client))
    except ReexpandError as error:
        raise NotVerified(str(error)) from error  # exit code 1 is that of differences
    if as_json:
        for each in report.as_json(findings):
            click.echo(json.dumps(each))
    else:
        report.show(findings)
    sys.exit(0 if findings.is_right else 1)


def _verify(settings: "Settings", options: "Choices") -> "Findings":
    """Verify, with a progress line on a terminal."""
    from streaming.operations.verify import session

    with progress_line() as show:
        return session.verify(settings, options, lambda what, done, of: show(f"reading {what}", done, of))
