"""What one client is subscribed to, and how its requests change that.

How a request is read depends on its group: names in a literal group, patterns in a wildcard group. Group attributes
arrive on another stream, possibly later, and the relation follows those now in force. So each client is kept in both
readings; `Client` shares one object where they agree, which is nearly always.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from streaming.events import Action, SubscriptionRequest, check_name


class Mode(StrEnum):
    """How a group's entries are read."""

    LITERAL = "literal"
    WILDCARD = "wildcard"


class Ignored(StrEnum):
    """Why a valid entry changed nothing; counted, never silent."""

    STALE_VERSION = "stale-version"
    UNCHANGED = "unchanged"
    NO_SUBSCRIPTION = "no-subscription"
    TOPIC_EXISTS = "topic-exists"
    TOPIC_UNKNOWN = "topic-unknown"
    GROUP_UNKNOWN = "group-unknown"
    GROUP_SUPERSEDED = "group-superseded"


class View(NamedTuple):
    """One client's subscription on one shard under one reading.

    Attributes:
        live: in session; False keeps the version of a client that ended, so that older requests stay stale.
        version: the last one applied; None while all requests were unversioned.
        entries: names or patterns that can touch this shard, in order of arrival.
        everything: receives every topic of the parent (empty set in a wildcard group).
    """

    live: bool = False
    version: int | None = None
    entries: tuple[str, ...] = ()
    everything: bool = False


ABSENT = View()


class Client(NamedTuple):
    """One client in both readings."""

    literal: View = ABSENT
    wildcard: View = ABSENT

    def view(self, mode: Mode) -> View:
        """The reading that is in force in a group of that mode."""
        return self.wildcard if mode is Mode.WILDCARD else self.literal


class Interest(NamedTuple):
    """What a client receives now: the part of its view that the relation depends on.

    Attributes:
        patterns: the entries are patterns; otherwise they are names.
    """

    patterns: bool = False
    entries: tuple[str, ...] = ()
    everything: bool = False


NOTHING = Interest()


def interest(client: Client, mode: Mode) -> Interest:
    """What a client receives in a group of that mode; `NOTHING` when it is not in session."""
    view = client.view(mode)
    if not view.live or not (view.entries or view.everything):
        return NOTHING
    return Interest(mode is Mode.WILDCARD, view.entries, view.everything)


class Change(NamedTuple):
    """The outcome of a request under one reading.

    Attributes:
        view: the new view; the old one when the request was refused or ignored.
        invalid: entries left out, each with the reason.
        refused: nothing was applied, because no entry is valid.
        ignored: nothing was applied, for this reason.
    """

    view: View
    invalid: tuple[str, ...] = ()
    refused: bool = False
    ignored: Ignored | None = None


def advance(
    view: View,
    request: SubscriptionRequest,
    mode: Mode,
    problem: Callable[[str], str | None],
    relevant: Callable[[str], bool],
) -> Change:
    """Applies one request to one reading.

    Args:
        view: the client's subscription so far.
        request: what the client asks for.
        mode: the reading; only in a wildcard group does an empty set subscribe to everything.
        problem: says why an entry is invalid under this reading; None when it is valid.
        relevant: whether an entry can touch the shard whose view this is.

    Returns:
        The new view. A set that is not empty but has no valid entry is refused: it must never widen to everything.
    """
    if request.version is not None and view.version is not None and request.version < view.version:
        return Change(view, ignored=Ignored.STALE_VERSION)
    version = view.version if request.version is None else request.version
    if request.action is Action.COMPLETE_REMOVE:
        return Change(View(version=version), ignored=None if view.live else Ignored.NO_SUBSCRIPTION)

    problems = {entry: problem(entry) for entry in request.entries}
    invalid = tuple(reason for reason in problems.values() if reason is not None)
    valid = [entry for entry, reason in problems.items() if reason is None]
    if invalid and not valid:
        return Change(view, invalid, refused=True)
    if request.action is Action.PARTIAL_REMOVE:
        gone = set(valid)
        kept = tuple(entry for entry in view.entries if entry not in gone)
        ignored = None if view.live else Ignored.NO_SUBSCRIPTION
        return Change(view._replace(version=version, entries=kept), invalid, ignored=ignored)

    touching = tuple(filter(relevant, valid))
    # Only a request that begins or replaces a session can ask for everything by an empty set.
    if request.action is Action.COMPLETE_ADD or not view.live:
        everything = mode is Mode.WILDCARD and not valid
        # A re-sync may list the same set in another order.
        entries = view.entries if set(touching) == set(view.entries) else touching
    else:
        everything = view.everything and not valid
        entries = tuple(dict.fromkeys((*view.entries, *touching)))
    return Change(View(True, version, entries, everything), invalid)


def literal_problem(entry: str) -> str | None:
    """Why a name cannot be subscribed to; None when it can."""
    return check_name("a lite topic name", entry)
