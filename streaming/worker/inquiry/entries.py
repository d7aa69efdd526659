"""Comparison of a client's entries with one topic: matches, nearest entries, and likely mistakes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from heapq import nlargest
from typing import NamedTuple, TypeVar

import matcher
from matcher.dialects import DIALECTS, SEPARATORS, get_dialect
from streaming.records.model import BIND_TOPIC, LITE, WILDCARD, Notation
from streaming.state import UNKNOWN_GROUP, Group, Shard
from streaming.state.blocks import Block
from streaming.state.client import Client, Mode
from streaming.state.interests import pattern_of
from streaming.worker.inquiry.model import EntryVerdict, EventPlace, Hint, request_place
from streaming.worker.inquiry.names import likeness

T = TypeVar("T")

_SUSPECTS = 200
"""Number of entries, nearest to the topic, that are checked for likely mistakes."""

_SUSPECT_CHARACTERS = 100_000
"""Length of the entries that are checked in detail, each with the topic; the first always is."""

_SHOWN_STEPS = 100
"""Number of segments of an entry that are shown."""

_SHORT = 200
"""Number of characters after which a name within a sentence is cut."""

_SEPARATORS = (*SEPARATORS, ":", "-")
"""Common separators, the separator of dialect `lite` first."""


class Held(NamedTuple):
    """An entry of a client's set, a name if it has no notation, and the request that brought it."""

    text: str
    notation: Notation | None
    place: EventPlace

    def verdict(self, topic: str, *, inner_multi: bool) -> EntryVerdict:
        """Return the comparison of the entry with a topic."""
        if self.notation is None:
            matches = self.text == topic
            reason = "the names are equal" if matches else f"the name is {short(self.text)}, not {short(topic)}"
            return EntryVerdict(self.text, None, None, matches, reason, (), self.place)
        dialect, policy, _ = self.notation
        try:
            found = matcher.explain(
                pattern_of(self.text, self.notation),
                topic,
                dialect,
                policy=policy,
                allow_inner_multi=inner_multi and get_dialect(dialect).has_inner_multi,
            )
        except matcher.InvalidPattern as error:
            return EntryVerdict(self.text, dialect, policy, False, str(error), (), self.place)
        steps = tuple(found.steps[:_SHOWN_STEPS])
        return EntryVerdict(self.text, dialect, policy, found.matched, found.reason, steps, self.place)


def held(blocks: Iterable[Block], mode: Mode) -> Iterator[Held]:
    """Yield the entries of some blocks."""
    for block in blocks:
        place = request_place(block.partition, block.position)
        notation = block.notation if mode is Mode.WILDCARD else None
        for text in block.entries:
            yield Held(text, notation, place)


def nearest(entries: Iterable[Held], topic: str, count: int) -> list[Held]:
    """Return the entries with the longest common prefixes with a topic."""
    return nlargest(count, entries, key=lambda entry: likeness(entry.text, topic))


def affordable(entries: Iterable[Held], topic: str) -> Iterator[Held]:
    """Yield the first entries that can be compared with a topic in bounded time, at least one if any."""
    return fitting(entries, lambda entry: len(entry.text) + len(topic), _SUSPECT_CHARACTERS)


def fitting(things: Iterable[T], length: Callable[[T], int], most: int) -> Iterator[T]:
    """Yield the first items up to a total length, at least one."""
    total = 0
    for number, thing in enumerate(things):
        total += length(thing)
        if number and total > most:
            return
        yield thing


def short(text: str) -> str:
    """Return a name for a sentence: quoted, and cut if it is long."""
    return repr(text if len(text) <= _SHORT else text[:_SHORT] + "...")


def mistakes(client: Client, group: Group, name: str, shard: Shard, topic: str) -> list[Hint]:
    """Return the likely mistakes of a client without an entry that matches a topic; `name` is of its group."""
    hints: list[Hint] = []
    if group.mode is Mode.LITERAL:
        for each in affordable(nearest(held(client.wildcard.blocks, Mode.WILDCARD), topic, _SUSPECTS), topic):
            if _fits(each.text, each.notation or LITE, topic, inner_multi=shard.inner_multi):
                return [_literal_group(each.text, group, name, shard.parent)]
    entries = held(client.subscription(group.mode).blocks, group.mode)
    for entry in affordable(nearest(entries, topic, _SUSPECTS), topic):
        hints += _mistakes_of(entry, topic, inner_multi=shard.inner_multi)
    return list({hint.code: hint for hint in reversed(hints)}.values())


def refused(client: Client, group: Group, topic: str) -> list[Hint]:
    """Return hints at invalid patterns, which a wildcard group has refused and stores as names only."""
    if group.mode is Mode.LITERAL:
        return []
    known = {text for block in client.wildcard.blocks for text in block.entries}
    names = (each for each in held(client.literal.blocks, Mode.LITERAL) if each.text not in known)
    suspects = affordable(nearest(names, topic, _SUSPECTS), topic)
    near = [each for each in suspects if not matcher.is_valid(each.text)]
    if not near:
        return []
    problem = ""
    try:
        matcher.validate(near[0].text)
    except matcher.InvalidPattern as error:
        problem = str(error)
    hint = Hint(
        "no-pattern",
        f"{near[0].text!r} is in a request, but it is no valid pattern, and was refused: {problem}; "
        "see `reexpand dlq list --reason invalid-pattern`",
    )
    likely = (each for entry in near for each in _mistakes_of(entry._replace(notation=LITE), topic, inner_multi=False))
    return list({each.code: each for each in (hint, *likely)}.values())


def spellings(topic: str) -> Iterator[str]:
    """Yield other spellings of a topic: with another separator, without blanks, in lower case."""
    for used in _SEPARATORS:
        if used in topic:
            yield from (topic.replace(used, other) for other in _SEPARATORS if other != used)
    yield from (each for each in (topic.strip(), topic.lower()) if each != topic)


def _literal_group(entry: str, group: Group, name: str, parent: str) -> Hint:
    known = "has no group event, and so" if group is UNKNOWN_GROUP else f"has no attribute {WILDCARD}, and so"
    attributes = {**group.attributes, BIND_TOPIC: parent, WILDCARD: "true"}
    shown = ", ".join(f'"{each}": "{value}"' for each, value in attributes.items())
    return Hint(
        "pattern-in-literal-group",
        f"{entry!r} would match as a pattern, but the group {name!r} {known} reads its entries as names. "
        f'Send the group event {{"group": "{name}", "attributes": {{{shown}}}}}',
    )


def _mistakes_of(entry: Held, topic: str, *, inner_multi: bool) -> Iterator[Hint]:
    if entry.notation is None:
        if entry.text.strip().casefold() == topic.casefold():
            yield Hint("case-or-blanks", f"the name {entry.text!r} differs from {topic!r} in case or blanks only")
        elif entry.text in spellings(topic):
            yield Hint("separator", f"the name {entry.text!r} is {topic!r} with another separator")
        return
    text, own = entry.text, entry.notation
    if _fits(text.casefold(), own, topic.casefold(), inner_multi=inner_multi):
        yield Hint("case-or-blanks", f"{text!r} would match {topic!r} but for upper and lower case")
    yield from _other_dialects(text, own, topic)
    separator = DIALECTS[own.dialect].separator
    for used in _SEPARATORS:
        replaced = text.replace(used, separator)
        if used != separator and used in text and _fits(replaced, own, topic, inner_multi=inner_multi):
            yield Hint(
                "separator",
                f"{text!r} is divided by {used!r}, but segments of dialect {own.dialect} by {separator!r}: "
                f"{replaced!r} would match",
            )
        elif used in topic and _fits(text, own, topic.replace(used, separator), inner_multi=inner_multi):
            yield Hint(
                "separator",
                f"the topic {topic!r} is divided by {used!r}, but segments of dialect {own.dialect} by {separator!r}",
            )


def _other_dialects(text: str, own: Notation, topic: str) -> Iterator[Hint]:
    """Yield a hint if an entry would match in another dialect, perhaps with its separator in the topic."""
    for name, dialect in DIALECTS.items():
        if name == own.dialect:
            continue
        if _fits(text, Notation(name), topic, inner_multi=False):
            yield Hint(
                "dialect",
                f"{text!r} would match in dialect {name}, but it was sent in dialect {own.dialect}: "
                f'add "dialect": "{name}" to the request',
            )
            return
        for other in spellings(topic):
            if dialect.separator in other and _fits(text, Notation(name), other, inner_multi=False):
                yield Hint(
                    "dialect",
                    f"{text!r} is written in dialect {name}, where segments are divided by {dialect.separator!r}; "
                    f"it was sent in dialect {own.dialect}, and the topic is {topic!r}",
                )
                return


def _fits(text: str, notation: Notation, topic: str, *, inner_multi: bool) -> bool:
    with suppress(matcher.MatcherError):
        return matcher.matches(
            pattern_of(text, notation),
            topic,
            dialect=notation.dialect,
            policy=notation.policy,
            allow_inner_multi=inner_multi and get_dialect(notation.dialect).has_inner_multi,
        )
    return False
