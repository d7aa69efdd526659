"""The commands of `reexpand` that need nothing but the matcher: no Spark, no Kafka."""

import dataclasses
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar, cast

import click

import matcher
from matcher.dialects.wamp import POLICIES

F = TypeVar("F", bound=Callable[..., Any])

_CHUNK: Final = 1 << 16  # bytes of topics that are read at once, at most


class Notation(NamedTuple):
    """How the patterns and topics of a command line are to be read."""

    dialect: str
    policy: str | None
    allow_inner_multi: bool


class _Refused(click.ClickException):
    """What cannot be done, in one sentence."""

    exit_code = 2


@contextmanager
def _refusing() -> Iterator[None]:
    """Turn the errors of the matcher into a sentence and exit code 2."""
    try:
        yield
    except matcher.UnsupportedOption as error:
        raise click.UsageError(str(error)) from error
    except matcher.InvalidPattern as error:
        raise _Refused(str(error)) from error


def _notation(command: F) -> F:
    """Add the options that all commands share."""
    options = [
        click.option(
            "--dialect", type=click.Choice(list(matcher.DIALECTS)), default="lite", show_default=True,
            help="The language of patterns and topics.",
        ),
        click.option(
            "--policy", type=click.Choice(POLICIES), default=None,
            help="The match policy (wamp only); without one, the common notation with '*' is read.",
        ),
        click.option("--allow-inner-multi", is_flag=True, help="Take '**' before the end of a pattern (lite only)."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("pattern")
@click.argument("topic")
@_notation
@click.option("--explain", is_flag=True, help="Show segment by segment why.")
@click.pass_context
def match(ctx: click.Context, /, pattern: str, topic: str, *, as_json: bool, explain: bool, **given: Any) -> None:
    """Say whether PATTERN matches TOPIC.

    Exit code 0 when it does, 1 when it does not, 2 when the pattern is invalid.

    \b
    Example:
      reexpand match 'pay__*' pay__refund
      reexpand match --explain --dialect mqtt 'eu/+/temp' eu/berlin/humidity
    """
    with _refusing():
        explanation = matcher.explain(pattern, topic, **Notation(**given)._asdict())
    if as_json:
        shown = dataclasses.asdict(explanation) if explain else {"pattern": pattern, "topic": topic}
        click.echo(json.dumps({**shown, "matched": explanation.matched}))
    elif explain:
        click.echo(str(explanation))
    else:
        click.echo("match" if explanation.matched else "no match")
    ctx.exit(0 if explanation.matched else 1)


@click.command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@_notation
@click.pass_context
def expand(ctx: click.Context, /, patterns: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Print the topics, one a line from standard input, that at least one PATTERN matches.

    They come in their order and as soon as they are read; a topic that comes twice is printed twice. With --json, each
    comes with the patterns that match it. Exit code 0 when there was one, 1 when there was none, 2 when a pattern is
    invalid.

    \b
    Example:
      reexpand expand 'pay__*' 'refund__**' < topics.txt
      tail -f topics.txt | reexpand expand --dialect nats 'orders.>'
    """
    notation = Notation(**given)
    index: matcher.PatternIndex[str] = matcher.PatternIndex(
        notation.dialect, allow_inner_multi=notation.allow_inner_multi
    )
    with _refusing():
        for pattern in patterns:
            index.add(pattern, pattern, policy=notation.policy)
    if sys.stdin is None:
        raise click.UsageError("standard input is closed; give it the topics, one a line")
    source, sink = cast("io.BufferedReader", sys.stdin.buffer), sys.stdout.buffer
    found = False
    for topics in _topics(source):
        pairs = ((topic, index.match(topic)) for topic in topics)
        lines = [_line(topic, matching, as_json=as_json) for topic, matching in pairs if matching]
        found = found or bool(lines)
        if not _write(sink, lines):
            break
    ctx.exit(0 if found else 1)


@click.command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@_notation
@click.pass_context
def validate(ctx: click.Context, /, patterns: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Say of each PATTERN whether it is valid; if not, where it is wrong and how to mend it.

    Exit code 0 when all are valid, 1 when one is not.

    \b
    Example:
      reexpand validate 'pay__*' 'pay__**__x'
      reexpand validate --dialect mqtt --json 'eu/#/x' | jq .hint
    """
    notation = Notation(**given)
    flaws = [_flaw(pattern, notation) for pattern in patterns]
    for pattern, flaw in zip(patterns, flaws, strict=True):
        if as_json:
            click.echo(json.dumps(_verdict(pattern, flaw)))
        else:
            click.echo(f"valid pattern {pattern!r}" if flaw is None else str(flaw))
    ctx.exit(0 if not any(flaws) else 1)


COMMANDS: Final = (match, expand, validate)


def _flaw(pattern: str, notation: Notation) -> matcher.InvalidPattern | None:
    with _refusing():
        try:
            matcher.validate(pattern, **notation._asdict())
        except matcher.InvalidPattern as error:
            return error
    return None


def _verdict(pattern: str, flaw: matcher.InvalidPattern | None) -> dict[str, Any]:
    if flaw is None:
        return {"pattern": pattern, "valid": True}
    place = {"segment": flaw.segment, "position": flaw.position}
    return {"pattern": pattern, "valid": False, **place, "reason": flaw.reason, "hint": flaw.hint}


def _topics(source: io.BufferedReader) -> Iterator[list[str]]:
    """Yield the lines of the source, as many at a time as have come; bytes that are no UTF-8 stay what they are."""
    pieces: list[bytes] = []
    while chunk := source.read1(_CHUNK):
        head, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield [_topic(line) for line in b"".join((*pieces, head)).split(b"\n")]
            pieces.clear()
        pieces.append(rest)
    last = b"".join(pieces)
    if last:
        yield [_topic(last)]


def _topic(line: bytes) -> str:
    return line.removesuffix(b"\r").decode(errors="surrogateescape")


def _line(topic: str, patterns: list[str], *, as_json: bool) -> bytes:
    text = json.dumps({"topic": topic, "patterns": patterns}) if as_json else topic
    return text.encode(errors="surrogateescape") + b"\n"


def _write(sink: BinaryIO, lines: list[bytes]) -> bool:
    """Write the lines at once; return whether there is still a reader."""
    try:
        sink.write(b"".join(lines))
        sink.flush()
    except OSError as error:
        # What could not be written is written again at exit, so that has to end somewhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sink.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            raise _Refused(f"the topics cannot be written: {error}") from error
        return False
    return True
