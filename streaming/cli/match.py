"""`reexpand match`, `expand` and `validate`: the verbs of the matcher, without Spark and Kafka."""

import dataclasses
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NamedTuple, cast

import click

import matcher
from matcher.dialects import POLICIES
from streaming.cli.root import combined, dialect_option, json_option, main
from streaming.errors import RefusalError
from streaming.printable import printable

_CHUNK: Final = 1 << 16


class PatternSyntax(NamedTuple):
    """Syntax of the patterns and topics of one command line."""

    dialect: str
    policy: str | None
    allow_inner_multi: bool


_syntax_options = combined(
    dialect_option("Dialect of patterns and topics."),
    click.option(
        "--policy", type=click.Choice(POLICIES),
        help="Match policy (wamp only); without one, patterns are read in the notation with '*'.",
    ),
    click.option("--allow-inner-multi", is_flag=True, help="Allow '**' before the end of a pattern (lite only)."),
    json_option("Print one JSON object per line."),
)  # fmt: skip


@main.command()
@click.argument("pattern")
@click.argument("topic")
@_syntax_options
@click.option("--explain", is_flag=True, help="Show the verdict on each segment.")
@click.pass_context
def match(ctx: click.Context, /, pattern: str, topic: str, *, as_json: bool, explain: bool, **given: Any) -> None:
    """Check whether PATTERN matches TOPIC.

    Exit code 0 if it matches, 1 if it does not, 2 if the pattern is invalid. With --json, an invalid pattern has
    null for "matched", and the fields of `reexpand validate --json`.

    \b
    Example:
      reexpand match 'pay__*' pay__refund
      reexpand match --explain --dialect mqtt 'eu/+/temp' eu/berlin/humidity
    """
    syntax = PatternSyntax(**given)
    if as_json and (flaw := _flaw(pattern, syntax)):
        click.echo(json.dumps({**_verdict(pattern, flaw), "topic": topic, "matched": None}))
        ctx.exit(2)
    matcher.validate(pattern, **syntax._asdict())
    explanation = matcher.explain(pattern, topic, **syntax._asdict())
    if as_json:
        shown = dataclasses.asdict(explanation) if explain else {"pattern": pattern, "topic": topic}
        click.echo(json.dumps({**shown, "matched": explanation.matched}))
    elif explain:
        click.echo(str(explanation))
    else:
        click.echo("match" if explanation.matched else "no match")
    ctx.exit(0 if explanation.matched else 1)


@main.command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@_syntax_options
@click.pass_context
def expand(ctx: click.Context, /, patterns: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Print the topics of standard input that a PATTERN matches.

    Standard input has one topic per line. Matching topics are printed in their order, as soon as they are read, and
    repeated topics again. With --json, each topic has the patterns that match it.

    Exit code 0 if at least one topic matches, 1 if none does, 2 if a pattern is invalid.

    \b
    Example:
      reexpand expand 'pay__*' 'refund__**' < topics.txt
      tail -f topics.txt | reexpand expand --dialect nats 'orders.>'
    """
    syntax = PatternSyntax(**given)
    index: matcher.PatternIndex[str] = matcher.PatternIndex(syntax.dialect, allow_inner_multi=syntax.allow_inner_multi)
    for pattern in patterns:
        matcher.validate(pattern, **syntax._asdict())
        index.add(pattern, pattern, policy=syntax.policy)
    if sys.stdin is None:
        raise click.UsageError("standard input is closed; give it the topics, one per line")
    source, sink = cast("io.BufferedReader", sys.stdin.buffer), sys.stdout.buffer
    found = False
    for topics in _topics(source):
        pairs = ((topic, index.match(topic)) for topic in topics)
        lines = [_line(topic, matching, as_json=as_json) for topic, matching in pairs if matching]
        found = found or bool(lines)
        if not _write(sink, lines):
            break
    ctx.exit(0 if found else 1)


@main.command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@_syntax_options
@click.pass_context
def validate(ctx: click.Context, /, patterns: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Check each PATTERN, and show how to fix an invalid one.

    Exit code 0 if all are valid, 1 if one is invalid.

    \b
    Example:
      reexpand validate 'pay__*' 'pay__**__x'
      reexpand validate --dialect mqtt --json 'eu/#/x' | jq .hint
    """
    syntax = PatternSyntax(**given)
    flaws = [_flaw(pattern, syntax) for pattern in patterns]
    for pattern, flaw in zip(patterns, flaws, strict=True):
        if as_json:
            click.echo(json.dumps(_verdict(pattern, flaw)))
        else:
            click.echo(f"valid pattern {pattern!r}" if flaw is None else str(flaw))
    ctx.exit(0 if not any(flaws) else 1)


def _flaw(pattern: str, syntax: PatternSyntax) -> matcher.InvalidPattern | None:
    """Return the error of an invalid pattern, None for a valid one."""
    try:
        matcher.validate(pattern, **syntax._asdict())
    except matcher.InvalidPattern as error:
        return error
    return None


def _verdict(pattern: str, flaw: matcher.InvalidPattern | None) -> dict[str, Any]:
    if flaw is None:
        return {"pattern": pattern, "valid": True}
    place = {"segment": flaw.segment, "position": flaw.position}
    return {"pattern": pattern, "valid": False, **place, "reason": flaw.reason, "hint": flaw.hint}


def _topics(source: io.BufferedReader) -> Iterator[list[str]]:
    """Yield the lines of the source as they arrive, many at a time; keep bytes other than UTF-8."""
    pieces: list[bytes] = []
    while chunk := source.read1(_CHUNK):
        head, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield _decoded(b"".join((*pieces, head)))
            pieces.clear()
        pieces.append(rest)
    if any(pieces):
        yield _decoded(b"".join(pieces))


def _decoded(lines: bytes) -> list[str]:
    return [line.removesuffix(b"\r").decode(errors="surrogateescape") for line in lines.split(b"\n")]


def _line(topic: str, patterns: list[str], *, as_json: bool) -> bytes:
    text = json.dumps({"topic": topic, "patterns": patterns}) if as_json else topic
    if sys.stdout.isatty():  # a pipe gets each byte as it came
        text = printable(text)
    return text.encode(errors="surrogateescape") + b"\n"


def _write(sink: BinaryIO, lines: list[bytes]) -> bool:
    """Write the lines at once; return False if the reader has closed it."""
    try:
        sink.write(b"".join(lines))
        sink.flush()
    except OSError as error:
        # Python flushes the rest again at exit, which must not fail a second time.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sink.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            raise RefusalError(f"the topics cannot be written: {error}") from error
        return False
    return True
