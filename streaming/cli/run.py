"""`reexpand run`, `console` and `advise`: the job, its page, and its dimensions."""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from streaming.cli import context, root
from streaming.cli.ask import question_options
from streaming.cli.output import progress_line
from streaming.cli.root import FILE, json_option, kept, main
from streaming.cli.setting_options import JobCommand
from streaming.errors import ReexpandError

if TYPE_CHECKING:
    from streaming.config import Settings
    from streaming.operations.advise.inventory import InputBlock


config_option = root.combined(
    click.option(
        "--config", "config_file", type=FILE, help="TOML file of settings. Environment variable: REEXPAND_CONFIG."
    ),
    context.context_option,
)
"""Options for files of settings, in addition to the options of `JobCommand`."""


def load(config_file: Path | None, given: Mapping[str, Any]) -> "Settings":
    """Load the settings of a `JobCommand`.

    Raises:
        ConfigInvalid: a setting is missing or invalid.
    """
    from streaming import config

    if config_file is not None:
        os.environ["REEXPAND_CONFIG"] = str(config_file)
    pairs = [pair.rpartition("=") for pair in given["shards"]]
    if not all(parent for parent, _, _ in pairs):
        raise click.BadParameter("expected PARENT=N, as in orders=16", param_hint="--shards")
    shards = {parent: count for parent, _, count in pairs} or None
    return config.load({**given, "shards": shards}, context.chosen())


def provide_java() -> None:
    """Put the selected Java into the environment, for Spark."""
    from streaming.local.java import environment, find_java

    os.environ.update(environment(find_java()))


@main.command(cls=JobCommand)
@config_option
@click.option(
    "--take-over", is_flag=True,
    help="Replace another driver of the checkpoint. Without it, a second driver is rejected.",
)  # fmt: skip
@click.option(
    "--accept-topics", is_flag=True,
    help="Use once after Kafka's topics were restored at the same offsets: accept the new topic ids.",
)  # fmt: skip
@click.option(
    "--standby", "stands_by", is_flag=True,
    help="Wait as a warm standby while another driver uses the checkpoint, and take over when it ends.",
)  # fmt: skip
@root.verbose_option
@root.log_format_option
def run(config_file: Path | None, *, take_over: bool, accept_topics: bool, stands_by: bool, **given: Any) -> None:
    """Run the job until SIGTERM or Ctrl-C.

    The job finishes the current micro-batch before it stops with exit code 0.

    Each option is also an environment variable (REEXPAND_BOOTSTRAP_SERVERS, ...) and a key of the TOML file
    (bootstrap_servers, ...). The command line overrides a context, which overrides the environment, which overrides the
    file.

    Shards are merged by parent: --shards orders=16 --shards sensors=4 on the command line,
    REEXPAND_SHARDS=orders=16,sensors=4 (or a JSON object) in the environment, and a table [shards] with orders = 16 in
    the file.

    Exit code 1 if the job cannot continue, and 2 if settings, checkpoint and Kafka topics do not match. In this case a
    restart does not help.

    \b
    Example:
      reexpand run --bootstrap-servers broker:9092 --checkpoint /var/lib/reexpand --shards orders=16
    """
    if take_over and stands_by:
        raise click.UsageError("--take-over replaces the other driver, --standby waits for its end: use one of them.")
    settings = load(config_file, given)  # first: the imports take seconds
    from concurrent.futures import ThreadPoolExecutor

    from streaming.spark import session
    from streaming.storage import folder

    def start_java() -> None:
        folder.check(settings.checkpoint, writes=True)  # an error would wait for Java
        provide_java()
        session.start_java(settings, session.default_partitions(), session.brought())

    with ThreadPoolExecutor(1) as pool:
        java = pool.submit(start_java)  # while Python imports the rest
        from streaming.console.server import JobConsole
        from streaming.spark import service
    java.result()
    page = JobConsole(settings)
    service.run(settings, take_over=take_over, accept_topics=accept_topics, stands_by=stands_by, page=page)


@main.command()
@click.option(
    "--http", default="127.0.0.1:9465", show_default=True, metavar="HOST:PORT",
    help="Address of the page; port 0 for a free port.",
)  # fmt: skip
@click.option(
    "--token-file", type=FILE,
    help="File with the token that a browser must send; required if other machines can reach the address.",
)  # fmt: skip
@root.updates_option
@click.option("--dead-letters", help="Kafka topic of the dead letters. [default: lite-dead-letters]")
@question_options
@root.parents_option
@click.option(
    "--max-rows", type=click.IntRange(1), default=1_000_000, show_default=True,
    help="Maximum number of rows in memory; each takes some 350 bytes.",
)  # fmt: skip
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser of this machine.")
@root.connection_options
def console(
    *,
    http: str,
    token_file: Path | None,
    parents: tuple[str, ...],
    max_rows: int,
    in_browser: bool,
    **topics: str | None,
) -> None:
    """Serve a web page with lite topics, clients and live updates.

    The page shows the tree of topics with their receivers, the clients, live updates, dead letters, and a playground
    for patterns of all dialects. The console reads the updates topic and the dead letters, and needs no running job. It
    asks a running job for explanations, groups, and topics without receivers.

    On a loopback address it answers only this machine. Any other address requires a token of at least 16 characters,
    from --token-file or REEXPAND_CONSOLE_TOKEN. A browser sends it in a form, a program as
    `Authorization: Bearer TOKEN`. There is no TLS; use a TLS proxy in untrusted networks.

    Exit code 0 after SIGTERM or Ctrl-C, 1 if the address cannot be used, 2 if an option is invalid.

    \b
    Example:
      reexpand console --bootstrap-servers broker:9092 --open
      reexpand console --bootstrap-servers broker:9092 --http 0.0.0.0:9465 --token-file /run/secrets/console
    """
    import webbrowser
    from contextlib import ExitStack

    from streaming.console import server
    from streaming.console.app import console as application

    settings = root.settings(**topics, **kept("clock", "answers"))
    where = server.address(http)
    token = server.access_token(where, os.environ.get(server.VARIABLE), token_file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    def opened(url: str) -> None:
        click.echo(f"The console is at {url} - Ctrl-C stops it.")
        if in_browser:
            webbrowser.open(url)

    try:
        with ExitStack() as stack:
            about = {"dead letters": settings.dead_letters}
            sources = server.open_sources(stack, settings, about, max_rows=max_rows, parents=parents)
            server.serve(application(sources, token), where, opened)
    except KeyboardInterrupt:
        sys.exit(0)


@main.command()
@root.kafka_options
@click.option(
    "--topics", "topics_file", type=root.InputFile(), metavar="FILE",
    help="Topic events to read instead of Kafka, one per line; - is standard input.",
)  # fmt: skip
@click.option(
    "--patterns", "patterns_file", type=root.InputFile(), metavar="FILE",
    help="With --topics: subscription events, one per line, whose entries count as patterns.",
)  # fmt: skip
@click.option(
    "--parent",
    help="With --topics: parent topic of plain files, with one topic, or one pattern of dialect lite, per line.",
)  # fmt: skip
@click.option(
    "--allow-inner-multi/--no-allow-inner-multi", is_flag=True, default=None,
    help="The job allows ** inside a pattern.",
)  # fmt: skip
@click.option(
    "--cores", type=click.IntRange(1), default=os.cpu_count() or 1, show_default="those of this machine",
    help="Number of cores for the job, on all machines together.",
)  # fmt: skip
@json_option("Print one JSON object.")
@root.verbose_option
def advise(
    *,
    topics_file: BinaryIO | None,
    patterns_file: BinaryIO | None,
    parent: str | None,
    allow_inner_multi: bool | None,
    cores: int,
    as_json: bool,
) -> None:
    """Advise on shards, route depth and partitions.

    Reads the job's input topics, or files, from beginning to end, and writes nothing. Topic names come from the
    environment (REEXPAND_TOPIC_EVENTS, ...), as for `reexpand run`.

    Exit code 1 if there are no topics or Kafka cannot be read, 2 if an option is invalid.

    \b
    Example:
      reexpand advise --bootstrap-servers broker:9092 --cores 8
      reexpand advise --parent orders --topics topics.txt --patterns patterns.txt
      jq -c . topic-events.json | reexpand advise --topics - --json
    """
    import time

    from streaming.operations.advise import report, rule
    from streaming.operations.advise.inventory import Inventory

    if topics_file is None and (patterns_file is not None or parent is not None):
        raise click.UsageError("--patterns and --parent go with --topics")
    if topics_file is not None and any(kept("bootstrap_servers", "kafka_options").values()):
        raise click.UsageError("give either --topics, or Kafka by --bootstrap-servers")
    if topics_file is not None and topics_file is patterns_file:
        raise click.UsageError("only one of --topics and --patterns can be standard input")
    placeholder = {} if topics_file is None else {"bootstrap_servers": "unused"}
    settings = root.settings(allow_inner_multi=allow_inner_multi, **placeholder)
    found = Inventory(inner_multi=settings.allow_inner_multi)
    done: Counter[str] = Counter()
    with progress_line() as show:
        for block in _blocks(settings, topics_file, patterns_file, parent):
            found.feed(block.stream, block.records)
            done[block.stream] += len(block.records)
            show(f"reading {block.stream}", done[block.stream], block.total)
        holdings = found.holdings(time.time_ns() // 1_000_000)
        invalid = "entry is invalid and left out" if found.refused == 1 else "entries are invalid and left out"
        refused = [f"{found.refused:,} {invalid} ({found.first_refused})"] if found.refused else []
        if not any(holding.topics for holding in holdings.values()):
            raise ReexpandError("; ".join(["there are no topics to advise on", *refused]))
        advice = rule.advise(holdings, cores)
    warnings = [*refused, *advice.warnings]
    if as_json:
        click.echo(json.dumps(report.as_json(advice, warnings)))
    else:
        report.show(advice, warnings)


def _blocks(
    settings: "Settings", topics: BinaryIO | None, patterns: BinaryIO | None, parent: str | None
) -> "Iterator[InputBlock]":
    """Return the records of Kafka or of the files."""
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.advise import inventory

    if topics is None:
        return inventory.from_kafka(settings, for_librdkafka(settings))
    if parent is None:
        return inventory.from_files(topics, patterns)
    return inventory.from_plain_files(parent, topics, patterns)
