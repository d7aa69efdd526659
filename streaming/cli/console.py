"""`reexpand console`: the standalone console."""
# ruff: noqa: PLC0415 - a verb imports its own needs

import signal
import sys
from pathlib import Path

import click

from streaming.cli import root
from streaming.cli.root import connection_options


@click.command()
@click.option(
    "--http", "http", default="127.0.0.1:9465", show_default=True, metavar="HOST:PORT",
    help="Address of the page; port 0 for a free port.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the token that a browser must send; required if other machines can reach the address.",
)  # fmt: skip
@click.option("--updates", default=None, help="Updates topic of the job. [default: lite-subscription-updates]")
@click.option("--dead-letters", default=None, help="Topic of the dead letters. [default: lite-dead-letters]")
@click.option("--parent", "parents", multiple=True, help="Only the rows of this parent topic; repeatable.")
@click.option(
    "--max-rows", type=click.IntRange(1), default=1_000_000, show_default=True,
    help="Maximum number of rows in memory; each takes some 350 bytes.",
)  # fmt: skip
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser of this machine.")
@connection_options
def console(
    *,
    http: str,
    token_file: Path | None,
    updates: str | None,
    dead_letters: str | None,
    parents: tuple[str, ...],
    max_rows: int,
    in_browser: bool,
) -> None:
    """Serve a web page with topics, clients and live updates.

    The page shows the tree of topics with their receivers, the clients, live updates, dead letters, and a playground
    for patterns of all dialects. The console reads the updates topic and the dead letters, and needs no running job.

    On a loopback address it answers only this machine. Any other address requires a token of at least 16 characters,
    from --token-file or REEXPAND_CONSOLE_TOKEN. A browser sends it in a form, a program as
    `Authorization: Bearer TOKEN`. There is no TLS; use a TLS proxy in untrusted networks.

    Exit code 0 after SIGTERM or Ctrl-C, 1 if the address cannot be used, 2 if an option is invalid.

    \b
    Example:
      reexpand console --bootstrap-servers broker:9092 --open
      reexpand console --bootstrap-servers broker:9092 --http 0.0.0.0:9465 --token-file /run/secrets/console
    """
    import os
    import webbrowser
    from contextlib import ExitStack

    from streaming.console import server
    from streaming.console.app import console as application

    settings = root.settings(updates=updates, dead_letters=dead_letters)
    where = server.address(http)
    access = server.access(where, os.environ.get(server.VARIABLE), token_file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    def opened(url: str) -> None:
        click.echo(f"The console is at {url} - Ctrl-C stops it.")
        if in_browser:
            webbrowser.open(url)

    try:
        with ExitStack() as stack:
            about = {"dead letters": settings.dead_letters}
            sources = server.open_sources(stack, settings, about, max_rows=max_rows, parents=parents)
            server.serve(application(sources, access), where, opened)
    except KeyboardInterrupt:
        sys.exit(0)
