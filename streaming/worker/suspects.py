"""Groups whose clients send patterns that are read as names, because no group event says otherwise."""

from collections.abc import Iterable, Iterator
from typing import Final

from matcher.dialects import get_dialect
from streaming.events.columns import Event
from streaming.events.model import Action, Source, SubscriptionRequest
from streaming.state import ShardState
from streaming.subscription.client import Mode
from streaming.worker.facts import label

MAX_SUSPECTS: Final = 8
"""Number of groups that one key names in a micro-batch."""


_MAX_CHARACTERS: Final = 1_024
"""Length up to which a parent, a group and an entry are named: all that is named travels in Spark's progress."""


def noting(events: Iterable[tuple[Source, Event]], found: dict[str, str]) -> Iterator[tuple[Source, Event]]:
    """Yield the events, and note the groups with an entry that looks like a pattern, each with that entry."""
    for source, event in events:
        if (
            isinstance(event, SubscriptionRequest)
            and event.action in (Action.COMPLETE_ADD, Action.PARTIAL_ADD)
            and event.group not in found
            and len(found) < MAX_SUSPECTS
        ):
            signs = get_dialect(event.notation.dialect).wildcards
            entry = next((text for text in event.entries if any(sign in text for sign in signs)), None)
            if entry is not None and len(event.parent) + len(event.group) + len(entry) <= _MAX_CHARACTERS:
                found[event.group] = entry
        yield source, event


def literal(found: dict[str, str], state: ShardState) -> dict[str, str]:
    """Return those of the groups that are literal now, on the parent to which they are not bound elsewhere."""
    groups = {name: state.group(name) for name in found}
    return {name: found[name] for name, group in groups.items() if group.mode is Mode.LITERAL and not group.bound_to}


def told(parent: str, found: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield parent, group and entry of what was found, cut for the log of the driver."""
    for group, entry in found.items():
        yield label(parent), label(group), label(entry)
