"""One row for each rule of how a request changes a client's set."""

import pytest

from streaming.records.model import LITE, MAX_NAME_BYTES, End, Notation, Place, SubscriptionRequest
from streaming.state.blocks import Block
from streaming.state.client import (
    ABSENT,
    NOTHING,
    Client,
    Ignored,
    Interest,
    LastRequest,
    Mode,
    RequestRules,
    Subscription,
    advance,
    ended,
    ended_by_former_release,
    literal_problem,
)
from streaming.state.client import RequestOutcome as Outcome
from streaming.state.group import interest
from tests.support.events import MQTT, NATS, WAMP, Event, add, drop, leave, replace, request
from tests.support.events import ended as leaves

LITERAL, WILDCARD = Mode.LITERAL, Mode.WILDCARD
BOTH = (LITERAL, WILDCARD)


OLD, NEW = 3, 9
"""The order of what was there, and of the request; each stands at ten times that offset."""


def problem(entry: str, notation: Notation) -> str | None:
    """Entries that begin with `!` are invalid, in MQTT those that end with it."""
    return f"{entry} is bad" if entry[-1 if notation == MQTT else 0] == "!" else None


def relevant(entry: str, notation: Notation) -> bool:
    """Entries that begin with `~` concern other shards, in MQTT those that end with it."""
    return entry[-1 if notation == MQTT else 0] != "~"


def at(offset: int, entry: int = 0) -> int:
    """The position of an entry of a record."""
    return Place(0, offset, 0, entry).position


def seen(offset: int, complete: int = -1, order: int = 0) -> LastRequest:
    """A client asked last there, and replaced its set there, under both modes, with a request of that order."""
    began = at(complete) if complete >= 0 else -1
    return LastRequest(0, at(offset), began, began, order, order)


def old(*entries: str, notation: Notation = LITE, order: int = OLD) -> Block:
    """Block of an earlier request."""
    return Block(order, 0, at(10 * order), notation, entries)


def new(*entries: str, notation: Notation = LITE) -> Block:
    """Block of the request under test."""
    return old(*entries, notation=notation, order=NEW)


def live(*held: str | Block, version: int | None = None, everything: int | None = None) -> Subscription:
    """Subscription of a client in session; entries without a block were there before."""
    entries = tuple(entry for entry in held if isinstance(entry, str))
    blocks = tuple(block for block in held if isinstance(block, Block))
    asked = (everything, -1 if everything is None else at(10 * everything))
    return Subscription(True, version, (old(*entries), *blocks) if entries else blocks, *asked)


def refused(subscription: Subscription, *entries: str) -> Outcome:
    """Nothing applied, all entries invalid."""
    return Outcome(subscription, tuple(f"{entry} is bad" for entry in entries), refused=True)


ALL = live(everything=OLD)
AT_5 = live("a", version=5)
STALE_AT_5 = Outcome(AT_5, ignored=Ignored.STALE_VERSION)
RULES: list[tuple[str, tuple[Mode, ...], Subscription, Event, Outcome]] = [
    # Versions.
    ("a lower version is stale", BOTH, AT_5, replace("b", version=4), STALE_AT_5),
    ("also in PARTIAL_ADD", BOTH, AT_5, add("b", version=4), STALE_AT_5),
    ("also in PARTIAL_REMOVE", BOTH, AT_5, drop("a", version=4), STALE_AT_5),
    ("also in COMPLETE_REMOVE", BOTH, AT_5, leave(version=4), STALE_AT_5),
    ("stale comes before invalid", BOTH, AT_5, replace("!", version=4), STALE_AT_5),
    ("an equal version is applied", BOTH, AT_5, replace("b", version=5), Outcome(live(new("b"), version=5))),
    ("a higher version is applied", BOTH, AT_5, replace("b", version=6), Outcome(live(new("b"), version=6))),
    ("an unversioned request is applied and keeps the version", BOTH, AT_5, add("b"),
        Outcome(live("a", new("b"), version=5))),
    ("the first version may be any", BOTH, live("a"), add("b", version=-9), Outcome(live("a", new("b"), version=-9))),
    ("version 0 is a version", BOTH, live(version=0), replace("a", version=-1),
        Outcome(live(version=0), ignored=Ignored.STALE_VERSION)),
    # Sets whose entries are invalid.
    ("all invalid: COMPLETE_ADD is refused", BOTH, AT_5, replace("!1", "!2", version=6), refused(AT_5, "!1", "!2")),
    ("all invalid: PARTIAL_ADD is refused", BOTH, AT_5, add("!", version=6), refused(AT_5, "!")),
    ("all invalid: PARTIAL_REMOVE is refused", BOTH, AT_5, drop("!", version=6), refused(AT_5, "!")),
    ("all invalid: a new client stays absent", BOTH, ABSENT, replace("!"), refused(ABSENT, "!")),
    ("all invalid: COMPLETE_REMOVE needs no entries", BOTH, AT_5,
        leave("!", version=6), Outcome(Subscription(version=6))),
    ("some invalid: the valid ones stand", BOTH, ABSENT, replace("a", "!", "b"),
        Outcome(live(new("a", "b")), ("! is bad",))),
    ("some invalid in PARTIAL_ADD", BOTH, live("a"), add("!", "b"), Outcome(live("a", new("b")), ("! is bad",))),
    ("some invalid in PARTIAL_REMOVE", BOTH, live("a", "b"), drop("!", "b"), Outcome(live("a"), ("! is bad",))),
    # The empty set.
    ("an empty set is nothing in a literal group", (LITERAL,), live("a"), replace(), Outcome(live())),
    ("an empty set is everything in a wildcard group", (WILDCARD,), live("a"), replace(),
        Outcome(live(everything=NEW))),
    ("also for a new client, by PARTIAL_ADD", (WILDCARD,), ABSENT, add(), Outcome(live(everything=NEW))),
    ("but nothing in a literal group", (LITERAL,), ABSENT, add(), Outcome(live())),
    ("an empty PARTIAL_ADD does not widen a set", BOTH, live("a"), add(), Outcome(live("a"))),
    ("nor a set that has become empty", BOTH, live(), add(), Outcome(live())),
    ("an empty PARTIAL_ADD leaves everything", (WILDCARD,), ALL, add(), Outcome(ALL)),
    ("PARTIAL_ADD narrows everything to what it names", (WILDCARD,), ALL, add("a"), Outcome(live(new("a")))),
    ("COMPLETE_ADD narrows everything as well", (WILDCARD,), ALL, replace("a"), Outcome(live(new("a")))),
    ("a re-sync of everything keeps its order", (WILDCARD,), ALL, replace(), Outcome(ALL)),
    ("everything asked for again after the end is new", (WILDCARD,), Subscription(version=5), replace(),
        Outcome(live(version=5, everything=NEW))),
    # Removal.
    ("PARTIAL_REMOVE takes what it names", BOTH, live("a", "b", "c"), drop("b"), Outcome(live("a", "c"))),
    ("PARTIAL_REMOVE takes from all blocks", BOTH, live("a", "b", old("c", order=5), old("d", order=6)),
        drop("a", "c"), Outcome(live("b", old("d", order=6)))),
    ("PARTIAL_REMOVE of the last entry leaves nothing, not everything", BOTH, live("a"), drop("a"), Outcome(live())),
    ("PARTIAL_REMOVE of what is not there", BOTH, live("a"), drop("z"), Outcome(live("a"))),
    ("an empty PARTIAL_REMOVE", BOTH, live("a"), drop(), Outcome(live("a"))),
    ("PARTIAL_REMOVE leaves everything as it is", (WILDCARD,), ALL, drop("a"), Outcome(ALL)),
    ("PARTIAL_REMOVE moves the version", BOTH, AT_5, drop("a", version=7), Outcome(live(version=7))),
    ("PARTIAL_REMOVE of an unknown client begins no session", BOTH, ABSENT, drop("a", version=7),
        Outcome(Subscription(version=7), ignored=Ignored.NO_SUBSCRIPTION)),
    ("COMPLETE_REMOVE keeps the version", BOTH, AT_5, leave(), Outcome(Subscription(version=5))),
    ("COMPLETE_REMOVE ends everything", (WILDCARD,), ALL, leave(version=1), Outcome(Subscription(version=1))),
    ("COMPLETE_REMOVE of a client that is gone moves the version", BOTH, Subscription(version=5), leave(version=6),
        Outcome(Subscription(version=6), ignored=Ignored.NO_SUBSCRIPTION)),
    ("after COMPLETE_REMOVE older requests stay stale", BOTH, Subscription(version=5), replace("a", version=4),
        Outcome(Subscription(version=5), ignored=Ignored.STALE_VERSION)),
    ("a client can come back", BOTH, Subscription(version=5), add("a", version=5), Outcome(live(new("a"), version=5))),
    # Order.
    ("a re-sync in another order keeps the order", BOTH, live("a", "b"), replace("b", "a"), Outcome(live("a", "b"))),
    ("a re-sync of several requests keeps their orders", BOTH, live("a", old("b", order=5)), replace("b", "a"),
        Outcome(live("a", old("b", order=5)))),
    ("what stays in a replacement keeps its order", BOTH, live("a", "b"), replace("c", "a"),
        Outcome(live("a", new("c")))),
    ("PARTIAL_ADD makes newest what it names", BOTH, live("b", "a"), add("a", "c"),
        Outcome(live("b", new("a", "c")))),
    ("also when all of it was there", BOTH, live("a"), add("a"), Outcome(live(new("a")))),
    ("also when it stood among others of several requests", BOTH, live("a", old("b", "c", order=5)), add("b", "a"),
        Outcome(live(old("c", order=5), new("b", "a")))),
    # Notations.
    ("patterns have their notation", (WILDCARD,), ABSENT, replace("a/+", dialect="mqtt"),
        Outcome(live(new("a/+", notation=MQTT)))),
    ("names have none", (LITERAL,), ABSENT, replace("a/+", dialect="mqtt"), Outcome(live(new("a/+")))),
    ("COMPLETE_ADD replaces all notations", (WILDCARD,), live("a", old("a", notation=MQTT)),
        replace("a", dialect="nats"), Outcome(live(new("a", notation=NATS)))),
    ("PARTIAL_ADD of another notation adds", (WILDCARD,), live("a"), add("a", dialect="nats"),
        Outcome(live("a", new("a", notation=NATS)))),
    ("PARTIAL_REMOVE takes only its own notation", (WILDCARD,), live("a", old("a", notation=NATS)),
        drop("a", dialect="nats"), Outcome(live("a"))),
    ("names are the same in all notations", (LITERAL,), live("a", "b"), drop("a", dialect="nats"), Outcome(live("b"))),
    ("delivery is part of the notation", (WILDCARD,), live("a"), replace("a", notation=Notation("lite", None, True)),
        Outcome(live(new("a", notation=Notation("lite", None, True))))),
    ("the policy is as well", (WILDCARD,), live(old("a", notation=WAMP)),
        add("a", notation=WAMP._replace(policy="prefix")),
        Outcome(live(old("a", notation=WAMP), new("a", notation=WAMP._replace(policy="prefix"))))),
    ("patterns are judged in their notation", (WILDCARD,), ABSENT, replace("!", "a!", "!a", dialect="mqtt"),
        Outcome(live(new("!a", notation=MQTT)), ("! is bad", "a! is bad"))),
    ("names without one", (LITERAL,), ABSENT, replace("!", "a!", "!a", dialect="mqtt"),
        Outcome(live(new("a!")), ("! is bad", "!a is bad"))),
    # Other shards.
    ("entries of other shards are left out", BOTH, ABSENT, replace("a", "~b"), Outcome(live(new("a")))),
    ("a set for other shards only is not everything", BOTH, ABSENT, replace("~b"), Outcome(live())),
    ("it narrows everything as well", (WILDCARD,), ALL, add("~b"), Outcome(live())),
    ("a set for other shards and invalid entries is not refused", BOTH, AT_5, replace("~", "!"),
        Outcome(live(version=5), ("! is bad",))),
    ("what other shards see is a matter of notation as well", (WILDCARD,), ABSENT, add("~a", "a~", dialect="mqtt"),
        Outcome(live(new("~a", notation=MQTT)))),
]  # fmt: skip


@pytest.mark.rule("complete-add", case="COMPLETE_ADD replaces all notations")
@pytest.mark.rule("resync", case="a re-sync in another order keeps the order")
@pytest.mark.rule("partial", case="PARTIAL_ADD of another notation adds")
@pytest.mark.rule("partial", case="PARTIAL_REMOVE takes only its own notation")
@pytest.mark.rule("complete-remove", case="COMPLETE_REMOVE ends everything")
@pytest.mark.rule("stale", case="a lower version is stale")
@pytest.mark.rule("stale", case="an equal version is applied")
@pytest.mark.rule("stale", case="an unversioned request is applied and keeps the version")
@pytest.mark.rule("versions", case="after COMPLETE_REMOVE older requests stay stale")
@pytest.mark.rule("names-have-no-notation", case="names have none")
@pytest.mark.rule("empty-partial-add", case="also for a new client, by PARTIAL_ADD")
@pytest.mark.rule("empty-partial-add", case="an empty PARTIAL_ADD does not widen a set")
@pytest.mark.rule("narrowing", case="PARTIAL_ADD narrows everything to what it names")
@pytest.mark.rule("partial-remove", case="PARTIAL_REMOVE of the last entry leaves nothing, not everything")
@pytest.mark.rule("partial-remove", case="PARTIAL_REMOVE leaves everything as it is")
@pytest.mark.rule("partial-remove", case="PARTIAL_REMOVE of an unknown client begins no session")
@pytest.mark.rule("no-valid-entry", case="all invalid: COMPLETE_ADD is refused")
@pytest.mark.rule("some-valid-entries", case="some invalid: the valid ones stand")
@pytest.mark.rule("age-of-everything", case="a re-sync of everything keeps its order")
@pytest.mark.parametrize(
    ("mode", "subscription", "request_", "change"),
    [
        pytest.param(mode, subscription, request(event), change, id=f"{name} ({mode})")
        for name, modes, subscription, event, change in RULES
        for mode in modes
    ],
)
def test_advance(mode: Mode, subscription: Subscription, request_: SubscriptionRequest, change: Outcome) -> None:
    assert advance(subscription, request_, RequestRules(mode, problem, relevant), NEW, Place(0, 10 * NEW, 77)) == change


@pytest.mark.rule("mode")
@pytest.mark.parametrize(
    ("client", "mode", "wanted"),
    [
        (Client(), LITERAL, NOTHING),
        (Client(), WILDCARD, NOTHING),
        (Client(Subscription(version=3), Subscription(version=3)), WILDCARD, NOTHING),
        (Client(live(), live()), WILDCARD, NOTHING),
        (Client(live("a"), live("b")), LITERAL, Interest(False, (old("a"),))),
        (Client(live("a"), live("b")), WILDCARD, Interest(True, (old("b"),))),
        (Client(live(), ALL), LITERAL, NOTHING),
        (Client(live(), ALL), WILDCARD, Interest(True, (), OLD)),
        (Client(live(), live(everything=0)), WILDCARD, Interest(True, (), 0)),
        (Client(live("a"), Subscription(False, 1, (old("a"),))), WILDCARD, NOTHING),
    ],
)
def test_the_interest_is_the_live_part_of_a_subscription(client: Client, mode: Mode, wanted: Interest) -> None:
    assert interest(client, mode) == wanted


def test_the_entries_of_an_interest_have_their_notation_but_no_order() -> None:
    wanted = Interest(True, (old("a", "b"), new("a", notation=NATS)))
    assert wanted.entries == {(LITE, "a"), (LITE, "b"), (NATS, "a")}


# The end of a client on all of its parents, and that of one that did not ask, arrive later than they were decided.

HELD = live("a", old("b", order=5), version=7)
LEAVES = Place(0, 60, 77)


@pytest.mark.rule("version-of-end", case="a lower one is")
@pytest.mark.parametrize(
    ("end", "asked_again", "version"),
    [
        pytest.param(End(LEAVES), False, 7, id="the version of the client stays"),
        pytest.param(End(LEAVES, 9), False, 9, id="or becomes that of the end"),
        pytest.param(End(LEAVES, 7), False, 7, id="an equal one is not stale"),
        pytest.param(End(LEAVES, 6), False, None, id="a lower one is"),
        pytest.param(End(LEAVES, 6, 8), False, None, id="whatever the coordinator takes for known"),
        pytest.param(End(LEAVES, 9, 10), False, 9, id="which the shard may have refused"),
        pytest.param(End(LEAVES, 6), True, 6, id="what came since does not make it stale"),
        pytest.param(End(LEAVES, 6, 6), True, 6, id="an equal one of then does not either"),
        pytest.param(End(LEAVES, 6, 7), True, None, id="only a higher one of then"),
        pytest.param(End(LEAVES, None, 3), True, 3, id="the version of then comes back"),
    ],
)
def test_an_ended_client_keeps_a_version_only(
    end: End,
    asked_again: bool,  # noqa: FBT001
    version: int | None,
) -> None:
    found = ended(HELD, end, [request(add("b", version=7))] if asked_again else ())
    assert found == (None if version is None else Subscription(version=version))


FORMER: list[tuple[str, Subscription, Event, LastRequest | None, Subscription]] = [
    ("all is over", HELD, leaves(60), seen(50, 30), Subscription(version=7)),
    ("also what the very request put there that it answers", HELD, leaves(50), seen(50, 30), Subscription(version=7)),
    ("also by a lease", HELD, leaves(50, expired=True), seen(50, 30), Subscription(version=7)),
    ("also everything", live(everything=OLD), leaves(60), seen(30, 30), ABSENT),
    ("also of a client of which nobody knows when it asked", HELD, leaves(60), None, Subscription(version=7)),
    ("its version counts", HELD, leaves(60, version=9), seen(50, 30), Subscription(version=9)),
    ("one that is stale does nothing", HELD, leaves(60, version=6), seen(50, 30), HELD),
    ("what was added since stays", HELD, leaves(40), seen(50, 30), live(old("b", order=5), version=7)),
    ("what replaced all since stays whole, what it kept included", HELD, leaves(40), seen(60, 50), HELD),
    ("a client that asked since its lease ended keeps all", HELD, leaves(40, expired=True), seen(50, 30), HELD),
    ("offsets of another partition say nothing, so all is over", HELD, leaves(40, partition=1), seen(50, 50),
        Subscription(version=7)),
    ("a client that is gone stays gone", Subscription(version=7), leaves(40), seen(30), Subscription(version=7)),
]  # fmt: skip


def test_a_version_that_only_the_shard_has_stays() -> None:
    """The coordinator of a former release kept none."""
    assert ended(HELD, End(LEAVES), [request(add("b", version=6))]) == Subscription(version=7)


@pytest.mark.parametrize(
    ("subscription", "request_", "asked", "after"),
    [pytest.param(subscription, request(end), *rest, id=name) for name, subscription, end, *rest in FORMER],
)
@pytest.mark.parametrize("mode", Mode)
def test_an_end_that_a_former_release_wrote(
    mode: Mode,
    subscription: Subscription,
    request_: SubscriptionRequest,
    asked: LastRequest | None,
    after: Subscription,
) -> None:
    as_of = request_.as_of
    assert as_of is not None
    assert ended_by_former_release(subscription, request_, as_of, asked, mode) == after


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
