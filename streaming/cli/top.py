"""`reexpand top`: rates, lag, slowest shards and busiest clients of a job, refreshed on the terminal."""

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from streaming.cli import context, output
from streaming.cli.root import COUNT, FILE, Seconds, json_option, main
from streaming.cli.status import JobServer, figures, job_options, screen
from streaming.errors import ConfigInvalid, Unanswered
from streaming.printable import printable

_UNAUTHORIZED, _NOT_FOUND = 401, 404

_TOKEN_VARIABLE: Final = "REEXPAND_HTTP_TOKEN"  # noqa: S105 - a name


def _token(file: Path | None) -> str | None:
    """Return the token of the job's console, from a file, the context or the environment.

    Raises:
        ConfigInvalid: it cannot be read, or cannot be in a header.
    """
    found = context.option("token_file", "http_token_file", file)
    file = None if found is None else Path(str(found))
    try:
        token = os.environ.get(_TOKEN_VARIABLE, "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"the token cannot be read from {file}: {error}") from None
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise ConfigInvalid(f"the token in {file or _TOKEN_VARIABLE} must be one line of ASCII characters")
    return token or None


def _of_console(job: JobServer, token: str | None) -> dict[str, Any]:
    """Return the slowest shards and busiest clients from the job's console, or the reason why it shows none."""
    status, text = job.get("/api/overview", token)
    try:
        found = json.loads(text)
        return {"slowest_shards": found["shards"] or [], "busiest_clients": found["busiest"], "console": None}
    except (ValueError, KeyError, TypeError):
        reasons = {
            _UNAUTHORIZED: f"the job's console needs its token: --token-file or {_TOKEN_VARIABLE}",
            _NOT_FOUND: "the job has no console at this address, because it has no token: set its --http-token-file",
        }
        reason = reasons.get(status, f"the job's console returned the status {status}")
        return {"slowest_shards": [], "busiest_clients": [], "console": reason}


def _screens(job: JobServer, token: str | None, interval: float) -> Iterator[dict[str, Any]]:
    """Yield the figures of each interval."""
    first = job.scrape()
    while True:
        time.sleep(interval)
        health, last = job.health(), job.scrape()
        yield {"health": health, "figures": figures(first, last), **_of_console(job, token)}
        first = last


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a screen. Names are last, because a terminal cuts long lines."""
    yield from screen(found["health"], found["figures"])
    yield ""
    if found["console"] is not None:
        yield f"no shards and clients: {found['console']}"
        return
    yield "slowest shards of the last five minutes"
    yield "  longest wait     topics    clients       state  parent topic, shard"
    for each in found["slowest_shards"]:
        size = math.ceil(each["bytes"] / 1_000)
        numbers = f"{each['seconds']:>12.3f} s {each['topics']:>10,} {each['clients']:>10,} {size:>8,} kB"
        yield f"{numbers}  {each['parent']}, {each['shard']}"
    yield ""
    yield "clients with most updates, of the last 2,000"
    yield "       updates     topics  parent topic, group/client"
    for each in found["busiest_clients"]:
        part = f" ({each['part']})" if each["part"] else ""
        yield f"{each['updates']:>14,} {each['topics']:>10,}  {each['parent']} {each['group']}/{each['client']}{part}"


def _patient(job: JobServer, token: str | None, interval: float) -> Iterator[str]:
    """Yield the text of each screen. After the first screen, a job that restarts is waited for."""
    found = _screens(job, token, interval)
    lines = list(_lines(next(found)))
    while True:
        yield "\n".join(map(printable, lines))
        try:
            lines = list(_lines(next(found)))
        except Unanswered as error:
            time.sleep(interval)
            lines, found = [str(error)], _screens(job, token, interval)


def _refresh(screens: Iterator[str]) -> None:
    """Refresh the terminal until Ctrl-C or the last screen, and leave that one on it."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    text = ""
    try:
        with Live(console=Console(), screen=True, auto_refresh=False) as live:
            for text in screens:
                live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
    finally:
        click.echo(text, nl=bool(text))


@main.command()
@job_options
@click.option(
    "--interval", type=Seconds(0.2), default=2, show_default=True, metavar="SECONDS",
    help="Time between screens, over which rates are measured.",
)  # fmt: skip
@click.option(
    "-n", "--count", type=COUNT, metavar="N",
    help="Stop after this number of screens. [default: no limit on a terminal and with --json, otherwise 1]",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Stop after the first screen.")
@click.option(
    "--token-file", type=FILE, envvar="REEXPAND_HTTP_TOKEN_FILE",
    help="File with the token of the job's console. Environment variable: REEXPAND_HTTP_TOKEN_FILE.",
)  # fmt: skip
@json_option("Print each screen as a JSON object, one per line.")
def top(
    *, http: str, timeout: float, interval: float, count: int | None, once: bool, token_file: Path | None, as_json: bool
) -> None:
    """Refresh a screen with rates, lag, shards and clients.

    It shows the slowest shards, and the clients with most updates, until Ctrl-C.

    Reads /healthz and /metrics, as `reexpand status`, and the overview of the job's console, which then starts to read
    the updates topic. On an address that other machines can reach, the console needs its token, from --token-file or
    REEXPAND_HTTP_TOKEN; without it, shards and clients are not shown.

    Updates by client are counted since the console was first opened.

    Exit code 0, also after Ctrl-C; 1 if no job answers, 2 if an option is invalid.

    \b
    Example:
      reexpand top
      reexpand top --context prod
      reexpand top --once --json
    """
    job, token = JobServer.of(http, timeout), _token(token_file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the terminal gets its former content back
    count = 1 if once else count
    try:
        if as_json:
            for found in islice(_screens(job, token, interval), count):
                parts = {name: found[name] for name in ("slowest_shards", "busiest_clients", "console")}
                output.json_line({**found["health"], **found["figures"], **parts})
        elif sys.stdout.isatty():
            _refresh(islice(_patient(job, token, interval), count))
        else:
            for text in islice(_patient(job, token, interval), count or 1):
                click.echo(text)
    except KeyboardInterrupt:
        click.echo(err=True)
