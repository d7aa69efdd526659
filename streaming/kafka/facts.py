"""Comparison of Kafka's topics with a checkpoint: pure rules, independent of the client.

A checkpoint belongs to six topics of one Kafka: it contains positions in the inputs, and the content of the updates
topic. A topic of the same name is not the same topic: Kafka gives each topic an id when it is created.

`check_empty`, `check_ahead` and `check_marked` raise `UpdatesUnknown`, because the updates are not from the checkpoint.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from streaming.errors import ConfigInvalid, RecordsLost, TopicReplaced, UpdatesUnknown

if TYPE_CHECKING:
    from streaming.config import Settings

Offsets = Mapping[str, Mapping[int, int]]
"""Offsets by topic and partition."""


def offsets_of(found: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets in a JSON object."""
    return {topic: {int(each): int(offset) for each, offset in offsets.items()} for topic, offsets in found.items()}


START_OVER: Final = (
    "start over, with --checkpoint for a new folder and --updates for a new topic: "
    "the job then reads its inputs from the beginning and writes the whole relation"
)
"""Advice if checkpoint and topics do not fit, which always leads to the relation of the inputs."""

_IF_RESTORED: Final = (
    "If topics were restored, with the same records at the same offsets, start once with --accept-topics"
)
"""Advice that only the operator can judge: Kafka cannot distinguish a restored topic from another topic."""

_SOURCE: Final = re.compile(r'"source":\{"topic":"([\w.-]+)","partition":(\d+),"offset":(\d+),')
"""Source in the JSON of an update; quotes within JSON strings are escaped, so nothing else looks like it."""

_PLACE: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})\[(\d{1,19})\]@(\d{1,19})(?:#(\d{1,19}))?")

_MISSPELT: Final = 0.9
"""Similarity, as `difflib` measures it, from which the name of a missing topic counts as misspelt."""

_DIGITS: Final = re.compile(r"[0-9]+")
_WORD: Final = re.compile(r"[._-]")


def rebuild(settings: Settings, *, lost: bool = False) -> str:
    """Return the advice if the inputs exist and the updates topic is to stay; `lost`: the former checkpoint is lost."""
    own = settings.checkpoint
    places = ("--without-former", own) if lost else (f"--former {shlex.quote(own)}", f"{own.rstrip('/')}-new")
    return (
        f"run `reexpand rebuild` with the options of the job: reexpand rebuild --bootstrap-servers "
        f"{settings.bootstrap_servers} {places[0]} --checkpoint {shlex.quote(places[1])}: it makes a checkpoint from "
        "the inputs, and writes to the updates topic what differs"
    )


class NotedTopic(NamedTuple):
    """A Kafka topic in the identity of a checkpoint."""

    name: str
    id: str


class EntryPlace(NamedTuple):
    """Place of an entry in Kafka; entry 0 stands for a whole record, too."""

    topic: str
    partition: int
    offset: int
    entry: int = 0

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a place in the format of `str`; raise `ConfigInvalid` for others."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ConfigInvalid(
                f"{text!r} is not the id of a dead letter; expected lite-topic-events[0]@12 or ...@12#3"
            )
        topic, *numbers = found.groups("0")
        return cls(topic, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}" + (f"#{self.entry}" if self.entry else "")


ROLES: Final = ("group_events", "subscription_events", "topic_events", "clock", "updates", "dead_letters")
"""Settings that name the six topics."""

DISPENSABLE: Final = frozenset({"clock", "dead_letters"})
"""Roles of the topics whose loss does no harm to the relation: the job writes them itself, and needs no old record."""


def names(settings: Settings) -> dict[str, str]:
    """Return the names of the six topics by role."""
    return {role: getattr(settings, role) for role in ROLES}


def events(settings: Settings) -> list[str]:
    """Return the names of the inputs of which the relation is made: all but the clock, which the job writes itself."""
    return [name for name in settings.inputs if name != settings.clock]


def check_identity(
    settings: Settings, noted: Mapping[str, NotedTopic], found: Mapping[str, str], absent: Collection[str] = ()
) -> None:
    """Compare the topics noted in a checkpoint with Kafka's topics.

    `found` has the ids of existing topics by name. A checkpoint of an older release has noted no topics, and none count
    if any topics are accepted.

    Raises:
        TopicReplaced: a topic is missing or was replaced; the message names it.
    """
    wanted = {role: name for role, name in names(settings).items() if role not in DISPENSABLE}
    former = noted.get("updates")
    if former is not None and former.name != settings.updates:
        raise TopicReplaced(
            f"the checkpoint {settings.checkpoint} belongs to the updates topic {former.name}, not to "
            f"{settings.updates}: to another topic the job would write only what changes. "
            f"Set updates back to {former.name}, or {START_OVER}."
        )
    missing = [name for name in wanted.values() if name in absent]
    replaced = [
        name for role, name in wanted.items() if role in noted and name in found and found[name] != noted[role].id
    ]
    if not missing and not replaced:
        return
    if len(missing) + len(replaced) == len(wanted):
        raise TopicReplaced(
            f"Kafka at {settings.bootstrap_servers} has none of the topics of the checkpoint {settings.checkpoint}"
            f"{'; topics of the same names are others' if replaced else ''}: it is another Kafka, or all topics were "
            f"deleted. Set bootstrap_servers back, or {START_OVER}. {_IF_RESTORED}."
        )
    if set(missing + replaced).isdisjoint(events(settings)):
        advice = rebuild(settings)
    else:
        advice = f"{START_OVER}. Events that only the former topic contained must be sent again"
    problems = [
        *(f"the topic {name} does not exist" for name in missing),
        *(f"the topic {name} was deleted and created again" for name in replaced),
    ]
    raise TopicReplaced(
        f"{'; '.join(problems)}: the checkpoint {settings.checkpoint} does not fit it any more. "
        f"{advice[0].upper()}{advice[1:]}." + (f" {_IF_RESTORED}." if replaced else "")
    )


def check_spelling(settings: Settings, present: Collection[str], roles: Collection[str] = ROLES) -> None:
    """Check that no missing topic of these roles has almost the name of an existing topic; skip default names.

    Raises:
        ConfigInvalid: a name is perhaps misspelt; the message names the topic that is perhaps meant.
    """
    wanted = names(settings)
    others = sorted(set(present) - set(wanted.values()))
    for role in roles:
        name = wanted[role]
        if name in present or name == type(settings).model_fields[role].default:
            continue
        near = [each for each in get_close_matches(name, others, cutoff=_MISSPELT) if not _are_of_two_jobs(each, name)]
        if near:
            variable = f"REEXPAND_{role.upper()}"
            raise ConfigInvalid(
                f"Kafka at {settings.bootstrap_servers} has no topic {name}, but {near[0]}: set {role} to that one if "
                f"{name} is misspelt. To have a new topic of that name, create it: {variable}={name} reexpand topics "
                f"--bootstrap-servers {settings.bootstrap_servers}"
            )


def _are_of_two_jobs(one: str, other: str) -> bool:
    """Return True if two names differ in their numbers, or by additional whole words in either."""
    words, others = set(_WORD.split(one)), set(_WORD.split(other))
    return words < others or others < words or _DIGITS.sub("0", one) == _DIGITS.sub("0", other)


def check_unread(settings: Settings, positions: Offsets, beginnings: Offsets, ends: Offsets) -> None:
    """Compare the offsets from which a checkpoint goes on with its inputs, except the clock.

    Raises:
        TopicReplaced: an input ends before its position in the checkpoint.
        RecordsLost: records are gone that were not read.
    """
    positions = {topic: offsets for topic, offsets in positions.items() if topic in events(settings)}
    for topic, offsets in positions.items():
        for partition, position in offsets.items():
            end = ends.get(topic, {}).get(partition)
            if end is None or end < position:
                raise TopicReplaced(
                    f"the topic {topic}, partition {partition}, "
                    f"{'does not exist' if end is None else f'ends at offset {end}'}, and the checkpoint "
                    f"{settings.checkpoint} has read it up to offset {position}: the topic was created again, has lost "
                    f"records, or belongs to another Kafka. Set bootstrap_servers back, or {START_OVER}."
                )
    lost = list(_removed(positions, beginnings))
    if lost:
        raise RecordsLost(
            f"records were removed from Kafka before the job has read them: {'; '.join(lost)}. The relation cannot "
            f"be right without them. To go on with what is left, {START_OVER}; add --accept-loss. "
            "`reexpand topics --fix` keeps further records for ever."
        )


def check_complete(settings: Settings, beginnings: Offsets, compacted: Collection[str]) -> None:
    """Check that the inputs, except the clock, have all of their records before a new checkpoint reads them.

    Raises:
        RecordsLost: the beginning of an input is gone, or its records were compacted.
    """
    starts = {topic: dict.fromkeys(beginnings.get(topic, {}), 0) for topic in events(settings)}
    lost = [*_removed(starts, beginnings), *(f"{topic} is compacted" for topic in starts if topic in compacted)]
    if lost:
        raise RecordsLost(
            f"the checkpoint {settings.checkpoint} is new, and the inputs are not complete: {'; '.join(lost)}. "
            "Their effect would be missing in the relation. If a former checkpoint exists, `reexpand rebuild "
            "--from-state` goes on from its state. Otherwise send all events again, to new topics, or start with "
            "--accept-loss to go on without them. `reexpand topics --fix` keeps further records for ever."
        )


def _removed(positions: Offsets, beginnings: Offsets) -> Iterator[str]:
    for topic, offsets in positions.items():
        for partition, position in offsets.items():
            beginning = beginnings.get(topic, {}).get(partition, 0)
            if beginning > position:
                yield f"{topic}, partition {partition}, offsets {position} to {beginning - 1}"


def check_empty(settings: Settings, records: int) -> None:
    """Check that the updates topic is empty, before a new checkpoint writes to it."""
    if records:
        raise UpdatesUnknown(
            f"the checkpoint {settings.checkpoint} is new, but the updates topic {settings.updates} contains updates "
            "of another one: outdated rows would stay in it. Start with the former checkpoint, or with --updates "
            f"for a new topic. If the former checkpoint is lost, {rebuild(settings, lost=True)}."
        )


def check_ahead(settings: Settings, written: Collection[EntryPlace], planned: Offsets) -> None:
    """Check that all updates in the updates topic are from this checkpoint.

    Each update names the record that caused it. No micro-batch of the checkpoint was planned to read a record beyond
    `planned`. So another checkpoint wrote an update because of such a record, or this checkpoint after it was copied.
    """
    for place in written:
        position = planned.get(place.topic, {}).get(place.partition, 0)
        if place.topic in events(settings) and place.offset >= position:
            raise UpdatesUnknown(
                f"the updates topic {settings.updates} contains an update because of {place}, and the checkpoint "
                f"{settings.checkpoint} has read that topic only up to offset {position}: the checkpoint is an older "
                "copy, or another job has written to the topic. Start with the latest checkpoint, or "
                f"{rebuild(settings)}."
            )


def check_marked(settings: Settings, marked: int, planned: int) -> None:
    """Check that the checkpoint has planned all micro-batches marked as written.

    The sink takes a micro-batch with the number of a marker for repeated, and skips it. A checkpoint that was copied
    earlier would plan another micro-batch under that number.
    """
    if marked > planned:
        raise UpdatesUnknown(
            f"micro-batch {marked - 1} of the checkpoint {settings.checkpoint} is written, but the checkpoint has "
            f"planned none after micro-batch {planned - 1}: it is an older copy. Start with the latest checkpoint, or "
            f"{rebuild(settings)}."
        )


def sources(text: str) -> set[EntryPlace]:
    """Return the sources of all updates in a text."""
    return {EntryPlace(topic, int(partition), int(offset)) for topic, partition, offset in _SOURCE.findall(text)}
