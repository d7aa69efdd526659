"""All short stories of a few events, in every cut and at several paces, end in the relation of single records."""

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from streaming.events.model import BIND_TOPIC, MODEL, QUOTA, VERSION_RETENTION_MS, WILDCARD, Reason, Stream
from streaming.events.routing import Routing
from streaming.oracle import Effective, Oracle
from streaming.tuning import Tuning
from streaming.updates.model import Cause
from streaming.worker import Worker
from tests.support.histories import feed
from tests.support.simulator import TOPICS, Record, Simulation

LENGTH = int(os.environ.get("REEXPAND_STORY_LENGTH", "2"))
"""Events of a story; `make test-histories` tells longer ones."""

STEP_MS = 1_000
LEASE_MS = 4 * STEP_MS


class Happening(NamedTuple):
    """One event of a story.

    Attributes:
        value: fields of the record, made of the time in milliseconds.
        after_ms: time since the event before.
    """

    stream: Stream
    value: Callable[[int], dict[str, Any]]
    after_ms: int = STEP_MS


class Scope(NamedTuple):
    """The events of which stories are made.

    Attributes:
        first: events with which every story begins, each in a micro-batch of its own.
        alphabet: events that may come then, in any order and number.
        refuses: a quota refuses requests, on a parent with one shard.
    """

    first: Sequence[Happening]
    alphabet: Sequence[Happening]
    refuses: bool = False


def topic(name: str = "t", event: str = "CREATED", **fields: Any) -> Happening:
    """A topic event of parent `p`."""
    value = {"event": event, "parentTopic": "p", "liteTopic": name, **fields}
    return Happening(Stream.TOPICS, lambda _: value)


def request(action: str, *entries: str, client: str = "c", parent: str = "p", **fields: Any) -> Happening:
    """A request of a client."""
    value = {"action": action, "clientId": client, "group": "g", "topic": parent, "liteTopicSet": entries, **fields}
    return Happening(Stream.SUBSCRIPTIONS, lambda _: value)


def replace(*entries: str, **fields: Any) -> Happening:
    """A COMPLETE_ADD."""
    return request("COMPLETE_ADD", *entries, **fields)


def add(*entries: str, **fields: Any) -> Happening:
    """A PARTIAL_ADD."""
    return request("PARTIAL_ADD", *entries, **fields)


def leave(**fields: Any) -> Happening:
    """A COMPLETE_REMOVE."""
    return request("COMPLETE_REMOVE", **fields)


def group(parent: str = "p", **attributes: str) -> Happening:
    """The attributes of the group: wildcard, and these."""
    value = {"group": "g", "attributes": {BIND_TOPIC: parent, WILDCARD: "true", **attributes}}
    return Happening(Stream.GROUPS, lambda _: value)


def tick(after_ms: int = STEP_MS) -> Happening:
    """The clock tells the time."""
    return Happening(Stream.CLOCK, lambda now: {"tick": now}, after_ms)


def later(happening: Happening) -> Happening:
    """The same, after the end of the lease."""
    return happening._replace(after_ms=LEASE_MS + STEP_MS)


def much_later(happening: Happening) -> Happening:
    """The same, after the versions of a client are forgotten."""
    return happening._replace(after_ms=VERSION_RETENTION_MS + STEP_MS)


TAG_X = {"type": "TAG", "expression": "x"}
TAG_Y = {"type": "TAG", "expression": "y"}
TAG_ALL = {"type": "TAG", "expression": "*"}
END_BYTES = (262_144, 260, 40)
"""Sizes of the records of ends: of several requests, of one request, and of less."""
EXCLUSIVE = group(**{MODEL: "Exclusive"})
TTL_MS = 15_000
SCOPES = {
    "ends and versions": Scope(
        (group(), topic("t"), topic("u")),
        (
            *(replace("t"), replace("t", version=1), add("u", version=3), request("PARTIAL_REMOVE", "t", version=2)),
            *(leave(version=2), leave(parent=""), leave(parent="", version=2), leave(parent="", version=4)),
        ),
    ),
    "ends in several records": Scope(
        (group(), topic("t"), topic("u"), replace("u"), leave(parent="")),
        (
            *(replace("t", version=1), add("u", version=2), add("t"), request("PARTIAL_REMOVE", "t", version=2)),
            *(leave(version=1), leave(parent="", version=2), later(add("u", version=1))),
        ),
    ),
    "leases and versions": Scope(
        (group(), topic("t"), topic("u")),
        (
            *(replace("t"), add("u", version=1), add(version=3), later(add("u", version=2))),
            *(leave(parent="", version=2), tick(), tick(LEASE_MS), later(replace("t"))),
        ),
    ),
    "versions that are forgotten": Scope(
        (group(), topic("t"), topic("u"), replace("t", version=3)),
        (
            *(add("u", version=1), much_later(add("u", version=2)), much_later(tick()), tick()),
            *(leave(version=3), leave(parent=""), leave(parent="", version=2)),
        ),
    ),
    "selectors and versions": Scope(
        (group(), topic("t", tags="x"), topic("u", tags="y"), replace("*", client="d")),
        (
            *(replace("*", selector=TAG_X), add("z", version=1, selector=TAG_Y), add("z", version=3, selector=TAG_X)),
            *(add("z", client="d", version=1, selector=TAG_Y), leave(parent="", version=2), leave(version=2)),
            leave(parent="", client="d", version=2),
        ),
    ),
    "exclusive groups": Scope(
        (EXCLUSIVE, topic("t")),
        (
            *(replace("t"), replace("t", client="d"), add("*", client="d", version=1), replace("*", version=2)),
            *(leave(parent=""), leave(parent="", client="d", version=2), topic("t", "DELETED"), topic("t")),
        ),
    ),
    "bindings": Scope(
        (topic("t"), topic("t", parentTopic="q")),
        (
            *(group(), group("q"), Happening(Stream.GROUPS, lambda _: {"group": "g", "attributes": {}})),
            *(replace("t"), replace("*", parent="q"), leave(), leave(parent="")),
        ),
    ),
    "quotas": Scope(
        (group(**{QUOTA: "2"}), topic("t"), topic("u"), topic("v")),
        (
            *(replace("*"), replace("t", version=1), add("u", client="d"), leave(parent="", version=2)),
            *(topic("t", "DELETED"), topic("t"), group(**{QUOTA: "1"}), group(**{QUOTA: "2", MODEL: "Exclusive"})),
        ),
    ),
    "refusals and versions": Scope(
        (group(**{QUOTA: "1"}), topic("t"), topic("u"), replace("t", version=1)),
        (
            *(replace("*", version=4), add("u", version=2), replace("u"), request("PARTIAL_REMOVE", "t", version=3)),
            *(leave(parent="", version=3), leave(parent=""), later(add("u", version=3))),
        ),
        refuses=True,
    ),
    "refusals and selectors": Scope(
        (group(**{QUOTA: "1"}), topic("t", tags="x"), topic("u", tags="y"), add("t", selector=TAG_X), leave(parent="")),
        (
            *(replace("*"), replace("*", selector=TAG_X), add("u", "t"), add("t", client="d", selector=TAG_ALL)),
            *(leave(parent=""), replace("u", client="d", selector=TAG_Y), leave(parent="", client="d")),
        ),
        refuses=True,
    ),
    "refusals and selectors of others": Scope(
        (
            group(**{QUOTA: "1"}),
            topic("t", tags="x"),
            topic("u", tags="y"),
            add("t", version=1),
            leave(parent="", version=2),
        ),
        (
            *(add("z", version=1, selector=TAG_X), replace("*", version=3, selector=TAG_Y), add("u", selector=TAG_ALL)),
            *(replace("*", client="d"), replace("*", client="d", selector=TAG_X), leave(parent="", client="d")),
            leave(parent="", version=2),
        ),
        refuses=True,
    ),
    "refusals that are forgotten": Scope(
        (group(**{QUOTA: "1"}), topic("t"), topic("u"), replace("t", version=2), replace("*", version=4)),
        (
            *(add("u", version=1), add("u", version=3), much_later(add("u", version=1)), much_later(tick()), tick()),
            *(leave(version=3), leave(parent="", version=3), leave(parent="")),
        ),
        refuses=True,
    ),
    "refusals of what is held": Scope(
        (group(**{QUOTA: "2"}), topic("t"), topic("u"), replace("*", version=1), group(**{QUOTA: "1"})),
        (
            *(replace("*"), add("u"), replace("t", version=3), replace("*", "t", version=2)),
            *(leave(parent=""), leave(parent="", version=2), later(replace("*"))),
        ),
        refuses=True,
    ),
    "topics that end": Scope(
        (group(), replace("*")),
        (
            *(topic("t"), topic("t", ttlMs=TTL_MS), topic("t", "DELETED"), tick(), tick(TTL_MS)),
            *(replace("t"), leave(parent="")),
        ),
    ),
}


@pytest.mark.parametrize("shards", [{}, {"p": 2}], ids=["one shard", "two shards"])
@pytest.mark.parametrize("name", SCOPES)
def test_every_short_story_ends_in_the_relation_of_single_records(name: str, shards: dict[str, int]) -> None:
    """However it is cut into micro-batches, and whenever the job reads what it wrote to itself.

    Of several shards none refuses a request for its quota; one shard does so unless the job is to cap requests. An end
    goes in records of any size.
    """
    scope, routing, told = SCOPES[name], Routing(shards), 0
    caps = not (shards or scope.refuses)
    for story in itertools.product(scope.alphabet, repeat=LENGTH):
        records = list(written([*scope.first, *story]))
        first, rest = records[: len(scope.first)], records[len(scope.first) :]
        oracle = Oracle(routing, client_timeout_ms=LEASE_MS, cap_requests=caps)
        for record in records:
            feed(oracle, [record])
        wanted = oracle.relation()
        for batches in cuts(rest):
            for pace in PACES:
                job = Simulation(routing, client_timeout_ms=LEASE_MS, cap_requests=caps)
                job.worker = Worker(job.config, Tuning(end_bytes=END_BYTES[told % len(END_BYTES)]))
                found = pace(job, [*([each] for each in first), *batches])
                assert found == wanted, (pace.__name__, [[each.value for each in batch] for batch in batches])
                assert refused(job) == [place.offset for place in oracle.refused]
                for update in job.updates:
                    says_whose_request(update, records)
                told += 1
    assert told == len(scope.alphabet) ** LENGTH * 2 ** (LENGTH - 1) * len(PACES)


def says_whose_request(update: dict[str, Any], records: Sequence[Record]) -> None:
    """An update that a request caused names a request of the client; the end of a lease is the job's own record.

    An offset option and a reset are those of the request and of the group, which have none here.
    """
    source, is_own = update["source"], update["source"]["partition"] == 1
    assert ("offsetOption" in update, "resetOffset" in update) == (False, False)
    if update["cause"] in (Cause.SUBSCRIBED, Cause.UNSUBSCRIBED, Cause.LEASE_EXPIRED):
        assert (source["topic"], is_own) == (TOPICS[1], update["cause"] == Cause.LEASE_EXPIRED)
        requests = {each.offset: each for each in records if each.stream is Stream.SUBSCRIPTIONS}
        if not is_own:
            assert json.loads(requests[source["offset"]].value or b"")["clientId"] == update["clientId"]


def refused(job: Simulation) -> list[int]:
    """The requests that a quota refused, by the dead letters that stand."""
    letters = [letter for letter in job.dead_letters if letter["reason"] == Reason.QUOTA_EXCEEDED]
    return sorted(each["source"]["offset"] for each in letters if each["source"]["topic"] == TOPICS[1])


def written(story: Sequence[Happening]) -> Iterator[Record]:
    """The records of a story."""
    now, offsets = 1_000_000, dict.fromkeys(Stream, 0)
    for happening in story:
        now += happening.after_ms
        value = json.dumps(happening.value(now)).encode()
        yield Record(happening.stream, value, 0, offsets[happening.stream], now)
        offsets[happening.stream] += 1


def cuts(records: list[Record]) -> Iterator[list[list[Record]]]:
    """All ways to cut records into micro-batches."""
    for ends in itertools.product([False, True], repeat=len(records) - 1):
        batches = [[records[0]]]
        for record, is_new in zip(records[1:], ends, strict=True):
            if is_new:
                batches.append([])
            batches[-1].append(record)
        yield batches


def at_once(job: Simulation, batches: list[list[Record]]) -> set[Effective]:
    """The job reads what it wrote to itself before anything else."""
    for batch in batches:
        job.run(batch)
    return job.relation


def with_the_next(job: Simulation, batches: list[list[Record]]) -> set[Effective]:
    """The job reads what it wrote to itself together with what comes next."""
    for batch in batches:
        echoes, job.echoes = job.echoes, []
        job.run_once([*echoes, *batch])
    return in_the_end(job, [])


def in_the_end(job: Simulation, batches: list[list[Record]]) -> set[Effective]:
    """The job reads what it wrote to itself when all else is read."""
    for batch in batches:
        job.run_once(batch)
    while job.echoes or job.slices:
        echoes, job.echoes, job.slices = [*job.echoes, *job.slices], [], []
        job.run_once(echoes)
    return job.relation


PACES = (at_once, with_the_next, in_the_end)
