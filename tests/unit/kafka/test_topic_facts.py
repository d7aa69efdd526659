"""What is said where Kafka's topics are not those of a checkpoint, and where nothing is said."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from streaming.cli import main
from streaming.config import Settings, load
from streaming.errors import ConfigInvalid, RecordsLost, TopicReplaced, UpdatesUnknown
from streaming.kafka import facts
from streaming.kafka.facts import EntryPlace, NotedTopic
from streaming.kafka.specs import COMPACTION, INPUT, flaws, specs
from streaming.operations import rebuild as session
from streaming.records.model import Reason, Source
from streaming.records.writing import dead_letter
from streaming.spark.notes import RebuildNote, Stage

SETTINGS: Settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
NAMES = facts.names(SETTINGS)
NOTED = {role: NotedTopic(name, f"id of {name}") for role, name in NAMES.items()}
FOUND = {topic.name: topic.id for topic in NOTED.values()}
NEEDED = ["group_events", "subscription_events", "topic_events", "updates"]


def text_of(kind: type[Exception], check: Callable[..., None], *arguments: Any) -> str:
    with pytest.raises(kind) as caught:
        check(SETTINGS, *arguments)
    said = str(caught.value)
    assert re.match(r"\w", said)
    assert said.endswith(".")
    assert ".." not in said
    assert said.count(facts.START_OVER) + said.count(facts.START_OVER[1:]) <= 2
    return said


def without(names: list[str]) -> dict[str, str]:
    return {name: topic_id for name, topic_id in FOUND.items() if name not in names}


def test_a_checkpoint_without_ids_accepts_any_topics_that_exist() -> None:
    """A checkpoint with ids accepts its own topics."""
    facts.check_identity(SETTINGS, NOTED, FOUND)
    others = {name: f"another {name}" for name in FOUND}
    facts.check_identity(SETTINGS, {}, others)
    said = text_of(TopicReplaced, facts.check_identity, {}, others, [SETTINGS.updates])
    assert f"the topic {SETTINGS.updates} does not exist" in said


@pytest.mark.parametrize("role", facts.ROLES)
def test_a_topic_that_is_missing_or_another_one_is_named(role: str) -> None:
    """Unless the job creates it again."""
    name = NAMES[role]
    cases = [(without([name]), [name]), ({**FOUND, name: "another"}, [])]
    if role in facts.DISPENSABLE:
        for found, absent in cases:
            facts.check_identity(SETTINGS, NOTED, found, absent)
        return
    missing, another = (text_of(TopicReplaced, facts.check_identity, NOTED, *case) for case in cases)
    assert missing.startswith(f"the topic {name} does not exist: ")
    assert another.startswith(f"the topic {name} was deleted and created again: ")
    assert "--accept-topics" in another
    assert "--accept-topics" not in missing
    for said in (missing, another):
        assert ("must be sent again" in said) == (role != "updates")
        assert not any(other in said for other in FOUND if other != name)


def test_another_kafka_is_told_from_lost_topics() -> None:
    names = [NAMES[role] for role in NEEDED]
    assert "it is another Kafka" in text_of(TopicReplaced, facts.check_identity, NOTED, {}, names)
    others = {**dict.fromkeys(names[:3], "another"), **without(names)}
    assert "it is another Kafka" in text_of(TopicReplaced, facts.check_identity, NOTED, others, names[3:])
    assert "another Kafka" not in text_of(TopicReplaced, facts.check_identity, NOTED, without(names[1:]), names[1:])


def test_the_updates_topic_of_the_checkpoint_is_named() -> None:
    noted = {**NOTED, "updates": NotedTopic("former", "id")}
    said = text_of(TopicReplaced, facts.check_identity, noted, FOUND)
    assert f"belongs to the updates topic former, not to {SETTINGS.updates}" in said
    assert "Set updates back to former" in said


@pytest.mark.parametrize(
    ("read", "beginning", "end", "said"),
    [
        (5, 0, 5, None),
        (5, 5, 5, None),
        (5, 5, 9, None),
        (5, 6, 9, "partition 1, offsets 5 to 5"),
        (5, 9, 9, "partition 1, offsets 5 to 8"),
        (5, 0, 4, "ends at offset 4"),
        (5, 0, None, "does not exist"),
    ],
)
def test_offsets_that_are_not_there_are_named(read: int, beginning: int, end: int | None, said: str | None) -> None:
    topic = SETTINGS.topic_events
    ends = {} if end is None else {1: end}
    arguments = ({topic: {1: read}}, {topic: {1: beginning}}, {topic: ends})
    if said is None:
        facts.check_unread(SETTINGS, *arguments)
    else:
        kind = RecordsLost if said.startswith("partition") else TopicReplaced
        assert said in text_of(kind, facts.check_unread, *arguments)
    facts.check_unread(SETTINGS, {SETTINGS.clock: {1: read}}, {SETTINGS.clock: {1: beginning}}, {SETTINGS.clock: ends})


def test_a_new_checkpoint_needs_all_events_but_no_ticks_and_no_updates() -> None:
    facts.check_empty(SETTINGS, 0)
    assert SETTINGS.updates in text_of(UpdatesUnknown, facts.check_empty, 1)
    facts.check_complete(SETTINGS, {SETTINGS.topic_events: {0: 0}, SETTINGS.clock: {0: 7}}, [SETTINGS.clock])
    beginnings = {SETTINGS.topic_events: {0: 0, 1: 3}}
    said = text_of(RecordsLost, facts.check_complete, beginnings, [SETTINGS.group_events])
    assert "`reexpand rebuild --from-state` goes on from its state" in said
    assert f"{SETTINGS.topic_events}, partition 1, offsets 0 to 2; {SETTINGS.group_events} is compacted" in said


def test_a_written_micro_batch_that_was_not_planned_is_of_a_later_checkpoint() -> None:
    """Markers of a former one are nothing; the sink skips one that is repeated."""
    facts.check_marked(SETTINGS, 0, 5)
    facts.check_marked(SETTINGS, 5, 5)
    said = text_of(UpdatesUnknown, facts.check_marked, 6, 5)
    assert "micro-batch 5 of the checkpoint" in said
    assert "none after micro-batch 4" in said


def test_updates_because_of_what_was_not_planned_are_of_another_checkpoint() -> None:
    topic = SETTINGS.topic_events
    planned = {topic: {0: 5}}
    known = [EntryPlace(topic, 0, 4), EntryPlace(SETTINGS.clock, 0, 99), EntryPlace("any", 0, 99)]
    facts.check_ahead(SETTINGS, known, planned)
    for place in (EntryPlace(topic, 0, 5), EntryPlace(topic, 1, 0), EntryPlace(SETTINGS.group_events, 0, 0)):
        assert f"because of {place}" in text_of(UpdatesUnknown, facts.check_ahead, [*known, place], planned)


def test_sources_are_found_in_the_text_of_records() -> None:
    """What users write into names and patterns looks different: its quotes are escaped."""
    text = '{"op":"ADD","clientId":"\\"source\\":{\\"topic\\":\\"x\\",\\"partition\\":1,\\"offset\\":2,",'
    text += '"source":{"topic":"a.b_c-d","partition":3,"offset":14,"entry":0,"timestamp":1}}'
    assert facts.sources(f"[ConsumerRecord(value = {text}), ConsumerRecord(value = null)]") == {
        EntryPlace("a.b_c-d", 3, 14)
    }
    letter = dead_letter(Source("t", 1, 2, 0, 3), Reason.NOT_JSON, "message", b"original")
    assert facts.sources((letter.value or b"").decode()) == {EntryPlace("t", 1, 2)}


@pytest.mark.parametrize(
    ("topic", "found", "options"),
    [
        (SETTINGS.topic_events, {"retention.ms": "1"}, ["retention.ms"]),
        (SETTINGS.topic_events, {"cleanup.policy": "compact", "retention.ms": "1"}, ["cleanup.policy"]),
        (
            SETTINGS.clock,
            {"cleanup.policy": "compact,delete", "retention.bytes": "1"},
            ["cleanup.policy", "retention.bytes"],
        ),
        (SETTINGS.group_events, {"message.timestamp.type": "CreateTime"}, ["message.timestamp.type"]),
        (SETTINGS.updates, {"cleanup.policy": "delete"}, ["cleanup.policy"]),
        (SETTINGS.updates, {"retention.ms": "1"}, []),
        (SETTINGS.dead_letters, {"retention.ms": "1"}, []),
        *((spec.name, spec.config, []) for spec in specs(SETTINGS)),
    ],
)
def test_unsuitable_options_are_found(topic: str, found: dict[str, str], options: list[str]) -> None:
    """Topics that the job creates have none."""
    usual = {} if topic == SETTINGS.dead_letters else COMPACTION if topic == SETTINGS.updates else INPUT
    assert [flaw.option for flaw in flaws(SETTINGS, topic, {**usual, **found})] == options


@pytest.mark.parametrize(
    ("given", "present", "near"),
    [
        ({"topic_events": "lite-topic-evnts"}, ["lite-topic-events"], "lite-topic-events"),
        ({"updates": "lite-subscription-update"}, ["lite-subscription-updates"], "lite-subscription-updates"),
        ({"dead_letters": "lite-dead-leters"}, ["lite-dead-letters", "x"], "lite-dead-letters"),
        ({"topic_events": "topic-events-eu"}, ["topic-events-e"], "topic-events-e"),
        ({}, ["lite-topic-event"], None),
        ({"topic_events": "mine"}, ["lite-topic-events"], None),
        ({"topic_events": "eu-lite-topic-events"}, ["lite-topic-events"], None),
        ({"topic_events": "lite-topic-events"}, ["eu-lite-topic-events"], None),
        ({"topic_events": "topic-events-2"}, ["topic-events-1", "topic-events-10"], None),
        ({"topic_events": "lite-topic-evnts"}, ["lite-topic-events", "lite-topic-evnts"], None),
        ({"topic_events": "a-topic-events", "group_events": "a-topic-event"}, ["a-topic-event"], None),
    ],
    ids=str,
)
def test_a_topic_that_is_perhaps_misspelt_is_not_created(
    given: dict[str, str], present: list[str], near: str | None
) -> None:
    """Those of the default names are created at the first start, and those of several jobs may be numbered."""
    settings = load({"bootstrap_servers": "b:1", "checkpoint": "/c", **given})
    if near is None:
        facts.check_spelling(settings, present)
        return
    (role, name), *_ = given.items()
    with pytest.raises(ConfigInvalid) as caught:
        facts.check_spelling(settings, present)
    assert f"has no topic {name}, but {near}: set {role} to that one" in str(caught.value)
    assert f"REEXPAND_{role.upper()}={name} reexpand topics --bootstrap-servers b:1" in str(caught.value)
    facts.check_spelling(settings, present, {*facts.ROLES} - {role})


@pytest.mark.parametrize("lost", [False, True])
def test_the_way_out_is_a_command_that_is_taken(lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a case
    """As a shell splits it, also with blanks in a path."""
    own = str(tmp_path / "a checkpoint")
    given: list[tuple[Settings, Any]] = []

    def note(settings: Settings, plan: Any, _: object) -> RebuildNote:
        given.append((settings, plan))
        return RebuildNote(Stage.COMPLETE)

    monkeypatch.setattr(session, "rebuild", note)
    said = facts.rebuild(load({"bootstrap_servers": "b:1", "checkpoint": own}), lost=lost)
    (command,) = re.findall(r"job: reexpand (.*?): it makes", said)
    done = CliRunner().invoke(main, shlex.split(command))
    assert done.exit_code == 0, done.output
    ((settings, plan),) = given
    assert (settings.checkpoint, plan.former) == ((own, None) if lost else (f"{own}-new", own))
