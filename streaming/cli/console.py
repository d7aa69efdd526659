"""`reexpand console`: the page for browsers, on its own."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streaming.cli.root import bootstrap_servers_option, kafka_options_option, verbose_option

if TYPE_CHECKING:
    from streaming.address import Address
    from streaming.config import Settings
    from streaming.console.access import Access


@click.command()
@bootstrap_servers_option
@click.option(
    "--http", "http", default="127.0.0.1:9465", show_default=True, metavar="HOST:PORT",
    help="Address of the page; port 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the token that a browser must give; required where other machines reach the address.",
)  # fmt: skip
@click.option("--updates", default=None, help="Updates topic of the job. [default: lite-subscription-updates]")
@click.option("--dead-letters", default=None, help="Topic of the dead letters. [default: lite-dead-letters]")
@click.option("--parent", "parents", multiple=True, help="Only the rows of this parent topic; repeatable.")
@click.option(
    "--max-rows", type=click.IntRange(1), default=1_000_000, show_default=True,
    help="Number of rows of the relation that are kept; each takes some 350 bytes.",
)  # fmt: skip
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser of this machine.")
@kafka_options_option
@verbose_option
def console(
    *,
    bootstrap_servers: str | None,
    http: str,
    token_file: Path | None,
    updates: str | None,
    dead_letters: str | None,
    parents: tuple[str, ...],
    max_rows: int,
    in_browser: bool,
    kafka_options: Path | None,
) -> None:
    """Serve a page for browsers that shows who receives what.

    It reads the updates topic and the dead letters, and needs no job. It shows the tree of topics with their receivers,
    the clients, changes as they come, dead letters, and a playground for patterns of all dialects.

    On a loopback address it answers this machine only. On any other one it needs a token of at least 16 characters,
    from --token-file or from REEXPAND_CONSOLE_TOKEN: a browser gives it in a form, a program as
    `Authorization: Bearer TOKEN`. There is no TLS; put a proxy before it where the network is not trusted.

    Exit code 0 after SIGTERM or Ctrl-C, 1 when the address cannot be used, 2 when an option is wrong.

    \b
    Example:
      reexpand console --bootstrap-servers broker:9092 --open
      reexpand console --bootstrap-servers broker:9092 --http 0.0.0.0:9465 --token-file /run/secrets/console
    """
    import os

    from streaming import config
    from streaming.console import server

    settings = config.load(
        {
            "bootstrap_servers": bootstrap_servers,
            "updates": updates,
            "dead_letters": dead_letters,
            "checkpoint": "unused",
            "kafka_options": kafka_options,
        }
    )
    where = server.address(http)
    access = server.access(where, os.environ.get(server.VARIABLE), token_file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        _serve(settings, where, access, parents, max_rows, in_browser=in_browser)
    except KeyboardInterrupt:
        sys.exit(0)


def _serve(
    settings: "Settings",
    where: "Address",
    access: "Access",
    parents: tuple[str, ...],
    max_rows: int,
    *,
    in_browser: bool,
) -> None:
    """Serve the page until it is stopped."""
    import webbrowser

    from streaming.console import server
    from streaming.console.app import console as application
    from streaming.console.explaining import UpdatesExplainer
    from streaming.console.job_explaining import JobExplainer
    from streaming.console.live import LiveRelation
    from streaming.console.sources import ConsoleSources
    from streaming.kafka.options import for_librdkafka
    from streaming.operations.dlq.tail import LetterTail

    options, servers = for_librdkafka(settings), settings.bootstrap_servers
    about = {"broker": servers, "updates": settings.updates, "dead letters": settings.dead_letters}

    def opened(url: str) -> None:
        click.echo(f"The console is at {url} - Ctrl-C stops it.")
        if in_browser:
            webbrowser.open(url)

    with (
        LiveRelation(servers, settings.updates, options=options, max_rows=max_rows, parents=parents) as relation,
        LetterTail(servers, settings.dead_letters, options) as letters,
    ):
        sources = ConsoleSources(relation, JobExplainer(settings, UpdatesExplainer(relation)), letters, about=about)
        server.serve(application(sources, access), where, opened)
