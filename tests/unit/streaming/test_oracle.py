"""The oracle against results worked out by hand, one test a rule; then proof that random histories reach the rules."""

import json
from collections import Counter
from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any

import pytest

from matcher.selectors import BloomFilter
from streaming import oracle
from streaming.errors import Rejected
from streaming.events.model import BIND_TOPIC, DEADLINE_STEP_MS, MODEL, QUOTA, WILDCARD, Place, Stream
from streaming.events.parsing import parse_clock, parse_group_event, parse_subscription, parse_topic_event
from streaming.events.routing import Routing
from streaming.oracle import Effective, Oracle
from tests.support.histories import PROFILES, Profile, batches, expected, feed, history, lease_of

Event = dict[str, Any]


def created(topic: str, parent: str = "p", **fields: Any) -> Event:
    """Creation of a lite topic."""
    return {"event": "CREATED", "parentTopic": parent, "liteTopic": topic, **fields}


def deleted(topic: str) -> Event:
    """Deletion of a lite topic."""
    return {"event": "DELETED", "parentTopic": "p", "liteTopic": topic}


def ask(
    action: str, *entries: str, client: str = "c", parent: str | None = "p", group: str = "g", **fields: Any
) -> Event:
    """Subscription request of a client."""
    base = {"action": action, "clientId": client, "group": group, "topic": parent, "liteTopicSet": entries}
    return {**base, **fields}


replace, add, drop, leave = (
    partial(ask, action) for action in ("COMPLETE_ADD", "PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_REMOVE")
)


def attributes(*flags: str, group: str = "g", parent: str = "p", **values: Any) -> Event:
    """Attributes of a group; keywords are `model` and `quota`."""
    names = {"model": MODEL, "quota": QUOTA}
    named = {names[keyword]: value for keyword, value in values.items()}
    return {"group": group, "attributes": {BIND_TOPIC: parent, **dict.fromkeys(flags, "true"), **named}}


def tick(time: int) -> Event:
    """Tick of the clock."""
    return {"tick": time}


def tag(text: str) -> Event:
    """A TAG selector."""
    return {"type": "TAG", "expression": text}


def sql(text: str) -> Event:
    """A SQL92 selector."""
    return {"type": "SQL92", "expression": text}


LITERAL = attributes()
WILD = attributes(WILDCARD)
EXCLUSIVE = attributes(WILDCARD, model="Exclusive")
UNBOUND: Event = {"group": "g", "attributes": {}}


def quota(number: int, *flags: str, **values: Any) -> Event:
    """A wildcard group with a quota."""
    return attributes(WILDCARD, *flags, quota=str(number), **values)


class World:
    """An oracle fed with events in short form, one call a micro-batch."""

    def __init__(self, *events: Event, **options: Any) -> None:
        self.oracle = Oracle(**options)
        self.offset = 0
        self.batch(*events)

    def batch(self, *events: Event, at: int = 0) -> "World":
        """Apply a micro-batch of records with the timestamp `at`; invalid records are left out."""
        topics, requests, groups, ticks = (
            [e for e in events if key in e] for key in ("event", "action", "attributes", "tick")
        )
        assert len(events) == len(topics) + len(requests) + len(groups) + len(ticks)
        self.oracle.batch(
            self._placed(parse_topic_event, topics, at),
            self._placed(parse_subscription, requests, at),
            self._placed(parse_group_event, groups, at),
            self._placed(parse_clock, ticks, at),
        )
        return self

    def each(self, *events: Event) -> "World":
        """Apply each event in a micro-batch of its own."""
        for event in events:
            self.batch(event)
        return self

    @property
    def rows(self) -> set[str]:
        """The relation as texts of client, topic and part; the test has one parent and group."""
        return {f"{row.client_id} {row.lite_topic} {row.part}".strip() for row in self.oracle.relation()}

    def patterns(self, client: str, topic: str, part: str = "") -> tuple[str, ...]:
        """The patterns of a row."""
        return self.oracle.patterns(Effective("p", "g", client, topic, part))

    def _placed(self, parse: Any, events: Iterable[Event], at: int) -> list[tuple[Place, Any]]:
        found = []
        for event in events:
            self.offset += 1
            try:
                found.append((Place(0, self.offset, at), parse(json.dumps(event).encode())))
            except Rejected:
                continue
        return found


# A client's set.


def test_a_group_without_events_subscribes_by_names() -> None:
    assert World(replace("a", "*"), created("a"), created("b"), created("*")).rows == {"c a", "c *"}


def test_a_wildcard_group_subscribes_by_patterns() -> None:
    assert World(WILD, replace("a__*", "b"), created("a__x"), created("a"), created("b")).rows == {"c a__x", "c b"}


def test_the_mode_follows_the_attributes_now_in_force() -> None:
    world = World(replace("*", "a"), created("a"), created("b"), created("*"))
    assert world.rows == {"c a", "c *"}
    assert world.batch(WILD).rows == {"c a", "c b", "c *"}
    assert world.batch(UNBOUND).rows == {"c a", "c *"}


def test_a_topic_is_there_from_its_creation_to_its_deletion() -> None:
    world = World(WILD, replace("*"), created("a"), created("a"))
    assert world.rows == {"c a"}
    assert world.batch(deleted("a"), deleted("b")).rows == set()


def test_the_empty_set_is_everything_in_a_wildcard_group_and_nothing_in_another() -> None:
    world = World(WILD, replace(), created("a"), created("b__b"))
    assert world.rows == {"c a", "c b__b"}
    assert world.patterns("c", "a") == ()
    assert world.batch(LITERAL).rows == set()


def test_a_set_without_a_valid_entry_is_refused_and_never_widens() -> None:
    assert World(WILD, replace("a*"), created("a")).rows == set()
    assert World(WILD, replace("a"), replace("a*", " "), created("a"), created("b")).rows == {"c a"}
    assert World(WILD, replace("a"), add("**__a"), created("a"), created("b")).rows == {"c a"}


def test_invalid_entries_are_dropped_from_a_set_with_valid_ones() -> None:
    assert World(WILD, replace("a*", "b"), created("a"), created("b")).rows == {"c b"}


def test_each_mode_refuses_for_itself() -> None:
    world = World(replace("b"), replace("a*"), created("a*"), created("b"))
    assert world.rows == {"c a*"}
    assert world.batch(WILD).rows == {"c b"}


def test_complete_add_replaces_and_partial_requests_change() -> None:
    world = World(WILD, replace("a"), created("a"), created("b"), created("d"))
    assert world.batch(add("b")).rows == {"c a", "c b"}
    assert world.batch(drop("a")).rows == {"c b"}
    assert world.batch(replace("d")).rows == {"c d"}
    assert world.batch(leave("a*")).rows == set(), "what it names does not count"


def test_partial_add_of_entries_ends_everything() -> None:
    assert World(WILD, replace(), add("a"), created("a"), created("b")).rows == {"c a"}


def test_partial_add_of_nothing_is_everything_only_outside_a_session() -> None:
    assert World(WILD, add(), created("a")).rows == {"c a"}
    assert World(WILD, replace("b"), add(), created("a")).rows == set()
    assert World(WILD, replace("b"), leave(), add(), created("a")).rows == {"c a"}
    assert World(WILD, replace(), add(), created("a")).rows == {"c a"}


def test_partial_remove_never_widens_and_opens_no_session() -> None:
    assert World(WILD, replace("a"), drop("a"), add(), created("a"), created("b")).rows == set()
    assert World(WILD, drop("a"), drop(), created("a")).rows == set()
    assert World(WILD, drop("a"), add(), created("a")).rows == {"c a"}
    assert World(WILD, replace(), drop("a"), created("a")).rows == {"c a"}


def test_a_lower_version_is_stale() -> None:
    world = World(WILD, replace("a", version=2), created("a"), created("b"))
    assert world.batch(replace("b", version=1), leave(version=1)).rows == {"c a"}
    assert world.batch(add("b", version=2)).rows == {"c a", "c b"}
    assert world.batch(drop("a")).rows == {"c b"}
    assert world.batch(leave(version=9), replace("a", version=8)).rows == set()


def test_a_refused_request_leaves_the_version_under_its_mode_only() -> None:
    world = World(WILD, replace("a*", version=5), replace("b", version=4), created("a*"), created("b"))
    assert world.rows == {"c b"}
    assert world.batch(UNBOUND).rows == {"c a*"}


def test_inner_multi_is_an_option() -> None:
    events = [WILD, replace("a__**__z"), created("a__b__z")]
    assert World(*events).rows == set()
    assert World(*events, inner_multi=True).rows == {"c a__b__z"}


# Notations.


@pytest.mark.parametrize(
    ("fields", "entries", "rows"),
    [
        ({}, ["a__*"], {"c a__x"}),
        ({"dialect": "lite"}, ["a/#", "a.*"], set()),
        (
            {"dialect": "lite", "delivery": "per-subscription"},
            ["a__*", "*__*"],
            {"c a__x lite::a__*", "c a__x lite::*__*"},
        ),
        ({"dialect": "mqtt"}, ["a/#", "a/+"], {"c a/b"}),
        ({"dialect": "mqtt"}, ["$share/s/a/#", "a/+"], {"c a/b share:s/a/#", "c a/b"}),
        (
            {"dialect": "mqtt", "delivery": "per-subscription"},
            ["$share/s/a/#", "a/+"],
            {"c a/b share:s/a/#", "c a/b mqtt::a/+"},
        ),
        ({"dialect": "mqtt"}, ["$share/s/#"], {"c a/b share:s/#", "c a.b share:s/#", "c a__x share:s/#"}),
        ({"dialect": "mqtt"}, ["$s/#"], {"c $s/x"}),
        ({"dialect": "mqtt"}, ["$share/s/a+", "+/#/c"], set()),
        ({"dialect": "nats"}, ["a.>", "$s/x"], {"c a.b", "c $s/x"}),
        ({"dialect": "wamp"}, ["a.*", "a.b"], {"c a.b wamp::a.*", "c a.b wamp::a.b"}),
        ({"dialect": "wamp", "policy": "prefix"}, ["a."], {"c a.b wamp:prefix:a."}),
        ({"dialect": "wamp", "policy": "wildcard"}, ["a.", ".b"], {"c a.b wamp:wildcard:a.", "c a.b wamp:wildcard:.b"}),
        ({"dialect": "wamp", "policy": "exact", "delivery": "per-client"}, ["a.b", "a.*"], {"c a.b"}),
        ({"dialect": "amqp"}, ["a__*"], set()),
        ({"dialect": "mqtt", "policy": "exact"}, ["a/b"], set()),
        ({"delivery": "twice"}, ["a__*"], set()),
    ],
)
def test_a_notation_says_how_entries_are_read_and_delivered(fields: Event, entries: list[str], rows: set[str]) -> None:
    topics = ["a__x", "a/b", "a.b", "$s/x"]
    assert World(WILD, *map(created, topics), replace(*entries, **fields)).rows == rows


def test_a_set_may_mix_notations_and_partial_remove_takes_from_its_own() -> None:
    mqtt = {"dialect": "mqtt"}
    world = World(WILD, created("a"), created("a/b"), replace("a"), add("a", "a/+", **mqtt))
    assert world.batch(drop("a")).rows == {"c a", "c a/b"}
    assert world.batch(drop("a/+")).rows == {"c a", "c a/b"}
    assert world.batch(drop("a", **mqtt)).rows == {"c a/b"}
    assert world.batch(replace("a")).rows == {"c a"}


def test_names_have_no_notation() -> None:
    world = World(created("a"), created("$share/s/a"), replace("a", "$share/s/a", dialect="mqtt"))
    assert world.rows == {"c a", "c $share/s/a"}
    assert world.batch(drop("a")).rows == {"c $share/s/a"}


def test_patterns_of_a_row_are_those_of_its_part() -> None:
    world = World(WILD, created("a"), replace("a", "*", "b"), add("$share/s/+", "$share/s/#", "#", dialect="mqtt"))
    assert world.patterns("c", "a") == ("#", "*", "a")
    assert world.patterns("c", "a", "share:s/+") == ("+",)
    assert world.patterns("c", "a", "share:s/#") == ("#",)
    assert world.patterns("other", "a") == ()


# Groups.


def test_a_group_that_is_bound_elsewhere_receives_nothing_until_it_is_unbound() -> None:
    world = World(replace("a"), created("a"), created("b"))
    assert world.batch(attributes(parent="q")).rows == set()
    assert world.batch(add("b")).rows == set()
    assert world.batch(UNBOUND).rows == {"c a", "c b"}


def test_a_group_may_be_bound_again_to_where_it_was() -> None:
    world = World(WILD, replace("*"), created("a"), replace("*", parent="q"), created("b", parent="q"))
    assert world.rows == {"c a"}
    assert world.batch(attributes(WILDCARD, parent="q")).rows == {"c b"}
    assert world.batch(WILD).rows == {"c a"}


def test_a_deletion_that_names_another_parent_is_of_the_past() -> None:
    world = World(WILD, replace("*"), created("a"))
    assert world.batch({**UNBOUND, "parentTopic": "q"}).rows == {"c a"}
    assert world.batch({**UNBOUND, "parentTopic": "p"}).rows == set()


@pytest.mark.parametrize(
    "wrong", [{MODEL: "Single"}, {QUOTA: "-2"}, {QUOTA: "1.5"}, {QUOTA: "many"}, {BIND_TOPIC: " "}, {WILDCARD: None}]
)
def test_wrong_attributes_leave_the_former_ones(wrong: Event) -> None:
    event = {"group": "g", "attributes": {BIND_TOPIC: "p", **wrong}}
    assert World(WILD, event, replace("*"), created("a")).rows == {"c a"}


def test_what_the_job_writes_to_itself_is_left_out() -> None:
    moved = {"group": "g", "attributes": {}, "parentTopic": "p", "supersededBy": [0, 1, 1], "boundTo": "q"}
    world = World(WILD, replace("*"), created("a"))
    assert world.batch(moved, leave(asOf=[0, 9, 9])).rows == {"c a"}


# Selectors.


def test_a_selector_is_held_against_the_topics_creation() -> None:
    world = World(WILD, replace("*", selector=tag("red || blue")))
    world.batch(created("a", tags="red"), created("b", tags="green"), created("d"))
    assert world.rows == {"c a"}
    assert world.batch(replace("*", selector=tag("*"))).rows == {"c a", "c b", "c d"}


def test_sql_takes_properties_and_wants_true() -> None:
    world = World(WILD, replace("*", selector=sql("size > 1")))
    world.batch(*(created(f"t{size}", properties={"size": size}) for size in ("1", "2", "x")), created("none"))
    assert world.rows == {"c t2"}


def test_a_second_creation_is_ignored_and_a_new_birth_counts() -> None:
    world = World(replace("a", selector=tag("red")), created("a", tags="red"), created("a", tags="blue"))
    assert world.rows == {"c a"}
    assert world.batch(deleted("a"), created("a", tags="blue")).rows == set()
    assert world.batch(deleted("a"), created("a", tags="red")).rows == {"c a"}


def test_the_latest_selector_of_any_client_decides_for_the_whole_group() -> None:
    world = World(WILD, created("a", tags="red"), created("b", tags="blue"), replace("*", selector=tag("red")))
    assert world.batch(replace("*", client="d")).rows == {"c a", "d a"}
    assert world.batch(drop("z", client="e", selector=tag("blue"))).rows == {"c b", "d b"}
    assert world.batch(replace("*", group="other"), attributes(WILDCARD, group="other")).rows == {"c a", "c b", "d b"}


@pytest.mark.parametrize(
    "request_",
    [
        replace("**"),
        replace("**", selector=None),
        replace("**", client="d", selector=sql("size >")),
        replace("**", client="d", selector={"type": "XPATH", "expression": "//a"}),
        replace("a*", selector=tag("blue")),
        replace("**", version=1, selector=tag("blue")),
        leave(client="d", selector=tag("blue")),
        replace("**", parent="q", selector=tag("blue")),
    ],
    ids=["none", "null", "bad", "unknown kind", "nothing valid", "stale", "leaves", "other parent"],
)
def test_what_leaves_the_selector(request_: Event) -> None:
    world = World(WILD, created("a", tags="red"), created("b", tags="blue"))
    world.batch(replace("*", version=2, selector=tag("red")), request_)
    assert world.rows == {"c a"}


def test_a_bad_selector_refuses_the_whole_request() -> None:
    assert World(replace("a"), replace("b", selector=tag("||")), created("a"), created("b")).rows == {"c a"}


def test_each_mode_has_its_own_selector() -> None:
    world = World(created("a*", tags="red"), created("b", tags="blue"), replace("b", "a*", selector=tag("blue")))
    assert world.batch(add("a*", selector=tag("red"))).rows == {"c a*"}
    assert world.batch(WILD).rows == {"c b"}


def test_the_bitmap_has_the_groups_whose_sql_agrees() -> None:
    world = World(created("a", properties={"size": "2"}), created("b"))
    world.batch(replace("a", group="tags", selector=tag("*")))
    assert world.oracle.bitmap("p", "a") is None
    world.batch(replace("a", group="yes", selector=sql("size = 2")), replace("a", group="no", selector=sql("size = 3")))
    wanted = BloomFilter().bitmap()
    assert world.oracle.bitmap("p", "b") == bytes(wanted)
    wanted.add("yes#p")
    assert world.oracle.bitmap("p", "a") == bytes(wanted)
    world.batch(leave(group="yes"))
    assert world.oracle.bitmap("p", "a") == bytes(BloomFilter().bitmap()), "a group without attributes needs a client"
    world.batch(attributes(group="yes", parent="q"), attributes(group="no", parent="q"))
    assert world.oracle.bitmap("p", "a") is None, "none is in force"


# Exclusive groups.


def test_the_newest_subscriber_holds_a_topic_and_leaves_it_to_the_next() -> None:
    world = World(EXCLUSIVE, created("a"), replace("*", client="c"))
    assert world.batch(replace("a", client="d")).rows == {"d a"}
    assert world.batch(replace("**", client="e")).rows == {"e a"}
    assert world.batch(leave(client="e")).rows == {"d a"}
    assert world.batch(drop("a", client="d")).rows == {"c a"}


def test_a_later_topic_goes_to_the_newest_that_matches() -> None:
    world = World(EXCLUSIVE, replace("*", client="c"), replace("b", client="d"))
    assert world.batch(created("a"), created("b")).rows == {"c a", "d b"}


def test_the_model_follows_the_attributes_in_any_case() -> None:
    world = World(WILD, created("a"), replace("*", client="c"), replace("*", client="d"))
    assert world.rows == {"c a", "d a"}
    assert world.batch(attributes(WILDCARD, model="eXclusive")).rows == {"d a"}
    assert world.batch(attributes(WILDCARD, model="shared")).rows == {"c a", "d a"}


def test_exclusive_groups_of_names_and_other_groups() -> None:
    world = World(attributes(model="Exclusive"), created("a"), replace("a", client="c"), replace("a", client="d"))
    assert world.batch(replace("a", client="x", group="other")).rows == {"d a", "x a"}


def test_a_resync_keeps_its_place_and_a_partial_add_makes_newest() -> None:
    world = World(EXCLUSIVE, created("a"), replace("a", client="c"), replace("a", client="d"))
    assert world.batch(replace("a", client="c")).rows == {"d a"}
    assert world.batch(replace("a", "b", client="c")).rows == {"d a"}
    assert world.batch(add("a", client="c")).rows == {"c a"}


def test_only_the_entry_that_is_new_makes_newer() -> None:
    world = World(EXCLUSIVE, created("a"), created("b"), replace("a", client="c"), replace("a", "b", client="d"))
    assert world.batch(replace("a", "b", client="c")).rows == {"d a", "c b"}
    assert world.batch(replace("a", "*", client="c")).rows == {"c a", "c b"}


def test_everything_has_a_place_that_it_keeps() -> None:
    world = World(EXCLUSIVE, created("a"), replace(client="c"), replace("a", client="d"))
    assert world.batch(replace(client="c"), add(client="c")).rows == {"d a"}
    assert world.batch(replace("a", client="c"), replace(client="c")).rows == {"c a"}


def test_who_returns_is_new() -> None:
    world = World(EXCLUSIVE, created("a"), replace("a", client="c"), replace("a", client="d"))
    assert world.batch(leave(client="c"), replace("a", client="c")).rows == {"c a"}


def test_the_holder_has_all_of_its_parts() -> None:
    world = World(EXCLUSIVE, created("a"), replace("a", client="c"), replace("a", dialect="wamp", client="d"))
    world.batch(add("$share/s/#", dialect="mqtt", client="d"))
    assert world.rows == {"d a wamp::a", "d a share:s/#"}


def test_the_selector_comes_before_exclusivity() -> None:
    world = World(EXCLUSIVE, created("a", tags="red"), replace("a", client="c"), replace("a", selector=tag("blue")))
    assert world.rows == set()


# Quotas.

ABC = [created("a"), created("b"), created("d")]


def test_a_request_for_too_many_topics_is_refused_whole() -> None:
    world = World(quota(2), *ABC, replace("a"))
    assert world.batch(add("b", "d")).rows == {"c a"}
    assert world.batch(replace("*")).rows == {"c a"}
    assert world.batch(replace("b", "d")).rows == {"c b", "c d"}


def test_the_quota_is_of_each_client() -> None:
    world = World(quota(1), *ABC).batch(replace("a"), replace("b", client="d"), replace("*", client="e"))
    assert world.rows == {"c a", "d b"}


def test_a_refused_request_leaves_version_and_selector_and_the_other_mode() -> None:
    world = World(quota(1), created("a", tags="red"), created("b", tags="red"))
    world.batch(replace("a", selector=tag("red")), replace("*", "b", version=9, selector=tag("*")))
    assert world.batch(created("x"), replace("a", "x", version=1)).rows == {"c a"}
    assert world.batch(UNBOUND).rows == {"c a"}


def test_a_request_that_asks_for_no_more_than_before_passes() -> None:
    world = World(quota(1), replace("*")).batch(*ABC)
    world.batch(replace("**"))
    assert world.patterns("c", "a") == ("**",)
    assert world.batch(replace("b", "d")).rows == {"c b"}
    assert world.batch(add("a")).rows == {"c b"}


def test_topics_of_the_same_batch_are_capped_and_not_counted() -> None:
    assert World(quota(1), replace("*"), *ABC).rows == {"c a"}
    assert World(quota(1), *ABC).batch(replace("*")).rows == set()


def test_the_state_before_a_request_has_the_requests_before_it() -> None:
    world = World(quota(2), *ABC)
    assert world.batch(replace("a", "b"), replace("d"), add("a", "b")).rows == {"c d"}


def test_the_first_in_order_of_creation_are_held_and_room_is_filled() -> None:
    world = World(quota(2), replace("*")).batch(*ABC)
    assert world.rows == {"c a", "c b"}
    assert world.batch(deleted("a")).rows == {"c b", "c d"}
    assert world.batch(created("a")).rows == {"c b", "c d"}, "born again, it is the last"
    assert world.batch(drop("z"), deleted("d")).rows == {"c a", "c b"}


def test_quotas_follow_the_attributes() -> None:
    world = World(quota(3), replace("*"), *ABC)
    assert world.batch(quota(1)).rows == {"c a"}
    assert world.batch(quota(0)).rows == set()
    assert world.batch(quota(-1)).rows == {"c a", "c b", "c d"}
    assert world.batch(quota(1), replace("**")).rows == {"c a"}, "as many as before: not refused"


def test_a_group_that_says_nothing_has_the_default_quota() -> None:
    topics = [created(f"t{number}") for number in range(2_001)]
    assert len(World(WILD, replace("*"), *topics).rows) == 2_000
    assert World(WILD, *topics).batch(replace("*")).rows == set()


def test_everything_does_not_count() -> None:
    world = World(quota(1), *ABC).batch(replace())
    assert world.rows == {"c a", "c b", "c d"}
    assert world.batch(replace("*")).rows == {"c a", "c b", "c d"}, "from nothing that counts to three is too many"
    assert world.batch(replace("a")).rows == {"c a"}


def test_topics_count_not_rows() -> None:
    world = World(quota(1), created("a")).batch(replace("a", "*", "**", dialect="wamp"))
    assert world.rows == {"c a wamp::a", "c a wamp::*", "c a wamp::**"}


def test_only_topics_with_which_the_selector_agrees_count() -> None:
    world = World(quota(1), created("a", tags="red"), created("b", tags="blue"))
    assert world.batch(replace("*", selector=tag("blue"))).rows == {"c b"}
    assert world.batch(replace("*", selector=tag("red || blue"))).rows == {"c b"}


def test_what_another_client_holds_counts_at_the_request_but_not_for_the_cap() -> None:
    world = World(quota(2, model="Exclusive"), *ABC, replace("a", "b", client="d"))
    assert world.batch(replace("*")).rows == {"d a", "d b"}
    world = World(quota(1, model="Exclusive"), replace("*"), replace("a", client="d")).batch(*ABC)
    assert world.rows == {"d a", "c b"}
    world.batch(drop("a", client="d"))
    assert world.rows == {"c a"}


def test_a_capped_topic_of_the_newest_is_not_given_to_the_next() -> None:
    world = World(quota(1, model="Exclusive"), replace("b", client="c"), replace("*", client="d")).batch(*ABC)
    assert world.rows == {"d a"}


def test_while_the_group_is_bound_elsewhere_nothing_counts() -> None:
    world = World(quota(1, parent="q"), *ABC).batch(replace("*"))
    assert world.batch(quota(1)).rows == {"c a"}


def test_each_shard_has_its_share_of_the_quota() -> None:
    routing = Routing({"p": 2})
    names: dict[int, list[str]] = {0: [], 1: []}
    for number in range(50):
        names[routing.shard_of("p", f"t{number}")].append(f"t{number}")
    (first, second, third), (one, two) = names[0][:3], names[1][:2]
    topics = list(map(created, (first, second, third, one, two)))
    world = World(quota(3), replace("*"), *topics, routing=routing)
    assert world.rows == {f"c {first}", f"c {second}", f"c {one}"}
    world = World(quota(3), *topics, routing=routing)
    assert world.batch(replace(first, third, one, two)).rows == {f"c {first}", f"c {third}", f"c {one}"}


def test_requests_are_capped_where_that_is_wanted() -> None:
    world = World(quota(2), *ABC, replace("a"), cap_requests=True)
    assert world.batch(replace("*", version=3)).rows == {"c a", "c b"}
    assert world.batch(replace("d", version=2)).rows == {"c a", "c b"}, "its version counts"


# The end of clients and topics.


def test_the_end_without_a_parent_is_on_all_parents_asked_before() -> None:
    events = [created("a"), created("a", parent="q"), replace("a"), replace("a", parent="q"), replace("a", client="d")]
    world = World(*events, replace("a", group="other"))
    assert len(world.oracle.relation()) == 4
    gone = world.batch(leave(parent=""), replace("a", parent="q")).oracle.relation()
    assert gone == {Effective("q", "g", "c", "a"), Effective("p", "g", "d", "a"), Effective("p", "other", "c", "a")}
    assert len(world.batch(leave(parent=None)).oracle.relation()) == 2


def test_versions_hold_on_each_parent() -> None:
    world = World(created("a"), created("b", parent="q"), replace("a", version=3), replace("b", parent="q", version=1))
    assert world.batch(leave(parent=" ", version=2)).rows == {"c a"}
    assert world.batch(replace("b", parent="q", version=1)).rows == {"c a"}


def test_a_parent_that_was_never_asked_learns_no_version() -> None:
    world = World(created("a"), replace("b", client="d"), leave(parent="", version=9))
    assert world.batch(replace("a", version=1)).rows == {"c a"}


def test_who_was_ended_everywhere_is_new_when_it_returns() -> None:
    world = World(EXCLUSIVE, created("a"), replace("a", client="c"), replace("a", client="d"))
    assert world.batch(leave(client="c", parent=""), replace("a", client="c")).rows == {"c a"}


def test_a_silent_client_ends_on_every_parent() -> None:
    world = World(created("a"), created("a", parent="q"), client_timeout_ms=100)
    world.batch(replace("a"), at=1_000).batch(replace("a", parent="q"), replace("a", client="d"), at=1_050)
    assert len(world.batch(tick(1_150)).oracle.relation()) == 3, "as old as the timeout is not older"
    assert world.batch(add("z", client="d"), tick(1_151), at=1_150).rows == {"d a"}
    assert world.batch(add("z"), at=1_200).rows == {"d a"}, "its former set is gone"


def test_where_a_silent_client_has_asked_is_forgotten() -> None:
    """As after an end on all parents; unless it has sent versions."""
    for version, rows in ((None, {"c a"}), (1, set())):
        world = World(created("a"), client_timeout_ms=100).batch(replace("a", version=version)).batch(tick(500))
        world.batch(leave(parent="", version=3), at=501)
        assert world.batch(replace("a", version=2), at=502).rows == rows


def test_a_client_that_asks_too_late_begins_anew() -> None:
    """Whether a tick has told of it or not."""
    world = World(created("a"), created("b"), client_timeout_ms=100).batch(replace("a"), at=1_000)
    assert world.batch(add("b"), at=1_100).rows == {"c a", "c b"}
    assert world.batch(add("b"), at=1_201).rows == {"c b"}


def test_a_topic_created_after_its_end_lives_anew() -> None:
    world = World(created("a", ttlMs=1)).batch(replace("a"), at=DEADLINE_STEP_MS - 99)
    world.batch(created("a"), at=DEADLINE_STEP_MS - 99)
    assert world.batch(tick(DEADLINE_STEP_MS)).rows == set(), "it was there still"
    world = World(created("a", ttlMs=1)).batch(replace("a"), at=1).batch(created("a"), at=DEADLINE_STEP_MS)
    assert world.batch(tick(DEADLINE_STEP_MS)).rows == {"c a"}


def test_any_request_is_a_sign_of_life_and_none_ends_without_a_timeout() -> None:
    events = [created("a"), replace("a", version=2)]
    stale = replace("b", version=1)
    assert World(client_timeout_ms=100).batch(*events, at=0).batch(stale, at=90).batch(tick(150)).rows == {"c a"}
    assert World(client_timeout_ms=100).batch(*events, at=0).batch(tick(150)).rows == set()
    assert World().batch(*events, at=0).batch(tick(10**9)).rows == {"c a"}


def test_a_silent_client_keeps_its_version() -> None:
    world = World(client_timeout_ms=100).batch(created("a"), replace("a", version=2)).batch(tick(500))
    assert world.batch(replace("a", version=1), at=500).rows == set()


STEP = DEADLINE_STEP_MS


def test_a_topic_ends_at_its_deadline_rounded_up() -> None:
    world = World(replace("a", "b", "d")).batch(
        created("a", ttlMs=STEP - 1), created("b", ttlMs=STEP, timestamp=0), at=1_000
    )
    world.batch(created("d"))
    assert world.batch(tick(STEP - 1)).rows == {"c a", "c b", "c d"}
    assert world.batch(tick(STEP)).rows == {"c a", "c d"}
    assert world.batch(tick(2 * STEP)).rows == {"c d"}


def test_a_second_creation_does_not_prolong_and_a_new_birth_does() -> None:
    world = World(replace("a")).batch(created("a", ttlMs=STEP)).batch(created("a", ttlMs=9 * STEP), created("a"))
    assert world.batch(tick(STEP)).rows == set()
    world.batch(created("a", ttlMs=STEP), at=STEP).batch(deleted("a"), created("a", ttlMs=9 * STEP), at=STEP)
    assert world.batch(tick(9 * STEP)).rows == {"c a"}


def test_a_topic_whose_time_was_over_before_it_came_ends_at_once() -> None:
    world = World(replace("a", "b"), created("a", ttlMs=STEP), tick(STEP))
    assert world.rows == set()
    assert world.batch(created("b", ttlMs=STEP)).rows == set()


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
