"""The `reexpand` command.

A command imports what only it needs when it runs: Spark, pydantic or rich alone takes longer to import than the matcher
to answer.
"""
# ruff: noqa: PLC0415 - as above

import json
import logging
import os
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import click

from streaming.cli import matching
from streaming.errors import ReexpandError

HOME = Path(".reexpand")
"""Where the embedded broker and the demo keep their data."""


class _Group(click.Group):
    """Turns the package's own errors into one sentence and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ReexpandError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)


class _JobCommand(click.Command):
    """Has an option for each setting of the job, so that help and configuration cannot disagree."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options of its own, those of the settings, and help."""
        *own, help_option = super().get_params(ctx)
        return [*own, *_job_options(), help_option]


@cache
def _job_options() -> tuple[click.Option, ...]:
    from streaming.config import Settings

    # Values stay text until `config` checks them, so that all sources are checked alike.
    options = []
    for name, field in Settings.model_fields.items():
        shown = isinstance(field.default, str | int) and field.default is not False
        help_text = (field.description or "") + (f" [default: {field.default}]" if shown else "")
        form: dict[str, Any] = {
            "multiple": name == "shards",
            "metavar": "PARENT=N" if name == "shards" else "N" if "int" in str(field.annotation) else "TEXT",
        }
        if field.annotation is bool:
            form = {"is_flag": True}
        options.append(click.Option([f"--{name.replace('_', '-')}"], default=None, help=help_text, **form))
    return tuple(options)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="reexpand")
@click.option("-v", "--verbose", is_flag=True, help="Also show what Spark and Kafka say.")
@click.pass_context
def main(ctx: click.Context, /, verbose: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Wildcard topic subscriptions that keep themselves expanded.

    \b
    Example:
      reexpand demo                     # the real thing in a minute, on this machine
      reexpand local                    # a Kafka broker with the topics, to play with
      reexpand run --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand
    """
    if ctx.invoked_subcommand not in {command.name for command in matching.COMMANDS}:  # these log nothing
        _log(verbose=verbose)


def _log(*, verbose: bool) -> None:
    handler: logging.Handler
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.logging import RichHandler

        handler = RichHandler(console=Console(stderr=True), show_path=False)
        form = "%(message)s"
    else:
        handler = logging.StreamHandler()
        form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.WARNING, format=form, handlers=[handler])
    logging.getLogger("reexpand").setLevel(logging.DEBUG if verbose else logging.INFO)


@main.command(cls=_JobCommand)
@click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TOML file."
)
def run(config_file: Path | None, **given: Any) -> None:
    """Run the job until SIGTERM or Ctrl-C; a running micro-batch is finished first.

    Each option is also an environment variable (REEXPAND_BOOTSTRAP_SERVERS, ...) and a key of the TOML file
    (bootstrap_servers, ...). The command line wins over the environment, and that over the file.

    \b
    Example:
      reexpand run --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --shards orders=16
    """
    from streaming import config
    from streaming.spark import service

    if config_file is not None:
        os.environ["REEXPAND_CONFIG"] = str(config_file)
    given["shards"] = _shards(given["shards"])
    settings = config.load(given)
    _provide_java()
    service.run(settings)


def _shards(pairs: tuple[str, ...]) -> dict[str, str] | None:
    if not pairs:
        return None
    split = [pair.rpartition("=") for pair in pairs]
    if not all(parent for parent, _, _ in split):
        raise click.BadParameter("expected PARENT=N, as in orders=16", param_hint="--shards")
    return {parent: count for parent, _, count in split}


@main.command()
@click.option("--home", type=click.Path(file_okay=False, path_type=Path), default=HOME, show_default=True,
    help="Folder of what the demo leaves: its logs.",
)  # fmt: skip
@click.option("--cluster", is_flag=True, help="Run the job on a Spark cluster of two workers, and kill one half way.")
@click.option("--keep", is_flag=True, help="Leave broker and job running at the end, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.pass_context
def demo(ctx: click.Context, home: Path, cluster: bool, keep: bool, as_json: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Play a scenario on a real broker and the real job, and show what the job makes of it.

    Exit code 0 when the updates are exactly the expected ones, 1 when they are not.

    \b
    Example:
      reexpand demo
      reexpand demo --cluster
      reexpand demo --json | jq .
    """
    from streaming.demo import run_demo

    ctx.exit(run_demo(home, keep, as_json, cluster))


@main.command()
@click.option(
    "--home", type=click.Path(file_okay=False, path_type=Path), default=HOME / "kafka", show_default=True,
    help="Folder of the broker's data; kept, so that a later start goes on with it.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the address as JSON.")
def local(home: Path, as_json: bool) -> None:  # noqa: FBT001 - click passes options by name
    """Run a real single-node Kafka broker with the job's topics, until Ctrl-C or SIGTERM.

    \b
    Example:
      reexpand local &
      reexpand run --bootstrap-servers 127.0.0.1:PORT --checkpoint .reexpand/checkpoint
    """
    from streaming import config
    from streaming.kafka import specs as topics
    from streaming.kafka.topics import create_topics
    from streaming.local.broker import Broker

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Broker(home) as broker:
        settings = config.load({"bootstrap_servers": broker.bootstrap_servers, "checkpoint": str(HOME / "checkpoint")})
        create_topics(broker.bootstrap_servers, topics.specs(settings))
        if as_json:
            click.echo(json.dumps({"bootstrapServers": broker.bootstrap_servers, "data": str(home)}))
        else:
            click.echo(f"Kafka listens on {broker.bootstrap_servers}; data in {home}; Ctrl-C stops it.")
            click.echo(
                f"Next: reexpand run --bootstrap-servers {broker.bootstrap_servers} --checkpoint {settings.checkpoint}"
            )
        sys.stdout.flush()
        try:
            broker.wait()
        except KeyboardInterrupt:
            return
        raise ReexpandError(f"the broker ended by itself; its log is {broker.log_file}")


@main.command()
@click.option("--bootstrap-servers", default=None, help="Kafka brokers, host:port[,host:port...].")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Of each topic that is made.")
def topics(bootstrap_servers: str | None, partitions: int) -> None:
    """Create the Kafka topics that the job reads and writes; those that exist are left as they are.

    Topic names are taken from the environment (REEXPAND_UPDATES, ...) as `reexpand run` takes them.

    \b
    Example:
      reexpand topics --bootstrap-servers broker:9092 --partitions 4
    """
    from streaming import config
    from streaming.kafka.specs import specs
    from streaming.kafka.topics import create_topics

    settings = config.load({"bootstrap_servers": bootstrap_servers, "checkpoint": "unused"})
    wanted = specs(settings, partitions)
    created = create_topics(settings.bootstrap_servers, wanted)
    for spec in wanted:
        click.echo(f"{spec.name}: {'created' if spec.name in created else 'exists'}")


@main.command()
@click.option("--bootstrap-servers", default=None, help="Kafka brokers, host:port[,host:port...].")
@click.option("--parent", default="kafka", show_default=True, help="Parent topic under which the Kafka topics appear.")
@click.option("--topic-events", default=None, help="Where the events go. [default: lite-topic-events]")
@click.option("--include", multiple=True, metavar="PATTERN", help="Only topics that one of these matches; repeatable.")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="No topic that one of these matches; repeatable.")
@click.option("--dialect", default="nats", show_default=True, help="The language of --include and --exclude.")
@click.option("--interval", type=click.FloatRange(0.05), default=0.5, show_default=True, help="Seconds between looks.")
@click.option("--client-options", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of librdkafka options, one key=value a line; the place for credentials.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Announce what has changed since the last time, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as it is written, one a line.")
def watch_kafka(
    bootstrap_servers: str | None, topic_events: str | None, client_options: Path | None, *, as_json: bool, **given: Any
) -> None:
    """Turn the creation and deletion of real Kafka topics into topic events, until SIGTERM or Ctrl-C.

    Topics that came or went while it was not running are announced at the next start. Kafka's internal topics (__...)
    and the six of reexpand are left out. Exit code 1 when Kafka cannot be watched, 2 when an option is wrong.

    \b
    Example:
      reexpand watch-kafka --bootstrap-servers broker:9092
      reexpand watch-kafka --bootstrap-servers broker:9092 --parent shop --include 'orders.>' --exclude 'orders.test.>'
    """
    from streaming import config
    from streaming.adapters import watch_kafka as watcher

    settings = config.load(
        {
            "bootstrap_servers": bootstrap_servers,
            "topic_events": topic_events,
            "checkpoint": "unused",
            "kafka_options": client_options,
        }
    )
    # The file of the job's own Kafka options is for another client, which names them differently.
    options = watcher.Options(client=settings.client_options() if client_options else {}, **given)
    watcher.run(settings, options, lambda event: click.echo(event if as_json else watcher.in_words(event)))


@main.command()
@click.option("--bootstrap-servers", default=None, help="Kafka brokers, host:port[,host:port...].")
@click.option("--client-options", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of librdkafka options, one key=value a line; the place for credentials.",
)  # fmt: skip
@click.option("--topics", "topics_file", type=click.File("rb"), metavar="FILE",
    help="Instead of Kafka: topic events, one a line; - is standard input.",
)  # fmt: skip
@click.option("--patterns", "patterns_file", type=click.File("rb"), metavar="FILE",
    help="With --topics: subscription events, one a line; their entries are taken for patterns.",
)  # fmt: skip
@click.option("--parent", default=None, help="The files are plain: a topic, or a pattern of dialect lite, a line.")
@click.option("--allow-inner-multi", is_flag=True, default=None, help="The job allows ** inside a pattern.")
@click.option("--cores", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="those of this machine",
    help="How many the job will have, on all machines together.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def advise(
    *,
    bootstrap_servers: str | None,
    client_options: Path | None,
    topics_file: BinaryIO | None,
    patterns_file: BinaryIO | None,
    parent: str | None,
    allow_inner_multi: bool | None,
    cores: int,
    as_json: bool,
) -> None:
    """Advise on shards, route depth and partitions, from the topics and patterns that there are.

    Reads the job's input topics from beginning to end, or files, and writes nothing. Topic names are taken from the
    environment (REEXPAND_TOPIC_EVENTS, ...) as `reexpand run` takes them. Exit code 1 when there are no topics or Kafka
    cannot be read, 2 when an option is wrong.

    \b
    Example:
      reexpand advise --bootstrap-servers broker:9092 --cores 8
      reexpand advise --parent orders --topics topics.txt --patterns patterns.txt
      jq -c . topic-events.json | reexpand advise --topics - --json
    """
    import time

    from rich.console import Console
    from rich.progress import Progress

    from streaming import config
    from streaming.advise import report, rule, sources
    from streaming.advise.inventory import Inventory

    if topics_file is None and (patterns_file is not None or parent is not None):
        raise click.UsageError("--patterns and --parent go with --topics")
    if topics_file is not None and (bootstrap_servers is not None or client_options is not None):
        raise click.UsageError("give either --topics, or Kafka by --bootstrap-servers")
    if topics_file is not None and topics_file is patterns_file:
        raise click.UsageError("only one of --topics and --patterns can be standard input")
    settings = config.load(
        {
            "bootstrap_servers": bootstrap_servers if topics_file is None else "unused",
            "checkpoint": "unused",
            "allow_inner_multi": allow_inner_multi,
            "kafka_options": client_options,
        }
    )
    inventory = Inventory(inner_multi=settings.allow_inner_multi)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading", total=None)

        def show(done: int, of: int | None, what: str) -> None:
            progress.update(task, completed=done, total=of, description=f"reading {what}: {done:,}")

        if topics_file is None:
            # The file of the job's own Kafka options is for another client, which names them differently.
            options = settings.client_options() if client_options else {}
            sources.from_kafka(settings, options, inventory, show)
        elif parent is None:
            sources.from_files(topics_file, patterns_file, inventory, show)
        else:
            sources.from_plain_files(parent, topics_file, patterns_file, inventory, show)
        progress.update(task, total=None, description="comparing")
        holdings = inventory.holdings(time.time_ns() // 1_000_000)
        refused = f"{inventory.refused:,} entries are not valid and left out ({inventory.first_refused})"
        if not any(holding.topics for holding in holdings.values()):
            raise ReexpandError("there are no topics to advise on" + (f"; {refused}" if inventory.refused else ""))
        advice = rule.advise(holdings, cores)
    warnings = [*([refused] if inventory.refused else []), *advice.warnings]
    if as_json:
        click.echo(json.dumps(report.as_json(advice, warnings)))
    else:
        report.show(advice, warnings)


@main.command()
def jars() -> None:
    """Fetch the jars that Spark lacks, as its Kafka connector, and the broker's, if they are not there yet.

    \b
    Example:
      reexpand jars
    """
    from rich.console import Console
    from rich.progress import Progress

    from streaming.local import jars as local_jars

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("fetching jars", total=None, start=False)

        def show(done: int, of: int, what: str) -> None:
            progress.update(task, completed=done, total=of, description=f"fetching {what}")

        local_jars.fetch(progress=show)


for _command in matching.COMMANDS:
    main.add_command(_command)


def _provide_java() -> None:
    """Lets Spark find the Java that this package has chosen."""
    from streaming.local.java import environment, find_java

    os.environ.update(environment(find_java()))
