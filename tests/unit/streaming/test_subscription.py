"""One row for each rule of how a request changes a client's set."""

import pytest

from streaming.events import MAX_NAME_BYTES, SubscriptionRequest
from streaming.subscription import (
    ABSENT,
    NOTHING,
    Change,
    Client,
    Ignored,
    Interest,
    Mode,
    View,
    advance,
    interest,
    literal_problem,
)
from tests.unit.streaming.builders import add, drop, leave, replace

LITERAL, WILDCARD = Mode.LITERAL, Mode.WILDCARD
BOTH = (LITERAL, WILDCARD)


def problem(entry: str) -> str | None:
    """Entries that begin with `!` are invalid."""
    return f"{entry} is bad" if entry.startswith("!") else None


def relevant(entry: str) -> bool:
    """Entries that begin with `~` concern other shards."""
    return not entry.startswith("~")


def live(*entries: str, version: int | None = None, everything: bool = False) -> View:
    """The view of a client in session."""
    return View(True, version, entries, everything)


def refused(view: View, *entries: str) -> Change:
    """Nothing applied, all entries invalid."""
    return Change(view, tuple(f"{entry} is bad" for entry in entries), refused=True)


ALL = live(everything=True)
AT_5 = live("a", version=5)
STALE_AT_5 = Change(AT_5, ignored=Ignored.STALE_VERSION)
RULES: list[tuple[str, tuple[Mode, ...], View, SubscriptionRequest, Change]] = [
    # Versions.
    ("a lower version is stale", BOTH, AT_5, replace("b", version=4), STALE_AT_5),
    ("also in PARTIAL_ADD", BOTH, AT_5, add("b", version=4), STALE_AT_5),
    ("also in PARTIAL_REMOVE", BOTH, AT_5, drop("a", version=4), STALE_AT_5),
    ("also in COMPLETE_REMOVE", BOTH, AT_5, leave(version=4), STALE_AT_5),
    ("stale comes before invalid", BOTH, AT_5, replace("!", version=4), STALE_AT_5),
    ("an equal version is applied", BOTH, AT_5, replace("b", version=5), Change(live("b", version=5))),
    ("a higher version is applied", BOTH, AT_5, replace("b", version=6), Change(live("b", version=6))),
    ("an unversioned request is applied and keeps the version", BOTH, AT_5, add("b"),
        Change(live("a", "b", version=5))),
    ("the first version may be any", BOTH, live("a"), add("b", version=-9), Change(live("a", "b", version=-9))),
    ("version 0 is a version", BOTH, live(version=0), replace("a", version=-1),
        Change(live(version=0), ignored=Ignored.STALE_VERSION)),
    # Sets whose entries are invalid.
    ("all invalid: COMPLETE_ADD is refused", BOTH, AT_5, replace("!1", "!2", version=6), refused(AT_5, "!1", "!2")),
    ("all invalid: PARTIAL_ADD is refused", BOTH, AT_5, add("!", version=6), refused(AT_5, "!")),
    ("all invalid: PARTIAL_REMOVE is refused", BOTH, AT_5, drop("!", version=6), refused(AT_5, "!")),
    ("all invalid: a new client stays absent", BOTH, ABSENT, replace("!"), refused(ABSENT, "!")),
    ("all invalid: COMPLETE_REMOVE needs no entries", BOTH, AT_5,
        leave(version=6)._replace(entries=("!",)), Change(View(version=6))),
    ("some invalid: the valid ones stand", BOTH, ABSENT, replace("a", "!", "b"), Change(live("a", "b"), ("! is bad",))),
    ("some invalid in PARTIAL_ADD", BOTH, live("a"), add("!", "b"), Change(live("a", "b"), ("! is bad",))),
    ("some invalid in PARTIAL_REMOVE", BOTH, live("a", "b"), drop("!", "b"), Change(live("a"), ("! is bad",))),
    # The empty set.
    ("an empty set is nothing in a literal group", (LITERAL,), live("a"), replace(), Change(live())),
    ("an empty set is everything in a wildcard group", (WILDCARD,), live("a"), replace(), Change(ALL)),
    ("also for a new client, by PARTIAL_ADD", (WILDCARD,), ABSENT, add(), Change(ALL)),
    ("but nothing in a literal group", (LITERAL,), ABSENT, add(), Change(live())),
    ("an empty PARTIAL_ADD does not widen a set", BOTH, live("a"), add(), Change(live("a"))),
    ("nor a set that has become empty", BOTH, live(), add(), Change(live())),
    ("an empty PARTIAL_ADD leaves everything", (WILDCARD,), ALL, add(), Change(ALL)),
    ("PARTIAL_ADD narrows everything to what it names", (WILDCARD,), ALL, add("a"), Change(live("a"))),
    ("COMPLETE_ADD narrows everything as well", (WILDCARD,), ALL, replace("a"), Change(live("a"))),
    # Removal.
    ("PARTIAL_REMOVE takes what it names", BOTH, live("a", "b", "c"), drop("b"), Change(live("a", "c"))),
    ("PARTIAL_REMOVE of the last entry leaves nothing, not everything", BOTH, live("a"), drop("a"), Change(live())),
    ("PARTIAL_REMOVE of what is not there", BOTH, live("a"), drop("z"), Change(live("a"))),
    ("an empty PARTIAL_REMOVE", BOTH, live("a"), drop(), Change(live("a"))),
    ("PARTIAL_REMOVE leaves everything as it is", (WILDCARD,), ALL, drop("a"), Change(ALL)),
    ("PARTIAL_REMOVE moves the version", BOTH, AT_5, drop("a", version=7), Change(live(version=7))),
    ("PARTIAL_REMOVE of an unknown client begins no session", BOTH, ABSENT, drop("a", version=7),
        Change(View(version=7), ignored=Ignored.NO_SUBSCRIPTION)),
    ("COMPLETE_REMOVE keeps the version", BOTH, AT_5, leave(), Change(View(version=5))),
    ("COMPLETE_REMOVE ends everything", (WILDCARD,), ALL, leave(version=1), Change(View(version=1))),
    ("COMPLETE_REMOVE of a client that is gone moves the version", BOTH, View(version=5), leave(version=6),
        Change(View(version=6), ignored=Ignored.NO_SUBSCRIPTION)),
    ("after COMPLETE_REMOVE older requests stay stale", BOTH, View(version=5), replace("a", version=4),
        Change(View(version=5), ignored=Ignored.STALE_VERSION)),
    ("a client can come back", BOTH, View(version=5), add("a", version=5), Change(live("a", version=5))),
    # Order.
    ("a re-sync in another order keeps the order", BOTH, live("a", "b"), replace("b", "a"), Change(live("a", "b"))),
    ("a replacement takes the new order", BOTH, live("a", "b"), replace("c", "a"), Change(live("c", "a"))),
    ("PARTIAL_ADD appends what is new", BOTH, live("b", "a"), add("a", "c", "b"), Change(live("b", "a", "c"))),
    # Other shards.
    ("entries of other shards are left out", BOTH, ABSENT, replace("a", "~b"), Change(live("a"))),
    ("a set for other shards only is not everything", BOTH, ABSENT, replace("~b"), Change(live())),
    ("it narrows everything as well", (WILDCARD,), ALL, add("~b"), Change(live())),
    ("a set for other shards and invalid entries is not refused", BOTH, AT_5, replace("~", "!"),
        Change(live(version=5), ("! is bad",))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "view", "request_", "change"),
    [
        pytest.param(mode, view, request, change, id=f"{name} ({mode})")
        for name, modes, view, request, change in RULES
        for mode in modes
    ],
)
def test_advance(mode: Mode, view: View, request_: SubscriptionRequest, change: Change) -> None:
    assert advance(view, request_, mode, problem, relevant) == change


@pytest.mark.parametrize(
    ("client", "mode", "wanted"),
    [
        (Client(), LITERAL, NOTHING),
        (Client(), WILDCARD, NOTHING),
        (Client(View(version=3), View(version=3)), WILDCARD, NOTHING),
        (Client(live(), live()), WILDCARD, NOTHING),
        (Client(live("a"), live("b")), LITERAL, Interest(False, ("a",), False)),
        (Client(live("a"), live("b")), WILDCARD, Interest(True, ("b",), False)),
        (Client(live(), ALL), LITERAL, NOTHING),
        (Client(live(), ALL), WILDCARD, Interest(True, (), True)),
        (Client(live("a"), View(False, 1, ("a",))), WILDCARD, NOTHING),
    ],
)
def test_interest_is_what_counts_of_a_view(client: Client, mode: Mode, wanted: Interest) -> None:
    assert interest(client, mode) == wanted


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("t", None),
        ("*", None),
        ("a*", None),
        ("__", None),
        ("", "blank"),
        (" \t", "blank"),
        ("x" * (MAX_NAME_BYTES + 1), "longer"),
    ],
)
def test_any_name_is_valid_in_a_literal_group_unless_blank_or_too_long(entry: str, said: str | None) -> None:
    found = literal_problem(entry)
    assert found is None if said is None else said in (found or "")
