"""What is sent and followed by hand: told apart, checked, chosen, and shown in words."""

import json
import re
from contextlib import nullcontext
from typing import Any

import pytest
from click import BadParameter
from click.testing import CliRunner

from matcher import InvalidPattern
from streaming.cli import main
from streaming.cli.ask import start_time
from streaming.config import load
from streaming.errors import ReexpandError
from streaming.inspect import wording
from streaming.inspect.following import Chosen, first_offset
from streaming.inspect.planning import PlannedRecord, read, stream_of, text_of
from streaming.kafka.reader import Span
from streaming.records.model import Stream
from streaming.records.schema_models import SourceSchema, UpdateSchema
from streaming.worker.bounds import bounds_of
from streaming.worker.inquiry.model import EventPlace
from streaming.worker.signature import Signer
from tests.support.events import created, encoded, replace
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add

BOUNDS = bounds_of(load({"bootstrap_servers": "b:1", "checkpoint": "c"}))
UPDATE: dict[str, Any] = {
    "op": "ADD", "parentTopic": "p", "group": "g", "clientId": "c", "liteTopic": "a__1", "patterns": ["a__*"],
    "cause": "SUBSCRIBED", "source": {"topic": "s", "partition": 2, "offset": 7, "entry": 1, "timestamp": 5},
}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "stream"),
    [
        (created(), Stream.TOPICS),
        (replace("t"), Stream.SUBSCRIPTIONS),
        ({"subscriptionSet": [replace("t")]}, Stream.SUBSCRIPTIONS),
        ({"group": "g", "attributes": {}}, Stream.GROUPS),
    ],
)
def test_a_record_is_told_by_its_fields(record: dict[str, Any], stream: Stream) -> None:
    assert stream_of(record) is stream
    assert read(stream, text_of(record), BOUNDS) == PlannedRecord(record)


def test_each_entry_of_a_record_is_checked() -> None:
    record = {"subscriptionSet": [replace("t"), replace("t", action="SHOUT"), replace("t", group=" ")]}
    found, problems, _ = read(Stream.SUBSCRIPTIONS, text_of(record), BOUNDS)
    assert [problem.reason for problem in problems] == ["unknown-action", "blank-name"]
    assert found == {"subscriptionSet": [replace("t")]}


PLAIN = encoded(replace("t"))


@pytest.mark.parametrize(
    ("stream", "text", "reason"),
    [
        (Stream.SUBSCRIPTIONS, PLAIN[:-1] + b',"clientId":"d"}', "duplicate-field"),
        (Stream.SUBSCRIPTIONS, b'{"subscriptionSet":[%b],"x":1,"x":2}' % PLAIN, "duplicate-field"),
        (Stream.SUBSCRIPTIONS, PLAIN[:-1] + b',"expired":true}', "reserved-field"),
        (Stream.SUBSCRIPTIONS, PLAIN[:-1] + b',"asOf":[0,1,2]}', "reserved-field"),
        (Stream.GROUPS, b'{"group":"g","attributes":{},"supersededBy":[0,1,2]}', "reserved-field"),
        (Stream.SUBSCRIPTIONS, PLAIN[:-1] + b',"version":NaN}', "not-json"),
        (Stream.SUBSCRIPTIONS, PLAIN[:-1] + b',"x":"\\ud800"}', "not-json"),
        (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"p","liteTopic":"\\udfff"}', "not-json"),
        (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"p","liteTopic":5}', "wrong-type"),
        (Stream.TOPICS, b'{"event":"CREATED","parentTopic":"p","liteTopic":"%b"}' % (b"x" * 20_000), "name-too-long"),
        (Stream.SUBSCRIPTIONS, b'{"subscriptionSet":[%b]}' % b",".join([b"{}"] * 1_025), "out-of-range"),
        (Stream.GROUPS, b'{"group":"g","attributes":{},"x":"%b"}' % (b"x" * 1_000_000), "value-too-large"),
        (Stream.SUBSCRIPTIONS, b'{"subscriptionSet":[%b,"x":%b}]}' % (PLAIN[:-1], b"[" * 300 + b"]" * 300), "too-deep"),
    ],
)
def test_a_dead_letter_is_foretold(stream: Stream, text: bytes, reason: str) -> None:
    """What Python's parser takes in silence, and the job does not."""
    found, problems, ignored = read(stream, text, BOUNDS)
    assert (found, [problem.reason for problem in problems], ignored) == (None, [reason], ())


def test_a_record_of_another_job_is_ignored() -> None:
    text = Signer(b"another").sign(PLAIN[:-1] + b',"expired":true}')
    assert read(Stream.SUBSCRIPTIONS, text, BOUNDS) == PlannedRecord(None, (), ("signed-by-another-job",))


@pytest.mark.parametrize(
    ("chosen", "takes"),
    [
        (Chosen(), True),
        (Chosen(parent="p", group="g", client="c", op="ADD"), True),
        (Chosen(client="d"), False),
        (Chosen(op="REMOVE"), False),
        (Chosen(topic="a__1"), True),
        (Chosen(topic="a__*"), True),
        (Chosen(topic="b__*"), False),
        (Chosen(topic="a__1", dialect="nats"), True),
        (Chosen(source=EventPlace("s", 2, 7)), True),
        (Chosen(source=EventPlace("s", 2, 8)), False),
    ],
)
def test_updates_are_chosen(chosen: Chosen, takes: bool) -> None:  # noqa: FBT001 - as the table says
    assert chosen.predicate()(UPDATE) is takes
    with pytest.raises(InvalidPattern):
        Chosen(topic="a*").predicate()


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("tail", "--topic", "a*"), "--topic"),
        (("tail", "--topic", "a", "--dialect", "klingon"), "--dialect"),
        (("tail", "--since", "yesterday"), "--since"),
        (("tail", "--since", "1d", "-o", "-10"), "--offset"),
        (("tail", "--from-beginning", "-o", "7"), "--offset"),
        (("tail", "--format", "{client}"), "no field 'client'; its fields are op, parentTopic, group, clientId, "),
        (("tail", "--format", "{op", "--once"), "--format"),
        (("tail", "--format", "{op}", "--json"), "--format and --json"),
        (("topics", "list", "--parent", "p", "--pattern", "a*"), "--pattern"),
        (("send", "topic", "t", "--parent", "p", "--property", "red"), "--property"),
        (("send", "group", "g"), "--delete"),
        (("send", "subscription", "a", "--client", "c", "--group", "g", "--action", "leave"), "takes no entries"),
        (
            ("send", "subscription", "--client", "c", "--group", "g", "--action", "leave", "--tag", "a"),
            "takes no selector",
        ),
        (("send", "topic", "t", "--parent", "p", "--delete", "--tags", "a"), "takes no tags"),
        (("send", "topic", "t", "--parent", "p", "--delete", "--property", "a=1"), "takes no property"),
        (("send", "topic", "t", "--parent", "p", "--property", "a=1", "--property", "a=2"), "twice"),
        (("send", "group", "g", "--delete", "--quota", "0"), "takes no attributes"),
        (("send", "group", "g", "--parent", "p", "--attribute", "lite.bind.topic=q"), "lite.bind.topic is given by"),
    ],
)
def test_a_wrong_option_is_told_without_a_broker(words: tuple[str, ...], option: str) -> None:
    result = CliRunner().invoke(main, [*words, "--bootstrap-servers", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert option in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90s", 1_800_000_000_000 - 90_000),
        ("15m", 1_800_000_000_000 - 15 * 60_000),
        ("2h", 1_800_000_000_000 - 2 * 3_600_000),
        ("7d", 1_800_000_000_000 - 7 * 86_400_000),
        ("999999d", 0),
        ("0001-01-02T00:00:00Z", 0),
        ("2027-01-15T08:00:00Z", 1_800_000_000_000),
        ("2027-01-15T09:00:00.5+01:00", 1_800_000_000_500),
    ],
)
def test_a_time_is_an_age_or_a_moment(text: str, milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000)
    assert start_time(text) == milliseconds


@pytest.mark.parametrize("text", ["", "15", "-1h", "1.5h", "15 m", "1w", "2027-13-01", "٣h"])
def test_other_texts_are_no_time(text: str) -> None:
    with pytest.raises(BadParameter, match="expected an age such as 15m, or a time such as"):
        start_time(text)


@pytest.mark.parametrize(
    ("offset", "start"), [(None, 20), (0, 5), (4, 5), (7, 7), (21, 20), (-1, 19), (-15, 5), (-16, 5)]
)
def test_an_offset_counts_from_the_end_if_negative(offset: int | None, start: int) -> None:
    assert first_offset(Span(5, 20), offset) == start


def test_a_misplaced_option_and_an_invalid_event_are_told() -> None:
    kafka = ["--bootstrap-servers", "127.0.0.1:1"]
    result = CliRunner().invoke(main, ["topics", *kafka, "list", "--parent", "p"])
    assert result.exit_code == 2
    assert "put the options after the verb: reexpand topics list" in result.stderr
    words = ["send", "subscription", "a", "--client", " ", "--group", "g", "--parent", "p"]
    result = CliRunner().invoke(main, [*words, *kafka])
    assert (result.exit_code, result.stderr) == (2, "Error: nothing was sent: clientId is blank (blank-name)\n")


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ((), "sent: s[2]@8\n"),
        (("--json",), '{"place":{"stream":"s","partition":2,"offset":8,"entry":0},"updates":null}\n'),
    ],
)
def test_the_place_of_a_record_is_told_although_no_job_answers(
    form: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a program would send it again."""

    class Silent:
        def updates_of(self, *_: object) -> None:
            raise ReexpandError("no job has answered within 10 s")

    monkeypatch.setattr("streaming.cli.send.inspector", lambda: nullcontext(Silent()))
    monkeypatch.setattr("streaming.inspect.following.UpdatesFollower", nullcontext)
    monkeypatch.setattr("streaming.inspect.planning.send", lambda *_: EventPlace("s", 2, 8))
    words = ["send", "topic", "t", "--parent", "p", "--wait", "--bootstrap-servers", "127.0.0.1:1"]
    result = CliRunner().invoke(main, [*words, *form])
    assert (result.exit_code, result.stderr) == (1, "Error: no job has answered within 10 s\n")
    assert result.stdout == told


def test_an_update_is_one_line() -> None:
    assert wording.update(UPDATE) == "ADD    p g/c a__1  SUBSCRIBED  a__*  s[2]@7"
    shared = {**UPDATE, "share": "x", "filter": "a/#", "patterns": []}
    assert wording.update(shared) == "ADD    p g/c (share:x/a/#) a__1  SUBSCRIBED  every topic  s[2]@7"


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{op:<6} {group}/{clientId} {liteTopic}", "ADD    g/c a__1"),
        ("{liteTopic:>6}|{op:^5}|", "  a__1| ADD |"),
        (r"{op}\t{liteTopic}\n\\n", "ADD\ta__1\n\\n"),
        ("{source} {source.topic} {source.offset} {source.timestamp}", "s[2]@7 s 7 5"),
        ("{version}{share}", ""),
        ("{patterns}; {{}}", "a__*, b; {}"),
        ("{offsetOption} {resetOffset}", '{"type":"POLICY"} true'),
        ("", ""),
    ],
)  # fmt: skip
def test_a_template_formats_an_update(template: str, line: str) -> None:
    changes = {"patterns": ["a__*", "b"], "version": None, "offsetOption": {"type": "POLICY"}, "resetOffset": True}
    assert wording.template(template)({**UPDATE, **changes}) == line


def test_a_name_cannot_forge_a_field_of_a_line() -> None:
    assert wording.template(r"{clientId}\t{liteTopic}")({**UPDATE, "clientId": "a\tb\n"}) == "a\\tb\\n\ta__1"


@pytest.mark.parametrize(
    "text", ["{}", "{0}", "{op.upper}", "{source.x}", "{op!r}", "{op:999999999}", "{op:{op}}", "{op:x}", "{", "}"]
)
def test_another_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"has no field|can have a width|encountered|expected"):
        wording.template(text)


def test_a_template_can_have_each_field_of_the_schema() -> None:
    names = [*UpdateSchema.model_fields, *(f"source.{part}" for part in SourceSchema.model_fields)]
    wording.template("".join(f"{{{name}}}" for name in names))
    with pytest.raises(ValueError, match=re.escape(f"its fields are {', '.join(names)}")):
        wording.template("{topic}")


def test_tail_prints_by_the_template() -> None:
    simulated = Simulated()
    simulated.write(add("eu__1", client="c1"), add("eu__2", client="c1", parent="q"), partition=0)
    kafka = ("--bootstrap-servers", simulated.address, "--updates", TOPIC)
    result = CliRunner().invoke(main, ["tail", *kafka, "--once", "--format", r"{op}\t{cause}\t{source}"])
    assert (result.exit_code, result.stdout) == (0, "ADD\tSUBSCRIBED\tlite-topic-events[0]@7\n" * 2)


@pytest.mark.parametrize("value", [{"op": "c", "after": {}}, {"op": ["ADD"]}, {"op": "ADD", "source": "x"}, [1]])
def test_tail_skips_the_records_of_another_topic(value: Any) -> None:
    """Such as those of a topic of change data, whose records have an `op` too."""
    simulated = Simulated()
    simulated.write((b"key", json.dumps(value).encode()), partition=0)
    result = CliRunner().invoke(main, ["tail", "--bootstrap-servers", simulated.address, "--updates", TOPIC, "--once"])
    assert (result.exit_code, result.stdout, result.exception) == (0, "", None)
