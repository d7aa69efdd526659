"""State that spans parents: bindings, leases and alarms, and the records that the coordinator writes back."""

import gc
import itertools
import json
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from streaming.coordinator import (
    BUCKETS,
    CoordinatorDelta,
    CoordinatorState,
    alarm,
    append,
    bucket_of,
    follow,
    records,
    rules,
)
from streaming.coordinator.state import ClientLease, GroupBinding, PendingEnd, new_leases
from streaming.errors import StateCorrupted
from streaming.records.columns import Event
from streaming.records.model import (
    BIND_TOPIC,
    VERSION_RETENTION_MS,
    Action,
    Alarm,
    End,
    GroupEvent,
    Place,
    Reason,
    Source,
    Stream,
    SubscriptionRequest,
    Tick,
    Wake,
)
from streaming.records.parsing import parse_clock, parse_group_event, parse_subscription
from streaming.records.subscribers import ClientKey
from streaming.state.client import Ignored
from streaming.state.notes import Versions
from streaming.storage.journal import Journal
from streaming.worker.signature import SUFFIX_BYTES
from tests.support import events
from tests.support.states import decode_home, encode_home

HOUR = 3_600_000
KEY = ClientKey("g", "c")


def bind(parent: str, group: str = "g") -> GroupEvent:
    return GroupEvent(group, {BIND_TOPIC: parent}, parent, None)


def delete(parent: str | None = None, group: str = "g") -> GroupEvent:
    return GroupEvent(group, {}, parent, None)


def request(parent: str, *, action: Action = Action.COMPLETE_ADD, **fields: Any) -> SubscriptionRequest:
    return events.request(events.replace("t", parent=parent, action=action, **fields))


def leaves(parent: str, **fields: Any) -> SubscriptionRequest:
    return events.request(events.leave(parent=parent, **fields))


def echo(parent: str, offset: int = 1, bound_to: str | None = None) -> GroupEvent:
    return GroupEvent("g", {}, parent, place(offset), bound_to)


def place(offset: int) -> Place:
    return Place(3, offset, 1_000 + offset)


def group_end(parent: str, offset: int, bound_to: str | None = None, group: str = "g") -> dict[str, Any]:
    """The value of a record that ends a group on a parent."""
    event = {"group": group, "attributes": {}, "parentTopic": parent, "supersededBy": [3, offset, 1_000 + offset]}
    return event if bound_to is None else {**event, "boundTo": bound_to}


def client_end(
    parent: str, offset: int, *, later: list[int] | None = None, version: int | None = None, **others: Any
) -> dict[str, Any]:
    """The value of a record that ends a client on a parent, and repeats the COMPLETE_ADDs at some offsets."""
    at = [3, offset, 1_000 + offset, 0]
    end: dict[str, Any] = {"place": at} if version is None else {"place": at, "version": version}
    entry: dict[str, Any] = {"action": "COMPLETE_REMOVE", "clientId": "c", "group": "g", "topic": parent}
    entry |= {"asOf": at, "through": at, "ends": {"literal": end, "wildcard": end}, "laterCount": len(later or ())}
    if later:
        asked = {"action": "COMPLETE_ADD", "liteTopicSet": ["t"], "dialect": "lite", "delivery": "per-client"}
        entry["later"] = [{**asked, "place": [3, each, 1_000 + each, 0]} for each in later]
        entry["through"] = [3, later[-1], 1_000 + later[-1], 0]
    return {**entry, **others}


def continued(parent: str, offset: int, asked: int, *, count: int) -> dict[str, Any]:
    """The value of a record that continues the end of a client by the COMPLETE_ADD at an offset."""
    value = client_end(parent, offset, later=[asked], continues=True, laterCount=count)
    del value["ends"]
    return value


def read_back(parent: str, offset: int, through: int | None = None) -> SubscriptionRequest:
    """The record that ends a client on a parent, as the coordinator reads it."""
    return leaves(parent)._replace(as_of=place(offset), through=place(offset if through is None else through))


class Bucket:
    """One bucket through several micro-batches; the records that it writes back are not read."""

    def __init__(self, *first: Event, timeout: int = 0, max_later_bytes: int = records.MAX_LATER_BYTES) -> None:
        self.state = CoordinatorState()
        self.timeout = timeout
        self.max_later_bytes = max_later_bytes
        self.written_bytes = 0
        self.offset = -1
        self.outcome: rules.CoordinatorOutcome
        self.then(*first)

    def then(self, *events: Event) -> list[dict[str, Any]]:
        """Apply one micro-batch, with offsets that go on counting; return the values of the records written back."""
        before = encode_home(self.state)
        sourced = [(self._source(event), event) for event in events]
        self.outcome = follow(self.state, sourced, self.timeout, max_later_bytes=self.max_later_bytes)
        self.written_bytes += sum(len(record.value or b"") for _, record in self.outcome.records)
        assert encode_home(self.state) == before, "the state itself was changed"
        self.state.apply(self.outcome.delta)
        renewed = append(Journal.open(before), self.state, self.outcome.delta)
        assert decode_home(renewed.stored) == self.state, "what is stored is not what is there"
        assert self.outcome.changed or encode_home(self.state) == before
        return [json.loads(record.value or b"") for _, record in self.outcome.records]

    def apply(self, event: Event) -> None:
        """Apply one event without a look at the state as a whole."""
        self.outcome = follow(self.state, [(self._source(event), event)], self.timeout)
        self.state.apply(self.outcome.delta)

    @property
    def parents(self) -> dict[str, str]:
        return {group: binding.parent for group, binding in self.state.bindings.items()}

    def _source(self, event: Event) -> Source:
        self.offset += 1
        stream = {GroupEvent: "groups", SubscriptionRequest: "subscriptions"}.get(type(event), "clock")
        return Source(stream, 3, self.offset, 0, 1_000 + self.offset)


# Groups: a binding ends the group on its former parent, and on the parents on which its clients have sent requests.

UNKNOWN = {Ignored.GROUP_UNKNOWN: 1}
Written = list[dict[str, Any]]
CASES: list[tuple[str, list[GroupEvent], list[GroupEvent], dict[str, str], Written, dict[Ignored, int]]] = [
    ("a new group", [], [bind("p")], {"g": "p"}, [], {}),
    ("new attributes on the same parent", [bind("p")], [bind("p")], {"g": "p"}, [], {}),
    ("a move", [bind("p")], [bind("q")], {"g": "q"}, [group_end("p", 1, "q")], {}),
    ("a move of a group of this batch", [], [bind("p"), bind("q")], {"g": "q"}, [group_end("p", 1, "q")], {}),
    ("there and back", [bind("p")], [bind("q"), bind("p")], {"g": "p"},
        [group_end("p", 1, "q"), group_end("q", 2, "p")], {}),
    ("a second move is told to both", [bind("p"), bind("q")], [bind("r")], {"g": "r"},
        [group_end("p", 2, "r"), group_end("q", 2, "r")], {}),
    ("new attributes are told to the parents that were told before", [bind("p"), bind("q")], [bind("q")], {"g": "q"},
        [group_end("p", 2, "q")], {}),
    ("a deletion that names no parent", [bind("p")], [delete()], {}, [group_end("p", 1)], {}),
    ("a deletion that names the parent reaches it by itself", [bind("p")], [delete("p")], {}, [], {}),
    ("a deletion is told to the parents that were told that it is elsewhere, and to its own, which may yet be told so",
        [bind("p"), bind("q")], [delete("q")], {}, [group_end("p", 2), group_end("q", 2)], {}),
    ("a deletion that names another parent does not concern this one", [bind("p")], [delete("q")], {"g": "p"}, [], {}),
    ("a deletion of an unknown group", [], [delete()], {}, [], UNKNOWN),
    ("a deletion of an unknown group is counted by the parent that it names", [], [delete("p")], {}, [], {}),
    ("a second deletion", [bind("p")], [delete(), delete()], {}, [group_end("p", 1)], UNKNOWN),
    ("deleted and bound again", [bind("p")], [delete(), bind("q")], {"g": "q"}, [group_end("p", 1)], {}),
    ("an echo is ignored", [bind("q")], [echo("p", 0, "q")], {"g": "q"}, [], {}),
    ("an echo that names the present parent is ignored as well", [bind("p")], [echo("p")], {"g": "p"}, [], {}),
    ("groups are apart", [bind("p"), bind("p", "h")], [bind("q", "h")], {"g": "p", "h": "q"},
        [group_end("p", 2, "q", "h")], {}),
]  # fmt: skip


@pytest.mark.rule("deleted-attributes", case="a deletion that names no parent")
@pytest.mark.rule("late-move", case="there and back")
@pytest.mark.parametrize(
    ("before", "events", "after", "written", "ignored"), [pytest.param(*case[1:], id=case[0]) for case in CASES]
)
def test_groups(
    before: list[GroupEvent],
    events: list[GroupEvent],
    after: dict[str, str],
    written: Written,
    ignored: dict[Ignored, int],
) -> None:
    bucket = Bucket(*before)
    assert bucket.then(*events) == written
    assert bucket.parents == after
    assert bucket.outcome.ignored == ignored
    assert [(stream, record.key.decode()) for stream, record in bucket.outcome.records] == [
        (Stream.GROUPS, event["group"]) for event in written
    ]


def wakes(time: int, parent: str = "p", shard: int = 0) -> dict[str, Any]:
    """The value of a record that wakes a shard."""
    return {"wake": time, "parentTopic": parent, "shard": shard}


EACH_PARENT: list[Event] = [request("p"), request("q"), request("r", client="d"), request("s", group="h")]
KNOWN = {"place": [3, 3, 1_003, 0], "known": 1}
STEPS: dict[str, list[tuple[list[Event], Written]]] = {
    "a group that is bound is told to the parents on which its clients ask": [
        (EACH_PARENT, []),
        ([bind("q")], [group_end("p", 4, "q"), group_end("r", 4, "q")]),
    ],
    "who leaves elsewhere is not reported": [([bind("p")], []), ([leaves("q"), read_back("q", 0)], [])],
    "requests of an unknown group are not reported": [([request("p"), request("q")], [])],
    # A client that leaves everywhere: the records carry the place of the request, and its version to check.
    "it is ended where it has asked": [
        (EACH_PARENT, []),
        ([leaves("", version=7)], [client_end(parent, 4, version=7) for parent in "pq"]),
    ],
    "only what it asked for before is ended": [
        ([request("p")], []),
        ([leaves(""), request("q")], [client_end("p", 1)]),
        ([read_back("p", 1), leaves("")], [client_end("q", 4)]),
    ],
    "a parent that was left is not ended again": [
        ([request("p"), request("q")], []),
        ([leaves("p")], []),
        ([leaves("")], [client_end("q", 3)]),
    ],
    "a parent that was left with a version is": [
        ([request("p"), request("q")], []),
        ([leaves("p", version=1)], []),
        ([leaves("")], [client_end("q", 3), {**client_end("p", 3), "ends": {"literal": KNOWN, "wildcard": KNOWN}}]),
    ],
    # In one record if it comes in the same micro-batch, else in one that continues the former one.
    "what it asks for since is repeated with its end": [
        ([request("p"), request("q")], []),
        ([leaves(""), request("p")], [client_end("p", 2, later=[3]), client_end("q", 2)]),
        ([request("p"), request("r")], [continued("p", 2, 4, count=2)]),
        ([read_back("p", 2, 3), read_back("q", 2)], []),
        ([request("p")], [continued("p", 2, 8, count=3)]),
        ([read_back("p", 2, 8), request("p")], []),
    ],
    # Leases: a tick ends clients without a request for too long.
    "a lease as old as the timeout has not expired": [
        ([request("p"), request("q"), request("p", client="d")], []),
        ([Tick(1_001 + HOUR)], []),
        ([Tick(1_002 + HOUR)], [client_end("p", 1, expired=True), client_end("q", 1, expired=True)]),
    ],
    **{
        f"any request on any parent renews the lease, number {number}": [
            ([request("p")], []),
            ([renewal], []),
            ([Tick(1_001 + HOUR)], []),
        ]
        for number, renewal in enumerate(
            [request("q"), request("p", action=Action.PARTIAL_REMOVE), leaves("q"), leaves("q", version=1)]
        )
    },
    "a request of the same batch counts before the time": [
        ([request("p")], []),
        ([request("p"), Tick(1_001 + HOUR)], []),
        (
            [request("p", client="d"), Tick(9_000 + HOUR)],
            [client_end("p", 1, expired=True), client_end("p", 3, clientId="d", expired=True)],
        ),
    ],
    "a client is ended once": [
        ([request("p")], []),
        ([Tick(2_000 + HOUR), Tick(2_001 + HOUR)], [client_end("p", 0, expired=True)]),
        ([Tick(3_000 + HOUR)], []),
        ([read_back("p", 0)], []),
        ([request("p")], []),
    ],
    "a client that asked again is not forgotten when its end arrives": [
        ([request("p"), request("q")], []),
        ([Tick(2_000 + HOUR)], [client_end("p", 1, expired=True), client_end("q", 1, expired=True)]),
        ([request("p")], [continued("p", 1, 3, count=1) | {"expired": True}]),
        ([read_back("p", 1, 3), read_back("q", 1)], []),
        ([leaves("")], [client_end("p", 6)]),
    ],
    # Alarms: a shard is woken once, by the first tick of its time or later.
    "an alarm wakes a shard once": [
        ([Alarm("p", 0, 5_000), Alarm("q", 2, 5_000), Alarm("p", 0, 6_000)], []),
        ([Tick(4_999)], []),
        ([Tick(5_000)], [wakes(5_000), wakes(5_000, "q", 2)]),
        ([Tick(7_000)], [wakes(7_000)]),
        ([Tick(8_000)], []),
    ],
    "an alarm of the past wakes at once": [
        ([Tick(5_000)], []),
        ([Alarm("p", 1, 5_000)], [wakes(5_000, "p", 1)]),
        ([Alarm("p", 1, 5_001)], []),
        ([Alarm("p", 1, 5_002), Alarm("p", 1, 5_000), Tick(5_002)], [wakes(5_002, "p", 1)]),
    ],
    "many alarms that are due wake a shard once": [
        ([Alarm("p", number % 2, 10_000 * number) for number in range(1, 401)], []),
        ([Tick(4_000_000)], [wakes(4_000_000), wakes(4_000_000, shard=1)]),
        ([Alarm("p", 0, 10_000 * number) for number in range(1, 401)], [wakes(4_000_000)]),
    ],
    "time does not go back": [([Tick(5_000), Tick(4_000)], []), ([Alarm("p", 0, 4_500)], [wakes(5_000)])],
}
"""By the rule: micro-batches, with the values of the records written back. The timeout is an hour."""

ASKED_AGAIN = "a client that asked again is not forgotten when its end arrives"
LEFT = {(KEY, "p"): PendingEnd(place(1), False, False, place(1))}
STATES: dict[tuple[str, int], CoordinatorState] = {
    ("only what it asked for before is ended", 1): CoordinatorState(
        leases={KEY: ClientLease(("q",), place(2))}, pending=LEFT
    ),
    ("a client is ended once", 3): CoordinatorState(clock=3_000 + HOUR),
    (ASKED_AGAIN, 3): CoordinatorState(leases={KEY: ClientLease(("p",), place(3))}, clock=2_000 + HOUR),
    ("an alarm wakes a shard once", 4): CoordinatorState(clock=8_000),
}
"""By the rule and the number of a micro-batch: the state after it."""

PENDING = {"what it asks for since is repeated with its end": dict(enumerate([0, 2, 2, 1, 1, 0]))}
"""By the rule: numbers of pending ends after each micro-batch."""


@pytest.mark.rule("requests-elsewhere", case="who leaves elsewhere is not reported")
@pytest.mark.rule("unknown-group", case="requests of an unknown group are not reported")
@pytest.mark.rule("end-on-all-parents", case="only what it asked for before is ended")
@pytest.mark.rule("requests-after-end", case="what it asks for since is repeated with its end")
@pytest.mark.rule("continued-end", case="what it asks for since is repeated with its end")
@pytest.mark.rule("lease", case="a lease as old as the timeout has not expired")
@pytest.mark.rule("renewal", case="a request of the same batch counts before the time")
@pytest.mark.rule("expiry", case="an alarm wakes a shard once")
@pytest.mark.rule("overdue-topic", case="an alarm of the past wakes at once")
@pytest.mark.rule("one-alarm", case="many alarms that are due wake a shard once")
@pytest.mark.parametrize("rule", STEPS)
def test_steps_of_a_bucket(rule: str) -> None:
    bucket = Bucket(timeout=HOUR)
    for number, (steps, written) in enumerate(STEPS[rule]):
        assert bucket.then(*steps) == written
        assert STATES.get((rule, number), bucket.state) == bucket.state
        assert PENDING.get(rule, {number: len(bucket.state.pending)})[number] == len(bucket.state.pending)
        assert (bucket.outcome.problems, bucket.outcome.ignored) == ([], {})
        for (stream, record), value in zip(bucket.outcome.records, written, strict=True):
            known = Stream.CLOCK if "wake" in value else Stream.SUBSCRIPTIONS if "action" in value else Stream.GROUPS
            assert (stream, record.key.decode()) == (known, value.get("group", value.get("parentTopic")))


@pytest.mark.rule("forgotten-versions", "no-timeout")
def test_without_a_timeout_no_client_in_session_is_ended_or_forgotten() -> None:
    bucket = Bucket(request("p", version=3))
    assert bucket.then(leaves("p", version=2)) == []
    assert bucket.then(Tick(2 * VERSION_RETENTION_MS)) == []
    assert bucket.then(Tick(1 << 60)) == []


@pytest.mark.rule("requests-elsewhere")
def test_a_request_elsewhere_is_a_dead_letter_and_its_parent_is_told_once() -> None:
    bucket = Bucket(bind("p"))
    assert bucket.then(request("q"), request("p"), request("q", client="d")) == [group_end("q", 0, "p")]
    assert [(problem.reason, problem.source.offset) for problem in bucket.outcome.problems] == [
        (Reason.GROUP_BOUND_ELSEWHERE, 1),
        (Reason.GROUP_BOUND_ELSEWHERE, 3),
    ]
    message = bucket.outcome.problems[0].message
    assert [word for word in ("'g'", "'p'", "'q'", BIND_TOPIC) if word not in message] == []
    assert bucket.then(request("q")) == []
    assert len(bucket.outcome.problems) == 1


# Clients: their removal on all parents.


def test_a_parent_is_told_once_of_many_moves_of_a_group() -> None:
    """It needs to know the last event only; each event would otherwise be told to each parent."""
    bucket = Bucket(*(request(f"x{number}") for number in range(3)))
    written = bucket.then(*[bind("p"), bind("q")] * 10)
    assert sorted(event["parentTopic"] for event in written) == ["p", "q", "x0", "x1", "x2"]
    assert {event["boundTo"] for event in written if event["parentTopic"] != "q"} == {"q"}


def test_a_client_that_is_not_known_cannot_leave() -> None:
    bucket = Bucket(request("p", client="d"))
    assert bucket.then(leaves("")) == []
    assert bucket.outcome.ignored == {Ignored.NO_SUBSCRIPTION: 1}


@pytest.mark.rule("forgotten-parents")
def test_a_client_that_leaves_everywhere_is_forgotten_when_its_ends_are_read_back() -> None:
    bucket = Bucket(request("p"), request("q"))
    bucket.then(leaves(""))
    assert bucket.state.leases == {}
    assert set(bucket.state.pending) == {(KEY, "p"), (KEY, "q")}
    assert bucket.then(read_back("p", 2), read_back("q", 2)) == []
    assert not bucket.state
    assert bucket.then(leaves("")) == []
    assert bucket.outcome.ignored == {Ignored.NO_SUBSCRIPTION: 1}


@pytest.mark.rule("consecutive-ends")
def test_a_second_end_follows_the_first() -> None:
    """Its version holds then, although the first is not read any more, nor the request between them."""
    bucket = Bucket(request("p"), timeout=HOUR)
    bucket.then(leaves("", version=3), request("p"))
    (end,) = bucket.then(Tick(9_000 + HOUR))
    assert (end["continues"], end["asOf"][1], end["through"][1], end["laterCount"]) == (True, 1, 2, 2)
    (again,) = end["later"]
    assert (again["action"], again["place"][1], again["expired"]) == ("COMPLETE_REMOVE", 2, True)
    assert again["ends"]["wildcard"] == {"place": [3, 2, 1_002, 0], "known": 3}


@pytest.mark.rule("continued-end")
def test_an_end_is_pending_until_the_last_record_is_read_back() -> None:
    """Those of a request, and of the end of the lease after it, go up to the same place."""
    bucket = Bucket(request("p"), timeout=HOUR)
    bucket.then(leaves(""), request("p"))
    bucket.then(Tick(9_000 + HOUR))
    shorter = read_back("p", 1, 2)
    bucket.then(shorter._replace(later_count=1))
    assert set(bucket.state.pending) == {(KEY, "p")}
    bucket.then(shorter._replace(later_count=2))
    assert bucket.state.pending == {}


@pytest.mark.rule("version-of-end")
def test_a_stale_end_leaves_the_pending_one_in_force() -> None:
    """The versions of then are told, since the shard may have read newer ones."""
    bucket = Bucket(request("p", version=5))
    (first,) = bucket.then(leaves("", version=6))
    assert first["ends"]["literal"] == {"place": [3, 1, 1_001, 0], "version": 6, "known": 5}
    (second,) = bucket.then(leaves("", version=4))
    assert [(each["version"], each["ends"]["literal"]["known"]) for each in second["later"]] == [(4, 6)]


@pytest.mark.rule("consecutive-ends")
def test_an_end_after_a_stale_one_can_take_its_place() -> None:
    bucket = Bucket(request("p", version=5))
    bucket.then(leaves("", version=4))
    (second,) = bucket.then(leaves("", version=6))
    (again,) = second["later"]
    assert again["ends"]["literal"] == {"place": [3, 2, 1_002, 0], "version": 6, "known": 5}


def test_requests_too_long_for_one_record_are_spread_over_several() -> None:
    bucket = Bucket(request("p"), max_later_bytes=150)
    first, second = bucket.then(leaves(""), request("p"), request("p"))
    assert [part["through"][1] for part in (first, second)] == [2, 3]
    assert [[each["place"][1] for each in part["later"]] for part in (first, second)] == [[2], [3]]
    assert ("continues" in first, second["continues"]) == (False, True)
    assert (first["laterCount"], second["laterCount"]) == (1, 2)


def test_a_request_too_long_for_one_record_goes_in_pieces() -> None:
    bucket = Bucket(request("p"), max_later_bytes=40)
    first, *pieces = bucket.then(leaves(""), request("p"))
    assert (first["through"][1], first["laterCount"], "later" in first) == (1, 0, False)
    assert [piece["piece"][0] for piece in pieces] == list(range(len(pieces)))
    assert [piece["laterCount"] for piece in pieces] == [0] * (len(pieces) - 1) + [1]
    assert [piece["through"][1] for piece in pieces] == [1] * (len(pieces) - 1) + [2]
    assert json.loads("".join(piece["piece"][1] for piece in pieces))["place"] == [3, 2, 1_002, 0]


@pytest.mark.rule("records-of-an-end")
@pytest.mark.parametrize("name", ["n" * 16_000, '"' * 8_000, "\x01" * 2_700, "😀" * 4_000])
def test_any_request_is_repeated_in_records_that_kafka_takes(name: str) -> None:
    """With the longest names and 2,000 entries, whatever the characters take as JSON."""
    names = [f"{number}{name}" for number in range(2_000)]
    asked = SubscriptionRequest("p" * 16_000, "g" * 16_000, "c" * 16_000, Action.COMPLETE_ADD, tuple(names))
    bucket = Bucket(asked._replace(entries=("t",)))
    bucket.then(leaves("")._replace(group=asked.group, client_id=asked.client_id), asked)
    sizes = [len(record.key) + len(record.value or b"") for _, record in bucket.outcome.records]
    assert max(sizes) + SUFFIX_BYTES < 1_000_000


def test_each_request_is_written_once_however_late_the_job_reads_it_back() -> None:
    def written(count: int) -> int:
        bucket = Bucket(request("p"))
        bucket.then(leaves(""))
        stored = []
        for _ in range(count):
            bucket.then(request("p"))
            stored.append(len(encode_home(bucket.state) or b""))
        assert max(stored) - min(stored) < 20
        return bucket.written_bytes

    assert written(400) / written(200) < 2.1


def test_a_client_whose_end_has_a_version_is_remembered() -> None:
    """A parent may find the end stale; a later end must reach it."""
    bucket = Bucket(request("p"))
    assert bucket.then(leaves("", version=4)) == [client_end("p", 1, version=4)]
    assert [record["topic"] for record in bucket.then(leaves(""))] == ["p"]


def test_a_client_that_only_leaves_leaves_nothing() -> None:
    bucket = Bucket(leaves("p"))
    assert not bucket.state
    assert not bucket.outcome.changed


@pytest.mark.parametrize("action", [Action.COMPLETE_ADD, Action.PARTIAL_ADD, Action.PARTIAL_REMOVE])
def test_a_timeout_that_is_switched_on_later_ends_all_that_was_asked_for(action: Action) -> None:
    """The shard would keep a client whose end is of a place before its last request."""
    bucket = Bucket(request("p", action=action))
    bucket.then(request("p", action=action))
    bucket.timeout = 10
    (end,) = bucket.then(Tick(9_000))
    assert (end["expired"], end["asOf"]) == (True, [3, 1, 1_001, 0])


# Versions: they are forgotten.


@pytest.mark.rule("forgotten-versions")
def test_versions_of_a_client_in_no_session_are_forgotten() -> None:
    """A week after its last request, by the tick of the next hour or by the timestamp of its next request."""
    bucket = Bucket(request("p", version=3))
    bucket.then(leaves("p", version=3))
    assert bucket.then(Tick(1_001 + VERSION_RETENTION_MS)) == []
    (end,) = bucket.then(Tick(HOUR + VERSION_RETENTION_MS))
    assert end["ends"]["literal"] == {"place": [3, 1, 1_001, 0], "forgets": True}
    assert bucket.state.leases == {}
    bucket = Bucket(request("p", version=3))
    bucket.then(leaves("p", version=3))
    bucket.offset = VERSION_RETENTION_MS + 1
    (end,) = bucket.then(request("p", version=1))
    assert (end["ends"]["literal"]["forgets"], [each["version"] for each in end["later"]]) == (True, [1])


@pytest.mark.rule("forgotten-versions")
def test_what_is_forgotten_follows_an_end_that_is_pending() -> None:
    bucket = Bucket(request("p", version=3), leaves("p", version=3), timeout=HOUR)
    bucket.then(leaves("", version=4))
    (end,) = bucket.then(Tick(2 * VERSION_RETENTION_MS))
    (again,) = end["later"]
    assert (again["forgets"], again["ends"]["literal"]) == (True, {"place": [3, 2, 1_002, 0], "forgets": True})


# Leases: a tick ends clients without a request for too long.


@pytest.mark.rule("late-request")
def test_a_client_that_asks_too_late_has_ended_before() -> None:
    """Whether a tick has told of it or not."""
    bucket = Bucket(request("p"), request("q"), timeout=5)
    bucket.offset = 6
    assert bucket.then(request("p")) == [
        client_end("p", 1, later=[7], expired=True),
        client_end("q", 1, expired=True),
    ]
    assert bucket.state.leases == {KEY: ClientLease(("p",), place(7))}


def test_what_is_written_is_valid_input() -> None:
    """Of a group, of a client, of a shard to wake, and of one that asks for it."""
    ((_, record),) = Bucket(bind("p"), bind("q")).outcome.records
    assert parse_group_event(record.value) == GroupEvent("g", {}, "p", place(1), "q")
    ((_, record),) = Bucket(request("p"), leaves("")).outcome.records
    assert parse_subscription(record.value) == read_back("p", 1)._replace(
        ends=dict.fromkeys(("literal", "wildcard"), End(place(1))), later_count=0
    )
    ((stream, record),) = Bucket(Tick(5_000), Alarm("p", 1, 1)).outcome.records
    assert (stream, record.key, parse_clock(record.value)) == (Stream.CLOCK, b"p", Wake("p", 1, 5_000))
    wanted = alarm("p", 1, 7)
    assert (wanted.key, parse_clock(wanted.value)) == (b"p", Alarm("p", 1, 7))


# States as bytes.


def test_a_state_is_what_was_encoded() -> None:
    state = CoordinatorState(
        {"g": GroupBinding("p", place(1), frozenset({"q", "é"})), "😀": GroupBinding("p", place(2))},
        {KEY: ClientLease(("p", "q"), place(3))},
        {5_000: frozenset({("p", 0), ("q", 1)})},
        4_000,
    )
    data = encode_home(state)
    assert data is not None
    again = decode_home(data)
    assert again == state
    assert encode_home(again) == data
    assert not CoordinatorState()
    with pytest.raises(StateCorrupted):
        decode_home(data[:-1])


def test_the_bytes_of_a_former_release_are_readable() -> None:
    """The whole state and a change to it, with the bytes of format 4."""
    state = CoordinatorState(
        {"k": GroupBinding("z", place(9)), "h": GroupBinding("p", place(2))},
        {ClientKey("g", "d"): ClientLease(("r",), place(8))},
        {7_000: frozenset({("b", 1), ("a", 2)})},
        6_000,
    )
    whole = (
        "727804000000000000004894cd0fa09292a16793a170940301cd03e90092a171a2c3a992a16893a170940302cd03ea0090"
        "919292a167a1639292a170a171940303cd03eb009192cd13889292a1700092a1710185768ab0cc3e81a800f5842bf1cc1dd5"
    )
    change = (
        "0000004394cd17709292a167c092a16b93a17a940309cd03f10090929292a167a163c09292a167a1649291a172940308"
        "cd03f0009292cd1388c092cd1b589292a1610292a162015ce06187519db1cc661ca9dffaee0d03"
    )
    assert decode_home(bytes.fromhex(whole + change)) == state


def test_what_forgets_is_read_back_as_it_was_stored() -> None:
    state = CoordinatorState(pending={(KEY, "p"): PendingEnd(place(5), False, True, place(6), 1)})
    assert decode_home(append(Journal(), state, CoordinatorDelta(0)).stored) == state


def test_the_bytes_of_a_journal_stay_readable() -> None:
    """The whole state, as a former release wrote it: with the requests that it had to write again."""
    state = CoordinatorState(
        {"g": GroupBinding("p", place(1), frozenset({"q", "é"}))},
        {KEY: ClientLease(("p", "q"), place(3), {"p": Versions(1, None)})},
        {5_000: frozenset({("p", 0), ("q", 1)})},
        4_000,
        {(KEY, "p"): PendingEnd(place(5), True, False, place(6), 1)},
    )
    stored = bytes.fromhex(
        "72780500000000000000c595cd0fa09192a16793a170940301cd03e90092a171a2c3a9919292a167a1639392a170a1719403"
        "03cd03eb0081a1709201c09192cd13889292a1700092a1710191929292a167a163a17094940305cd03ed00c39292a76c6974"
        "6572616c93940305cd03ed00070692a877696c646361726493940305cd03ed0007069192940306cd03ee009fa170a167a163"
        "ac434f4d504c4554455f41444491a174c082a474797065a65441494c5f4ea576616c75650393a46c697465c0c292a3544147"
        "a178c0c2c090c0c26ecb9a7ba262f5fa154677a83731969c"
    )
    assert decode_home(stored) == state


def test_a_journal_that_has_outgrown_its_beginning_is_written_anew() -> None:
    """Ticks change the state for ever, and the value stays small."""
    state, journal = CoordinatorState(), Journal()
    for number in range(2_000):
        done = follow(state, [(Source("clock", 0, number, 0, 0), Tick(number))])
        state.apply(done.delta)
        journal = append(journal, state, done.delta)
        assert len(journal.stored or b"") < 5_000


def test_buckets_are_those_of_the_jvm() -> None:
    """The bucket is the CRC-32 of the name modulo the number of buckets."""
    assert BUCKETS == 16
    assert [bucket_of(name) for name in ("g", "é", "group-of-the-shop")] == [6, 14, 1]


def test_only_clients_in_session_are_counted() -> None:
    """Counted once, and then with each change: those that have left are remembered for their versions."""
    offsets, counted = itertools.count(), CoordinatorState()

    def next_one(*requests: SubscriptionRequest) -> int:
        events = [(Source("s", 0, next(offsets), 0, 1_000), each) for each in requests]
        counted.apply(follow(counted, events).delta)
        return counted.clients

    assert counted.clients == 0
    assert next_one(request("p", version=1), request("p", client="d"), request("q", client="d")) == 2
    assert next_one(leaves("p", version=2)) == 1
    assert next_one(leaves("p"), request("p", client="d")) == 1
    assert KEY in counted.leases
    assert next_one(request("p", version=3), leaves("p"), leaves("", version=4)) == 1
    assert next_one(SubscriptionRequest("", "g", "d", Action.COMPLETE_REMOVE, ())) == 0
    assert CoordinatorState(leases=dict(counted.leases)).clients == 0


# Cost: by what is due, not by what there is.


class CountedLeases(dict[ClientKey, ClientLease]):
    """Leases that count how many of them are looked at."""

    looks = 0

    def get(self, key: ClientKey, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[ClientKey]:
        self.looks += len(self)
        return super().__iter__()

    def items(self) -> Any:
        self.looks += len(self)
        return super().items()


def looks(clients: int, *events: Event, warm: Event) -> int:
    """The number of leases that events look at, each in a micro-batch, beside clients that they do not concern."""
    leases = CountedLeases({ClientKey("h", f"c{n}"): ClientLease(("q",), place(n)) for n in range(clients)})
    bucket = Bucket(timeout=HOUR)
    bucket.state = CoordinatorState(leases=leases)
    bucket.apply(warm)
    leases.looks = 0
    for event in events:
        bucket.apply(event)
    return leases.looks


def test_a_tick_looks_at_clients_whose_time_has_come() -> None:
    ticks = [Tick(2_000 + 10_000 * number) for number in range(50)]
    assert looks(200, *ticks, warm=Tick(1_000)) == looks(400, *ticks, warm=Tick(1_000)) == 0
    assert looks(400, Tick(2 * HOUR), warm=Tick(1_000)) <= 6 * 400, "all are due"


def test_a_group_event_looks_at_the_clients_of_its_group() -> None:
    events = [bind("p"), bind("q"), delete()] * 20
    assert looks(200, *events, warm=bind("r")) == looks(400, *events, warm=bind("r")) == 0


def test_clients_that_asked_again_are_filed_again() -> None:
    """A client is ended by the tick after its last request, however often it was looked at before."""
    bucket = Bucket(request("p"), timeout=HOUR)
    for number in range(1, 5):
        bucket.offset = number * HOUR - number * 100
        bucket.then(request("p"))
        assert bucket.then(Tick(1_000 + number * HOUR)) == []
    (end,) = bucket.then(Tick(1_000 + 6 * HOUR))
    assert end["expired"]


def test_a_client_that_left_takes_little_memory() -> None:
    """Its names have 22 characters, and are half of it; clients are filed by the time of their last request."""
    count = 5_000
    absent = {
        ClientKey(f"group-{number % 10}", f"client-{number:08}"): ClientLease(
            (), Place(3, number, 1_700_000_000_000 + 1_000 * number), {"orders": Versions(number, number)}
        )
        for number in range(count)
    }
    stored = encode_home(CoordinatorState(leases=absent))
    tracemalloc.start()
    state = decode_home(stored)
    assert not list(state.indexes.silent_since(1, present=False))
    gc.collect()  # free lists of tuples
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / count < 100
    assert state.leases == absent
    assert list(state.indexes.silent_since(1_700_000_001_000, present=False)) == [next(iter(absent))]


def test_clients_come_and_go() -> None:
    leases, model = new_leases(), dict[ClientKey, ClientLease]()
    random = Random(7)
    for number in range(3_000):
        key = ClientKey(f"g{random.randrange(3)}", f"c{random.randrange(300)}")
        parents = random.choice([(), ("p",), None])
        if parents is not None:
            leases[key] = model[key] = ClientLease(parents, place(number), {"p": Versions(number, None)})
        elif key in model:
            del leases[key], model[key]
    assert (dict(leases), len(leases)) == (model, len(model))
    assert dict(leases.items()) == model
    assert len(leases.present) == sum(bool(lease.parents) for lease in model.values())
    with pytest.raises(KeyError):
        del leases[ClientKey("g", "stranger")]
