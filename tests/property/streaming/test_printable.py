"""Texts of strangers leave every printer in printable characters."""

import io
import json
import logging
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from streaming.adapters.watch import in_words
from streaming.cli import output
from streaming.examples.screen import Screen
from streaming.examples.verdict import Coordinates, DeadLetter, ReceivedUpdate
from streaming.inspect import SegmentStep, wording
from streaming.inspect.api import Explanation
from streaming.inspect.effects import DryRun, ParentEffect
from streaming.operations.verify import findings as verification
from streaming.operations.verify.findings import DamagedState, Difference, Fault, Findings, RowName, UpdateRecord
from streaming.oracle import Effective
from streaming.printable import printable, printable_json, quoted
from streaming.records.updates import Cause, Op
from streaming.worker.inquiry.model import (
    BindingFacts,
    ClientFacts,
    EntryVerdict,
    EventPlace,
    GroupFacts,
    Hint,
    LeaseFacts,
    PairFacts,
    PairVerdict,
    PlannedProblem,
    PlannedUpdate,
    SubscriberFacts,
    SubscriptionFacts,
    TopicDetails,
    TopicFacts,
)

texts = st.text(st.characters() | st.sampled_from("\x1b\x07\x9b\r\n\t\u202e\u2028\u200b\x7f[]'\"\\"), max_size=12)
forged = "x\n2026-01-01 ERROR forged\x1b]0;title\x07\x1b[31m\u202e[red]\r\ud800"


def place(text: str) -> EventPlace:
    return EventPlace(text, 0, 7)


def pair(text: str) -> PairFacts:
    steps = (SegmentStep(text, text, fits=False, verdict=text),)
    return PairFacts(
        text, text, text, text, PairVerdict.NO_MATCH, text, place(text), TopicFacts(text, text, {text: text}),
        group(text), client(text), (), (EntryVerdict(text, text, text, False, text, steps, place(text)),), text,
        hints=(Hint("x", text),),
    )  # fmt: skip


def group(text: str) -> GroupFacts:
    return GroupFacts(text, {text: text}, text, True, 1, (text, text), text, place(text))


def client(text: str) -> ClientFacts:
    return ClientFacts(text, text, True, 1, False, 1, place(text))


def lease(text: str) -> LeaseFacts:
    return LeaseFacts(text, text, (text, text), place(text), 1)


def dry_run(text: str) -> DryRun:
    update = PlannedUpdate("ADD", text, text, text, text, text, text)
    return DryRun(text, (ParentEffect(text, 1, 0, (update,), True),), (PlannedProblem(text, text),), (text,))


def explanation(text: str) -> Explanation:
    return Explanation(pair(text), BindingFacts(text, text, place(text)), lease(text), 1, (Hint("x", text),))


def update(text: str) -> dict[str, Any]:
    names = dict.fromkeys(("parentTopic", "group", "clientId", "liteTopic", "cause", "subscription", "op"), text)
    return {**names, "patterns": [text, text], "source": {"topic": text, "partition": 0, "offset": 1}}


def verify(text: str) -> None:
    row = RowName(text, text, text, text, text)
    record = UpdateRecord(0, 1, 1, {"op": text, "cause": text})
    difference = Difference(b"", row, Fault.SURPLUS_UPDATE, inputs=False, state=False, updates=True, record=record)
    found = Findings(7, {text: 1}, differences=[difference])
    found.notes, found.damaged = [text], [DamagedState(text, 1, text)]
    verification.show(found, Console(highlight=False))


def screen(text: str) -> None:
    shown = Screen(Console(highlight=False))
    row = Effective(text, text, text, text)
    shown.update(ReceivedUpdate(Op.ADD, row, (text,), Cause.SUBSCRIBED, 1, 2), cold=False)
    shown.dead_letter(DeadLetter(text, text, Coordinates(text, 0, 7), 1))


def topic_details(text: str) -> str:
    subscriber = SubscriberFacts(text, text, text, (text,))
    return wording.topic_details(text, text, TopicDetails(TopicFacts(text, text, {text: text}), (subscriber,), 2))


def subscription(text: str) -> str:
    return wording.subscription(SubscriptionFacts(text, text, text, text, text, True, place(text)))


def event(text: str) -> str:
    return in_words(orjson.dumps({"event": "CREATED", "liteTopic": text.encode("utf-8", "replace").decode()}))


PRINTERS: dict[str, Callable[[str], None]] = {
    "tail": lambda text: output.line(wording.update(update(text))),
    "topics list": lambda text: output.line(wording.topic(TopicFacts(text, text, {text: text}))),
    "topics show": lambda text: output.lines(topic_details(text)),
    "subscriptions": lambda text: output.line(subscription(text)),
    "clients": lambda text: output.line(wording.client(client(text))),
    "leases": lambda text: output.line(wording.client(lease(text))),
    "groups": lambda text: output.line(wording.group(group(text))),
    "bindings": lambda text: output.line(wording.group(BindingFacts(text, text, place(text)))),
    "explain": lambda text: output.lines(wording.explanation(explanation(text))),
    "plan": lambda text: output.lines(wording.dry_run(dry_run(text))),
    "watch": lambda text: output.line(event(text)),
    "json": lambda text: output.json_line({text: text}),
    "verify": verify,
    "demo": screen,
}


def written(print_text: Callable[[str], None], text: str) -> str:
    stream = io.StringIO()
    with redirect_stdout(stream), redirect_stderr(stream):
        print_text(text)
    return stream.getvalue()


@pytest.mark.parametrize("printer", PRINTERS)
@given(text=texts)
@example(text=forged)
def test_any_text_is_printed_in_printable_characters(printer: str, text: str) -> None:
    """And no line end of a name begins a line."""
    found = written(PRINTERS[printer], text)
    assert found.replace("\n", "").isprintable()
    if printer not in ("verify", "demo"):  # their lines are folded
        assert found.count("\n") == written(PRINTERS[printer], "name").count("\n")


@pytest.mark.parametrize("form", ["text", "json"])
@given(text=texts)
@example(text=forged)
def test_any_text_is_logged_in_one_printable_line(form: output.Form, text: str) -> None:
    formatter = output._handler(form).formatter
    assert formatter is not None
    for message, arguments in (("%s", (text,)), (text, ()), ("%s", (ValueError(text),))):
        record = logging.LogRecord("reexpand", logging.WARNING, "", 1, message, arguments, None)
        assert formatter.format(record).isprintable()
    if form == "json":
        assert json.loads(formatter.format(record))["event"] == text


@given(text=texts)
@example(text=forged)
def test_a_traceback_is_printable_and_indented(text: str) -> None:
    try:
        raise ValueError(text)  # noqa: TRY301 - its traceback is what is formatted
    except ValueError as error:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "failed", (), (type(error), error, error.__traceback__))
    formatter = output._handler("text").formatter
    assert formatter is not None
    first, *others = formatter.format(record).split("\n")
    assert all(line.isprintable() and line.startswith("    ") for line in others)
    assert first.endswith("failed")


@given(text=texts)
@example(text=forged)
def test_the_error_that_ends_a_verb_is_printable(text: str) -> None:
    first, *others = written(output.say_error, text).removesuffix("\n").split("\n")
    assert first.startswith("Error: ")
    assert all(line.startswith("    ") for line in others)
    assert all(line.isprintable() for line in (first, *others))


@given(value=st.recursive(texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)))
def test_json_keeps_its_meaning(value: Any) -> None:
    document = printable_json(json.dumps(value, ensure_ascii=False))
    assert document.isprintable()
    assert json.loads(document) == value


@given(text=texts)
def test_printable_text_stays_as_it_is(text: str) -> None:
    assert printable(text).isprintable()
    assert (printable(text) == text) == text.isprintable()


@pytest.mark.parametrize("name", ["x; touch y", "$(touch y)", "a'b\\", "\x1b[31m", "a\nb", "-x", "\u202e'\\n", ""])
def test_a_shell_reads_a_quoted_name_as_it_was(name: str) -> None:
    command = f"printf %s {quoted(name)}"
    assert command.isprintable()
    if not name.startswith("-"):
        said = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
        assert said.stdout.decode() == name
