"""`reexpand tail`: the updates as they are written."""
# ruff: noqa: PLC0415 - a verb imports its own needs

from itertools import islice
from pathlib import Path
from typing import Any

import click

from streaming.cli import printing
from streaming.cli.inspect.options import checked_pattern
from streaming.cli.root import bootstrap_servers_option, kafka_options_option, verbose_option


@click.command()
@bootstrap_servers_option
@click.option("--updates", default=None, help="Updates topic of the job. [default: lite-subscription-updates]")
@click.option("--parent", default=None, help="Only updates of this parent topic.")
@click.option("--group", default=None, help="Only updates of this group.")
@click.option("--client", default=None, help="Only updates of this client.")
@click.option("--topic", default=None, metavar="PATTERN", help="Only updates of topics that it matches, or names.")
@click.option("--dialect", default="lite", show_default=True, help="Dialect of --topic.")
@click.option("--op", type=click.Choice(["ADD", "REMOVE"]), default=None, help="Only additions, or only removals.")
@click.option("--from-beginning", is_flag=True, help="Begin with the first update that is there.")
@click.option("--once", is_flag=True, help="Stop at the end of the topic, and do not wait for more.")
@click.option("--count", type=click.IntRange(1), default=None, help="Stop after so many updates.")
@click.option("--json", "as_json", is_flag=True, help="Print each update as it stands in Kafka, one a line.")
@kafka_options_option
@verbose_option
def tail(
    *,
    bootstrap_servers: str | None,
    updates: str | None,
    kafka_options: Path | None,
    from_beginning: bool,
    once: bool,
    count: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Follow the updates of the job, until Ctrl-C.

    It begins behind the last update, or with --from-beginning at the first; compaction leaves of each row its last
    update only. No offset is committed, so nobody notices it.

    Exit code 0, also after Ctrl-C; 1 when the topic cannot be read, 2 when an option is wrong.

    \b
    Example:
      reexpand tail --bootstrap-servers broker:9092 --client c1
      reexpand tail --topic 'eu__**' --op ADD --from-beginning --once --json
    """
    from streaming import config
    from streaming.inspect import wording
    from streaming.inspect.following import Chosen, UpdatesFollower

    checked_pattern(given["topic"], given["dialect"], "--topic")
    settings = config.load(
        {
            "bootstrap_servers": bootstrap_servers,
            "updates": updates,
            "checkpoint": "unused",
            "kafka_options": kafka_options,
        }
    )
    show = wording.as_json if as_json else wording.update
    try:
        with UpdatesFollower(settings, from_beginning=from_beginning or once) as follower:
            for update in islice(follower.updates(Chosen(**given), to_end=once), count):
                printing.line(show(update))
    except KeyboardInterrupt:
        click.echo(err=True)
