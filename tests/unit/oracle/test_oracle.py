"""The oracle and the job's workers against results worked out by hand; random histories reach the rules."""

import json
from collections import Counter
from itertools import permutations
from random import Random
from typing import Any, NamedTuple

import pytest

from matcher.selectors import BloomFilter
from streaming import oracle
from streaming.oracle import Effective, Oracle
from streaming.records.model import BIND_TOPIC, DEADLINE_STEP_MS, WILDCARD, Stream
from streaming.records.routing import Routing
from tests.support.events import (
    EXCLUSIVE,
    LITERAL,
    UNBOUND,
    WILD,
    Event,
    add,
    attributes,
    created,
    deleted,
    drop,
    leave,
    quota,
    replace,
    tick,
)
from tests.support.histories import PROFILES, Profile, batches, expected, feed, history, lease_of
from tests.support.simulator import Simulation
from tests.support.world import World

STEP = DEADLINE_STEP_MS


class Step(NamedTuple):
    """A micro-batch of a case.

    Attributes:
        rows: the relation afterwards; None if it is not compared.
        begins: options of a new world, to which this is the first micro-batch; None if the last world goes on.
    """

    events: tuple[Event, ...]
    rows: set[str] | None
    at: int
    begins: dict[str, Any] | None


def world(*events: Event, rows: set[str] | None = None, at: int = 0, **options: Any) -> Step:
    return Step(events, rows, at, options)


def batch(*events: Event, rows: set[str] | None = None, at: int = 0) -> Step:
    return Step(events, rows, at, None)


ABC_TOPICS = [created("a"), created("b"), created("d")]
DESCRIBED = [
    *(created("a", tags="red"), created("b", tags="blue"), created("d", tags="red", properties={"size": "5"})),
    *(created("e", properties={"size": "1"}), created("f")),
]
RED_AND_BLUE = [created("a", tags="red"), created("b", tags="blue")]
MANY = 2_001
EACH = "per-subscription"
TWO_SHARDS = Routing({"p": 2})
FIRST = [name for name in map("t{}".format, range(50)) if TWO_SHARDS.shard_of("p", name) == 0]
SECOND = [name for name in map("t{}".format, range(50)) if TWO_SHARDS.shard_of("p", name) == 1]
OF_BOTH_SHARDS = [created(name) for name in (*FIRST[:3], *SECOND[:2])]
NOTATION_TOPICS = [created(topic) for topic in ("a__x", "a/b", "a.b", "$s/x")]

CASES: dict[str, list[Step]] = {
    # A client's set.
    "a group without events subscribes by names": [
        world(replace("a", "*"), created("a"), created("b"), created("*"), rows={"c a", "c *"}),
    ],
    "a wildcard group subscribes by patterns": [
        world(WILD, replace("a__*", "b"), created("a__x"), created("a"), created("b"), rows={"c a__x", "c b"}),
    ],
    "the mode follows the attributes now in force": [
        world(replace("*", "a"), created("a"), created("b"), created("*"), rows={"c a", "c *"}),
        batch(WILD, rows={"c a", "c b", "c *"}),
        batch(UNBOUND, rows={"c a", "c *"}),
    ],
    "a topic is there from its creation to its deletion": [
        world(WILD, replace("*"), created("a"), created("a"), rows={"c a"}),
        batch(deleted("a"), deleted("b"), rows=set()),
    ],
    "the empty set is everything in a wildcard group and nothing in another": [
        world(WILD, replace(), created("a"), created("b__b"), rows={"c a", "c b__b"}),
        batch(LITERAL, rows=set()),
    ],
    "a set without a valid entry is refused and never widens": [
        world(WILD, replace("a*"), created("a"), rows=set()),
        world(WILD, replace("a"), replace("a*", " "), created("a"), created("b"), rows={"c a"}),
        world(WILD, replace("a"), add("**__a"), created("a"), created("b"), rows={"c a"}),
    ],
    "invalid entries are dropped from a set with valid ones": [
        world(WILD, replace("a*", "b"), created("a"), created("b"), rows={"c b"}),
    ],
    "each mode refuses for itself": [
        world(replace("b"), replace("a*"), created("a*"), created("b"), rows={"c a*"}),
        batch(WILD, rows={"c b"}),
    ],
    "complete add replaces and partial requests change": [
        world(WILD, replace("a"), created("a"), created("b"), created("d")),
        batch(add("b"), rows={"c a", "c b"}),
        batch(drop("a"), rows={"c b"}),
        batch(replace("d"), rows={"c d"}),
        batch(leave("a*"), rows=set()),  # what it names does not count
    ],
    "partial add of entries ends everything": [
        world(WILD, replace(), add("a"), created("a"), created("b"), rows={"c a"}),
    ],
    "partial add of nothing is everything only outside a session": [
        world(WILD, add(), created("a"), rows={"c a"}),
        world(WILD, replace("b"), add(), created("a"), rows=set()),
        world(WILD, replace("b"), leave(), add(), created("a"), rows={"c a"}),
        world(WILD, replace(), add(), created("a"), rows={"c a"}),
    ],
    "partial remove never widens and opens no session": [
        world(WILD, replace("a"), drop("a"), add(), created("a"), created("b"), rows=set()),
        world(WILD, drop("a"), drop(), created("a"), rows=set()),
        world(WILD, drop("a"), add(), created("a"), rows={"c a"}),
        world(WILD, replace(), drop("a"), created("a"), rows={"c a"}),
    ],
    "a lower version is stale": [
        world(WILD, replace("a", version=2), created("a"), created("b")),
        batch(replace("b", version=1), leave(version=1), rows={"c a"}),
        batch(add("b", version=2), rows={"c a", "c b"}),
        batch(drop("a"), rows={"c b"}),
        batch(leave(version=9), replace("a", version=8), rows=set()),
    ],
    "a refused request leaves the version under its mode only": [
        world(WILD, replace("a*", version=5), replace("b", version=4), created("a*"), created("b"), rows={"c b"}),
        batch(UNBOUND, rows={"c a*"}),
    ],
    "inner multi is an option": [
        world(WILD, replace("a__**__z"), created("a__b__z"), rows=set()),
        world(WILD, replace("a__**__z"), created("a__b__z"), inner_multi=True, rows={"c a__b__z"}),
        batch(replace("**__z", client="d"), rows={"c a__b__z", "d a__b__z"}),
    ],
    "the order of inputs does not matter": [
        step
        for first, second, third in permutations([WILD, replace("*"), created("a")])
        for step in (world(first), batch(second), batch(third, rows={"c a"}))
    ],
    # Notations.
    "a notation says how entries are read and delivered": [
        step
        for request, rows in (
            (replace("a__*"), {"c a__x"}),
            (replace(dialect="mqtt"), {"c a__x", "c a/b", "c a.b", "c $s/x"}),
            (replace("a/#", "a.*", dialect="lite"), set()),
            (replace("a__*", "*__*", dialect="lite", delivery=EACH), {"c a__x lite::*__*", "c a__x lite::a__*"}),
            (replace("a/#", "a/+", dialect="mqtt"), {"c a/b"}),
            (replace("$share/s/a/#", "a/+", dialect="mqtt"), {"c a/b", "c a/b share:s/a/#"}),
            (replace("$share/s/a/#", "a/+", dialect="mqtt", delivery=EACH), {"c a/b mqtt::a/+", "c a/b share:s/a/#"}),
            (replace("$share/s/#", dialect="mqtt"), {"c a.b share:s/#", "c a/b share:s/#", "c a__x share:s/#"}),
            (replace("$s/#", dialect="mqtt"), {"c $s/x"}),
            (replace("$share/s/a+", "+/#/c", dialect="mqtt"), set()),
            (replace("a.>", "$s/x", dialect="nats"), {"c $s/x", "c a.b"}),
            (replace("a.>", dialect="nats", delivery=EACH), {"c a.b nats::a.>"}),
            (replace("a.*", "a.b", dialect="wamp"), {"c a.b wamp::a.*", "c a.b wamp::a.b"}),
            (replace("a.", dialect="wamp", policy="prefix"), {"c a.b wamp:prefix:a."}),
            (
                replace("a.", ".b", dialect="wamp", policy="wildcard"),
                {"c a.b wamp:wildcard:.b", "c a.b wamp:wildcard:a."},
            ),
            (replace("a.b", "a.*", dialect="wamp", policy="exact", delivery="per-client"), {"c a.b"}),
            (replace("a__*", dialect="amqp"), set()),
            (replace("a/b", dialect="mqtt", policy="exact"), set()),
            (replace("a__*", delivery="twice"), set()),
        )
        for step in (
            *(world(WILD, *NOTATION_TOPICS), batch(request, rows=rows)),
            *(world(WILD, request), batch(*NOTATION_TOPICS, rows=rows)),
        )
    ],
    "a set may mix notations and partial remove takes from its own": [
        world(WILD, created("a"), created("a/b"), replace("a"), add("a", "a/+", dialect="mqtt")),
        batch(drop("a"), rows={"c a", "c a/b"}),
        batch(drop("a/+"), rows={"c a", "c a/b"}),
        batch(drop("a", dialect="mqtt"), rows={"c a/b"}),
        batch(replace("a"), rows={"c a"}),
    ],
    "names have no notation": [
        world(
            created("a"),
            created("$share/s/a"),
            replace("a", "$share/s/a", dialect="mqtt"),
            rows={"c a", "c $share/s/a"},
        ),
        batch(drop("a"), rows={"c $share/s/a"}),
    ],
    # Groups.
    "a group that is bound elsewhere receives nothing until it is unbound": [
        world(replace("a"), created("a"), created("b")),
        batch(attributes(parent="q"), rows=set()),
        batch(add("b"), rows=set()),
        batch(UNBOUND, rows={"c a", "c b"}),
    ],
    "a group may be bound again to where it was": [
        world(WILD, replace("*"), created("a"), replace("*", parent="q"), created("b", parent="q"), rows={"c a"}),
        batch(attributes(WILDCARD, parent="q"), rows={"c b on q"}),
        batch(WILD, rows={"c a"}),
    ],
    "a deletion that names another parent is of the past": [
        world(WILD, replace("*"), created("a")),
        batch({**UNBOUND, "parentTopic": "q"}, rows={"c a"}),
        batch({**UNBOUND, "parentTopic": "p"}, rows=set()),
    ],
    "wrong attributes leave the former ones": [
        world(WILD, wrong, replace("*"), created("a"), rows={"c a"})
        for wrong in (
            attributes(model="Single"),
            *(attributes(quota=value) for value in ("-2", "1.5", "many")),
            attributes(parent=" "),
            {"group": "g", "attributes": {BIND_TOPIC: "p", WILDCARD: None}},
        )
    ],
    # Selectors.
    "a selector is held against the topics creation": [
        step
        for request, topics in (
            (replace("*", tag="red"), "ad"),
            (replace("*", tag="red || blue"), "abd"),
            (replace("*", tag="*"), "abdef"),
            (replace("*", sql="size > 3"), "d"),
            (replace("*", sql="size is null"), "abf"),
            (replace("*", sql="colour = 'red' or size = 1"), "e"),
            (replace("a", "b", tag="red"), "a"),
            (replace(tag="red"), "ad"),
        )
        for rows in ({f"c {topic}" for topic in topics},)
        for step in (
            *(world(WILD, *DESCRIBED), batch(request, rows=rows)),
            *(world(WILD, request), batch(*DESCRIBED, rows=rows)),
        )
    ],
    "sql takes properties and wants true": [
        world(WILD, replace("*", sql="size > 1"), created("a", properties={"size": "x"}), rows=set()),
    ],
    "a second creation is ignored and a new birth counts": [
        world(replace("a", tag="red"), created("a", tags="red"), created("a", tags="blue"), rows={"c a"}),
        batch(deleted("a"), created("a", tags="blue"), rows=set()),
        batch(deleted("a"), created("a", tags="red"), rows={"c a"}),
    ],
    "the latest selector of any client decides for the whole group": [
        world(WILD, created("a", tags="red"), created("b", tags="blue"), replace("*", tag="red")),
        batch(replace("*", client="d"), rows={"c a", "d a"}),
        batch(drop("z", client="e", tag="blue"), rows={"c b", "d b"}),
        batch(add("z", client="d", tag="red"), rows={"c a", "d a"}),
        batch(drop("z", client="d", tag="blue"), rows={"c b", "d b"}),
        batch(
            replace("*", group="other"),
            attributes(WILDCARD, group="other"),
            rows={"c a of other", "c b of other", "c b", "d b"},
        ),
    ],
    "only a valid request that may say one changes the selector": [
        world(WILD, *RED_AND_BLUE, replace("*", version=2, tag="red"), request, rows={"c a"})
        for request in (
            replace("**"),
            replace("**", selector=None),
            add("z"),
            replace("**", client="d", sql="size >"),
            replace("**", client="d", selector={"type": "XPATH", "expression": "//a"}),
            replace("a*", tag="blue"),  # nothing valid
            replace("**", version=1, tag="blue"),  # stale
            leave(client="d", tag="blue"),
            replace("**", parent="q", tag="blue"),
        )
    ],
    "a selector stays when the last client leaves": [
        world(WILD, *RED_AND_BLUE, replace("*", tag="red"), rows={"c a"}),
        batch(leave(), rows=set()),
        batch(replace("*", client="d"), rows={"d a"}),
    ],
    "a bad selector refuses the whole request": [
        world(replace("a"), replace("b", tag="||"), created("a"), created("b"), rows={"c a"}),
    ],
    "each mode has its own selector": [
        world(created("a*", tags="red"), created("b", tags="blue"), replace("b", "a*", tag="blue")),
        batch(add("a*", tag="red"), rows={"c a*"}),
        batch(WILD, rows={"c b"}),
    ],
    # Exclusive groups.
    "the newest subscriber holds a topic and leaves it to the next": [
        world(EXCLUSIVE, created("a"), replace("*", client="c")),
        batch(replace("a", client="d"), rows={"d a"}),
        batch(replace("**", client="e"), rows={"e a"}),
        batch(leave(client="e"), rows={"d a"}),
        batch(drop("a", client="d"), rows={"c a"}),
    ],
    "a later topic goes to the newest that matches": [
        world(EXCLUSIVE, replace("*", client="c"), replace("b", client="d")),
        batch(created("a"), created("b"), rows={"c a", "d b"}),
    ],
    "the model follows the attributes in any case": [
        world(WILD, created("a"), replace("*", client="c"), replace("*", client="d"), rows={"c a", "d a"}),
        batch(attributes(WILDCARD, model="eXclusive"), rows={"d a"}),
        batch(attributes(WILDCARD, model="shared"), rows={"c a", "d a"}),
    ],
    "exclusive groups of names and other groups": [
        world(attributes(model="Exclusive"), created("a"), replace("a", client="c"), replace("a", client="d")),
        batch(replace("a", client="c", group="other"), replace("a", client="d", group="other")),
        batch(attributes(group="third", model="Exclusive"), replace("a", client="c", group="third")),
        batch(rows={"d a", "c a of other", "d a of other", "c a of third"}),
        batch(replace("a", client="e", group="third"), rows={"d a", "c a of other", "d a of other", "e a of third"}),
        batch(UNBOUND, rows={"c a", "d a", "c a of other", "d a of other", "e a of third"}),
    ],
    "a resync keeps its place and a partial add makes newest": [
        world(EXCLUSIVE, created("a"), replace("a", client="c"), replace("a", client="d")),
        batch(replace("a", client="c"), rows={"d a"}),
        batch(replace("a", "b", client="c"), rows={"d a"}),
        batch(add("a", client="c"), rows={"c a"}),
    ],
    "only the entry that is new makes newer": [
        world(EXCLUSIVE, created("a"), created("b"), replace("a", client="c"), replace("a", "b", client="d")),
        batch(replace("a", "b", client="c"), rows={"d a", "c b"}),
        batch(replace("a", "*", client="c"), rows={"c a", "c b"}),
    ],
    "everything has a place that it keeps": [
        world(EXCLUSIVE, created("a"), replace(client="c"), replace("a", client="d")),
        batch(replace(client="c"), add(client="c"), rows={"d a"}),
        batch(replace("a", client="c"), replace(client="c"), rows={"c a"}),
    ],
    "who returns is new": [
        world(EXCLUSIVE, created("a"), replace("a", client="c"), replace("a", client="d")),
        batch(leave(client="c"), replace("a", client="c"), rows={"c a"}),
    ],
    "the holder has all of its parts": [
        world(EXCLUSIVE, created("a"), replace("a", client="c"), replace("a", dialect="wamp", client="d")),
        batch(add("$share/s/#", dialect="mqtt", client="d"), rows={"d a wamp::a", "d a share:s/#"}),
        batch(add("a", client="c"), rows={"c a"}),
        batch(add("*", dialect="wamp", client="d"), rows={"d a wamp::a", "d a wamp::*", "d a share:s/#"}),
    ],
    "the selector comes before exclusivity": [
        world(EXCLUSIVE, created("a", tags="red"), replace("a", client="c"), replace("a", tag="blue"), rows=set()),
        world(EXCLUSIVE, *RED_AND_BLUE, replace("*")),
        batch(replace("*", client="d", tag="red"), rows={"d a"}),
    ],
    # Quotas.
    "a request for too many topics is refused whole": [
        world(quota(2), *ABC_TOPICS, replace("a")),
        batch(add("b", "d"), rows={"c a"}),
        batch(replace("*"), rows={"c a"}),
        batch(replace("b", "d"), rows={"c b", "c d"}),
    ],
    "the quota is of each client": [
        world(quota(1), *ABC_TOPICS),
        batch(replace("a"), replace("b", client="d"), replace("*", client="e"), rows={"c a", "d b"}),
    ],
    "a refused request leaves version and selector and the other mode": [
        world(quota(1), created("a", tags="red"), created("b", tags="red")),
        batch(replace("a", tag="red"), replace("*", "b", version=9, tag="*")),
        batch(created("x"), replace("a", "x", version=1), rows={"c a"}),
        batch(UNBOUND, rows={"c a"}),
    ],
    "a request that asks for no more than before passes": [
        world(quota(1), replace("*")),
        batch(*ABC_TOPICS),
        batch(replace("**")),
        batch(replace("b", "d"), rows={"c b"}),
        batch(add("a"), rows={"c b"}),
    ],
    "topics of the same batch are capped and not counted": [
        world(quota(1), replace("*"), *ABC_TOPICS, rows={"c a"}),
        world(quota(1), *ABC_TOPICS),
        batch(replace("*"), rows=set()),
    ],
    "the state before a request has the requests before it": [
        world(quota(2), *ABC_TOPICS),
        batch(replace("a", "b"), replace("d"), add("a", "b"), rows={"c d"}),
    ],
    "the first in order of creation are held and room is filled": [
        world(quota(2), replace("*")),
        batch(*ABC_TOPICS, rows={"c a", "c b"}),
        batch(deleted("a"), rows={"c b", "c d"}),
        batch(created("a"), rows={"c b", "c d"}),  # born again, it is the last
        batch(drop("z"), deleted("d"), rows={"c a", "c b"}),
    ],
    "quotas follow the attributes": [
        world(quota(3), replace("*"), *ABC_TOPICS),
        batch(quota(1), rows={"c a"}),
        batch(quota(0), rows=set()),
        batch(quota(-1), rows={"c a", "c b", "c d"}),
        batch(quota(1), replace("**"), rows={"c a"}),  # as many as before: not refused
    ],
    "a group that says nothing has the default quota": [
        world(
            WILD,
            replace("*"),
            *(created(f"t{number}") for number in range(MANY)),
            rows={f"c t{number}" for number in range(MANY - 1)},
        ),
        batch(quota(-1), rows={f"c t{number}" for number in range(MANY)}),
        world(WILD, *(created(f"t{number}") for number in range(MANY))),
        batch(replace("*"), rows=set()),
    ],
    "everything does not count": [
        world(quota(1), *ABC_TOPICS),
        batch(replace(), rows={"c a", "c b", "c d"}),
        batch(replace("*"), rows={"c a", "c b", "c d"}),  # from nothing that counts to three is too many
        batch(replace("a"), rows={"c a"}),
    ],
    "topics count not rows": [
        world(quota(1), created("a")),
        batch(replace("a", "*", "**", dialect="wamp"), rows={"c a wamp::a", "c a wamp::*", "c a wamp::**"}),
        world(quota(1), replace("a", "b", dialect="wamp")),
        batch(*ABC_TOPICS, rows={"c a wamp::a"}),
        batch(add("a*", dialect="wamp"), rows={"c a wamp::a", "c a wamp::a*"}),
        batch(drop("a", dialect="wamp"), rows={"c a wamp::a*"}),
        world(quota(2), quota(0, group="other"), replace("*", "a*", "b*", dialect="wamp")),
        batch(*ABC_TOPICS, rows={"c a wamp::*", "c a wamp::a*", "c b wamp::*", "c b wamp::b*"}),
        world(quota(3), quota(0, group="other"), replace("*", "a*", dialect="wamp")),
        *(batch(created(topic)) for topic in "axyz"),  # by counts that are kept between micro-batches
        batch(rows={"c a wamp::*", "c a wamp::a*", "c x wamp::*", "c y wamp::*"}),
    ],
    "only topics with which the selector agrees count": [
        world(quota(1), created("a", tags="red"), created("b", tags="blue")),
        batch(replace("*", tag="blue"), rows={"c b"}),
        batch(replace("*", tag="red || blue"), rows={"c b"}),
    ],
    "what another client holds counts at the request but not for the cap": [
        world(quota(2, model="Exclusive"), *ABC_TOPICS, replace("a", "b", client="d")),
        batch(replace("*"), rows={"d a", "d b"}),
        world(quota(1, model="Exclusive"), replace("*"), replace("a", client="d")),
        batch(*ABC_TOPICS, rows={"d a", "c b"}),
        batch(drop("a", client="d"), rows={"c a"}),
    ],
    "a capped topic of the newest is not given to the next": [
        world(quota(1, model="Exclusive"), replace("b", client="c"), replace("*", client="d")),
        batch(*ABC_TOPICS, rows={"d a"}),
    ],
    "while the group is bound elsewhere nothing counts": [
        world(quota(1, parent="q"), *ABC_TOPICS),
        batch(replace("*")),
        batch(quota(1), rows={"c a"}),
    ],
    "each shard has its share of the quota": [
        world(
            quota(3),
            replace("*"),
            *OF_BOTH_SHARDS,
            routing=TWO_SHARDS,
            rows={f"c {name}" for name in (*FIRST[:2], SECOND[0])},
        ),
        world(quota(3), *OF_BOTH_SHARDS, routing=TWO_SHARDS),
        batch(replace(FIRST[0], FIRST[2], *SECOND[:2]), rows={f"c {name}" for name in (FIRST[0], FIRST[2], SECOND[0])}),
    ],
    "requests are capped where that is wanted": [
        world(quota(2), *ABC_TOPICS, replace("a"), cap_requests=True),
        batch(replace("*", version=3), rows={"c a", "c b"}),
        batch(replace("d", version=2), rows={"c a", "c b"}),  # its version counts
    ],
    # The end of clients and topics.
    "the end without a parent is on all parents asked before": [
        world(created("a"), created("a", parent="q"), replace("a"), replace("a", parent="q"), replace("a", client="d")),
        batch(replace("a", group="other"), rows={"c a", "c a on q", "d a", "c a of other"}),
        batch(leave(parent=""), replace("a", parent="q"), rows={"c a on q", "d a", "c a of other"}),
        batch(leave(parent=None), rows={"d a", "c a of other"}),
    ],
    "versions hold on each parent": [
        world(created("a"), created("b", parent="q"), replace("a", version=3), replace("b", parent="q", version=1)),
        batch(leave(parent=" ", version=2), rows={"c a"}),
        batch(replace("b", parent="q", version=1), rows={"c a"}),
    ],
    "a parent that was never asked learns no version": [
        world(created("a"), replace("b", client="d"), leave(parent="", version=9)),
        batch(replace("a", version=1), rows={"c a"}),
    ],
    "who was ended everywhere is new when it returns": [
        world(EXCLUSIVE, created("a"), replace("a", client="c"), replace("a", client="d")),
        batch(leave(client="c", parent=""), replace("a", client="c"), rows={"c a"}),
    ],
    "a silent client ends on every parent": [
        world(created("a"), created("a", parent="q"), client_timeout_ms=100),
        batch(replace("a"), at=1_000),
        batch(replace("a", parent="q"), replace("a", client="d"), at=1_050),
        batch(tick(1_150), rows={"c a", "c a on q", "d a"}),  # as old as the timeout is not older
        batch(add("z", client="d"), tick(1_151), at=1_150, rows={"d a"}),
        batch(add("z"), at=1_200, rows={"d a"}),  # its former set is gone
    ],
    "where a silent client has asked is forgotten": [  # as after an end on all parents; unless it has sent versions
        world(created("a"), client_timeout_ms=100),
        batch(replace("a")),
        batch(tick(500)),
        batch(leave(parent="", version=3), at=501),
        batch(replace("a", version=2), at=502, rows={"c a"}),
        world(created("a"), client_timeout_ms=100),
        batch(replace("a", version=1)),
        batch(tick(500)),
        batch(leave(parent="", version=3), at=501),
        batch(replace("a", version=2), at=502, rows=set()),
    ],
    "any request is a sign of life and none ends without a timeout": [
        world(created("a"), replace("a", version=2), client_timeout_ms=100),
        batch(replace("b", version=1), at=90),
        batch(tick(150), rows={"c a"}),
        world(created("a"), replace("a", version=2), client_timeout_ms=100),
        batch(tick(150), rows=set()),
        world(created("a"), replace("a", version=2)),
        batch(tick(10**9), rows={"c a"}),
    ],
    "a client that asks too late begins anew": [  # whether a tick has told of it or not
        world(created("a"), created("b"), client_timeout_ms=100),
        batch(replace("a"), at=1_000),
        batch(add("b"), rows={"c a", "c b"}, at=1_100),
        batch(add("b"), rows={"c b"}, at=1_201),
    ],
    "a topic created after its end lives anew": [
        world(created("a", ttlMs=1)),
        batch(replace("a"), at=STEP - 99),
        batch(created("a"), at=STEP - 99),
        batch(tick(STEP), rows=set()),  # it was there still
        world(created("a", ttlMs=1)),
        batch(replace("a"), at=1),
        batch(created("a"), at=STEP),
        batch(tick(STEP), rows={"c a"}),
    ],
    "a silent client keeps its version": [
        world(created("a"), replace("a", version=2), client_timeout_ms=100),
        batch(tick(500)),
        batch(replace("a", version=1), rows=set(), at=500),
    ],
    "a topic ends at its deadline rounded up": [
        world(replace("a", "b", "d")),
        batch(created("a", ttlMs=STEP - 1), created("b", ttlMs=STEP, timestamp=0), at=1_000),
        batch(created("d")),
        batch(tick(STEP - 1), rows={"c a", "c b", "c d"}),
        batch(tick(STEP), rows={"c a", "c d"}),
        batch(tick(2 * STEP), rows={"c d"}),
    ],
    "a second creation does not prolong and a new birth does": [
        world(replace("a")),
        batch(created("a", ttlMs=STEP)),
        batch(created("a", ttlMs=9 * STEP), created("a")),
        batch(tick(STEP), rows=set()),
        batch(created("a", ttlMs=STEP), at=STEP),
        batch(deleted("a"), created("a", ttlMs=9 * STEP), at=STEP),
        batch(tick(9 * STEP), rows={"c a"}),
    ],
    "a topic whose time was over before it came ends at once": [
        world(replace("a", "b"), created("a", ttlMs=STEP), tick(STEP), rows=set()),
        batch(created("b", ttlMs=STEP), rows=set()),
    ],
}
"""By the rule: micro-batches of one world or several, and the rows after each."""


@pytest.mark.rule("late-topic-event", case="a topic created after its end lives anew")
@pytest.mark.rule("forgotten-parents", case="where a silent client has asked is forgotten")
@pytest.mark.rule("default-delivery", case="a notation says how entries are read and delivered")
@pytest.mark.rule("inner-multi", case="inner multi is an option")
@pytest.mark.rule("lasting-selector", case="a selector stays when the last client leaves")
@pytest.mark.rule("no-selector", case="only a valid request that may say one changes the selector")
@pytest.mark.rule("order-of-inputs", case="the order of inputs does not matter")
@pytest.mark.rule("quota-of-everything", case="everything does not count")
@pytest.mark.rule("rows-of-the-holder", case="the holder has all of its parts")
@pytest.mark.rule("selector", case="a selector is held against the topics creation")
@pytest.mark.rule("selector-before-exclusivity", case="the selector comes before exclusivity")
@pytest.mark.rule("quota-values", case="a group that says nothing has the default quota")
@pytest.mark.parametrize("system", [Oracle, Simulation])
@pytest.mark.parametrize("rule", CASES)
def test_a_case_has_these_rows(rule: str, system: type[Oracle | Simulation]) -> None:
    for number, step in enumerate(CASES[rule]):
        if step.begins is not None:
            happening = World(system(**step.begins))
        happening.batch(*step.events, at=step.at)
        if step.rows is not None:
            assert happening.rows == step.rows, f"after micro-batch {number}"


def patterns(*events: Event, client: str = "c", part: str = "") -> tuple[str, ...]:
    """The patterns of a row of topic `a` after these events, each in a micro-batch of its own."""
    world = World(Oracle())
    for event in events:
        world.batch(event)
    assert isinstance(world.told, Oracle)
    return world.told.patterns(Effective("p", "g", client, "a", part))


def test_patterns_of_a_row_are_those_of_its_part() -> None:
    events = [WILD, created("a"), replace("a", "*", "b"), add("$share/s/+", "$share/s/#", "#", dialect="mqtt")]
    assert patterns(*events) == ("#", "*", "a")
    assert patterns(*events, part="share:s/+") == ("+",)
    assert patterns(*events, part="share:s/#") == ("#",)
    assert patterns(*events, client="other") == ()


def test_patterns_follow_the_last_request() -> None:
    """There are none if it asks for everything."""
    assert patterns(WILD, replace(), created("a")) == ()
    assert patterns(quota(1), replace("*"), *ABC_TOPICS, replace("**")) == ("**",)


def test_what_the_job_writes_to_itself_is_left_out() -> None:
    moved = {"group": "g", "attributes": {}, "parentTopic": "p", "supersededBy": [0, 1, 1], "boundTo": "q"}
    world = World(Oracle(), WILD, replace("*"), created("a"))
    assert world.batch(moved, leave(asOf=[0, 9, 9])).rows == {"c a"}


def test_the_bitmap_has_the_groups_whose_sql_agrees() -> None:
    told = Oracle()
    world = World(told, created("a", properties={"size": "2"}), created("b"))
    world.batch(replace("a", group="tags", tag="*"))
    assert told.bitmap("p", "a") is None
    world.batch(replace("a", group="yes", sql="size = 2"), replace("a", group="no", sql="size = 3"))
    wanted = BloomFilter().bitmap()
    assert told.bitmap("p", "b") == bytes(wanted)
    wanted.add("yes#p")
    assert told.bitmap("p", "a") == bytes(wanted)
    world.batch(leave(group="yes"))
    assert told.bitmap("p", "a") == bytes(BloomFilter().bitmap()), "a group without attributes needs a client"
    world.batch(attributes(group="yes", parent="q"), attributes(group="no", parent="q"))
    assert told.bitmap("p", "a") is None, "none is in force"


# Whole histories.


def test_replay_reads_raw_entries_and_skips_what_is_not_valid() -> None:
    topics, requests, groups = (
        [json.dumps(e).encode() for e in events] for events in ([created("a")], [replace("*")], [WILD])
    )
    assert oracle.replay([*topics, b"{", None], [b"[]", *requests], [None, *groups]) == {Effective("p", "g", "c", "a")}


def without_time_or_quotas() -> list[Profile]:
    """Profiles without any effect of the cuts between micro-batches and of the shards."""
    return [profile for profile in PROFILES.values() if not profile.quotas and not profile.life]


@pytest.mark.parametrize("profile", without_time_or_quotas(), ids=repr)
def test_how_input_is_cut_and_spread_matters_only_with_quotas_and_time(profile: Profile) -> None:
    for seed in range(40):
        random = Random(seed)
        records = history(random, 80, profile)
        routing = Routing({"p": random.randint(1, 4)}, random.randint(0, 2))
        assert expected(batches(random, records), routing).relation() == expected([records]).relation()


def test_punctual_ticks_come_after_what_was_produced_before_them() -> None:
    for seed in range(40):
        random = Random(seed)
        records = history(random, 80, PROFILES["life"])
        cut = list(batches(random, records, punctual=True))
        assert Counter(record for batch in cut for record in batch) == Counter(records)
        unread = Counter(records)
        for batch in cut:
            for record in batch:
                if record.stream is Stream.CLOCK:
                    others = {other for other in unread if other.stream is not Stream.CLOCK and unread[other]}
                    assert all(other.timestamp >= record.timestamp for other in others)
            unread -= Counter(batch)


REACHED = {
    "plain": {"rows": 90},
    "dialects": {"share": 20, "subscription": 50},
    "selectors": {"selector disagreed": 80},
    "exclusive": {"evicted": 50},
    "quota": {"capped": 40, "refused by quota": 25},
    "capped": {"capped": 50, "evicted": 10, "bound elsewhere": 30, "lease ended": 20, "topic expired": 20},
    "bound": {"bound elsewhere": 90, "rows": 90},
    "life": {"ended everywhere": 70, "lease ended": 60, "topic expired": 60, "time was over": 20},
    "all": {
        "share": 10,
        "subscription": 25,
        "selector disagreed": 60,
        "evicted": 15,
        "capped": 10,
        "refused by quota": 5,
        "ended everywhere": 30,
        "lease ended": 30,
        "topic expired": 30,
    },
}
"""Least number of histories out of a hundred, by profile, in which a rule must decide."""


@pytest.mark.parametrize("name", PROFILES)
def test_random_histories_reach_the_rules(name: str) -> None:
    found: Counter[str] = Counter()
    for seed in range(100):
        random = Random(seed)
        routing = Routing({"p": random.choice([1, 1, 2, 3])})
        records = history(random, 80, PROFILES[name])
        told = Oracle(routing, client_timeout_ms=lease_of(records), cap_requests=PROFILES[name].capped)
        parts = set()
        for batch in batches(random, records):
            feed(told, batch)
            parts |= {row.part.partition(":")[0] for row in told.relation()}
        reached = {rule for rule, times in told.decided.items() if times}
        reached |= {"rows"} if parts else set()
        reached |= {"share"} if "share" in parts else set()
        reached |= {"subscription"} if parts - {"", "share"} else set()
        found.update(reached)
    assert {rule: found[rule] for rule, least in REACHED[name].items() if found[rule] < least} == {}
