"""All short stories of a few events, in every cut and at several paces, end in the relation of single records."""

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from streaming.oracle import Effective, Oracle
from streaming.records.model import VERSION_RETENTION_MS, Stream
from streaming.records.routing import Routing
from streaming.records.updates import Cause
from streaming.tuning import Tuning
from streaming.worker.worker import Worker
from tests.support.events import (
    EXCLUSIVE,
    UNBOUND,
    WILD,
    Event,
    add,
    created,
    deleted,
    drop,
    leave,
    quota,
    replace,
    stream_of,
    tick,
    wildcard,
)
from tests.support.histories import feed
from tests.support.simulator import TOPICS, Record, Simulation

LENGTH = int(os.environ.get("REEXPAND_STORY_LENGTH", "2"))
"""Events of a story; `make test-histories` tells longer ones."""

STEP_MS = 1_000
LEASE_MS = 4 * STEP_MS


class Later(NamedTuple):
    """An event that happens some time after the event before it, in milliseconds; others after `STEP_MS`."""

    event: Event
    after_ms: int


Happening = Event | Later


class Scope(NamedTuple):
    """The events of which stories are made; a tick tells the time at which it happens.

    Attributes:
        first: events with which every story begins, each in a micro-batch of its own.
        alphabet: events that may come then, in any order and number.
        refuses: a quota refuses requests, on a parent with one shard.
        lease_ms: time without a request after which a client is ended; 0 for never.
    """

    first: Sequence[Happening]
    alphabet: Sequence[Happening]
    refuses: bool = False
    lease_ms: int = LEASE_MS


def later(event: Event) -> Later:
    """After the end of the lease."""
    return Later(event, LEASE_MS + STEP_MS)


def much_later(event: Event) -> Later:
    """After the versions of a client are forgotten."""
    return Later(event, VERSION_RETENTION_MS + STEP_MS)


END_BYTES = (262_144, 260, 40)
"""Sizes of the records of ends: of several requests, of one request, and of less."""
STEPS = (1, 20_000, 1, 1, 20_000)
"""Topics of a step of a backfill: one, or all. Five sizes, so that each cut and pace meets both."""
TTL_MS = 15_000
SCOPES = {
    "ends and versions": Scope(
        (WILD, created("t"), created("u")),
        (
            *(replace("t"), replace("t", version=1), add("u", version=3), drop("t", version=2)),
            *(leave(version=2), leave(parent=""), leave(parent="", version=2), leave(parent="", version=4)),
        ),
    ),
    "ends in several records": Scope(
        (WILD, created("t"), created("u"), replace("u"), leave(parent="")),
        (
            *(replace("t", version=1), add("u", version=2), add("t"), drop("t", version=2)),
            *(leave(version=1), leave(parent="", version=2), later(add("u", version=1))),
        ),
    ),
    "leases and versions": Scope(
        (WILD, created("t"), created("u")),
        (
            *(replace("t"), add("u", version=1), add(version=3), later(add("u", version=2))),
            *(leave(parent="", version=2), tick(), Later(tick(), LEASE_MS), later(replace("t"))),
        ),
    ),
    "versions that are forgotten": Scope(
        (WILD, created("t"), created("u"), replace("t", version=3)),
        (
            *(add("u", version=1), much_later(add("u", version=2)), much_later(tick()), tick()),
            *(leave(version=3), leave(parent=""), leave(parent="", version=2)),
        ),
    ),
    "selectors and versions": Scope(
        (WILD, created("t", tags="x"), created("u", tags="y"), replace("*", client="d")),
        (
            *(replace("*", tag="x"), add("z", version=1, tag="y"), add("z", version=3, tag="x")),
            *(add("z", client="d", version=1, tag="y"), leave(parent="", version=2), leave(version=2)),
            leave(parent="", client="d", version=2),
        ),
    ),
    "selectors and versions that are forgotten": Scope(
        (
            *(WILD, created("t", tags="x"), created("u", tags="y"), replace("*", client="d", tag="x")),
            *(add("v", version=5), leave(parent="", version=5)),
        ),
        (
            *(add("z", version=1, tag="y"), much_later(add("z", version=1, tag="y")), much_later(tick())),
            *(
                replace("*", client="d", tag="x"),
                replace("*", client="d", version=2, tag="x"),
                leave(parent="", client="d", version=3),
            ),
        ),
        lease_ms=0,
    ),
    "exclusive groups": Scope(
        (EXCLUSIVE, created("t")),
        (
            *(replace("t"), replace("t", client="d"), add("*", client="d", version=1), replace("*", version=2)),
            *(leave(parent=""), leave(parent="", client="d", version=2), deleted("t"), created("t")),
        ),
    ),
    "bindings": Scope(
        (created("t"), created("t", "q")),
        (*(WILD, wildcard(parent="q"), UNBOUND), *(replace("t"), replace("*", parent="q"), leave(), leave(parent=""))),
    ),
    "quotas": Scope(
        (quota(2), created("t"), created("u"), created("v")),
        (
            *(replace("*"), replace("t", version=1), add("u", client="d"), leave(parent="", version=2)),
            *(deleted("t"), created("t"), quota(1), quota(2, model="Exclusive")),
        ),
    ),
    "quotas and bindings": Scope(
        (
            quota(0, group="h"),
            created("t"),
            created("v__v"),
            replace("*"),
            quota(-1),
            wildcard(parent="q"),
            deleted("t"),
        ),
        (
            *(quota(1), quota(-1), quota(1, model="Exclusive"), wildcard(parent="q")),
            *(created("u"), created("t"), replace("*")),
        ),
    ),
    "refusals and versions": Scope(
        (quota(1), created("t"), created("u"), replace("t", version=1)),
        (
            *(replace("*", version=4), add("u", version=2), replace("u"), drop("t", version=3)),
            *(leave(parent="", version=3), leave(parent=""), later(add("u", version=3))),
        ),
        refuses=True,
    ),
    "refusals and selectors": Scope(
        (quota(1), created("t", tags="x"), created("u", tags="y"), add("t", tag="x"), leave(parent="")),
        (
            *(replace("*"), replace("*", tag="x"), add("u", "t"), add("t", client="d", tag="*")),
            *(leave(parent=""), replace("u", client="d", tag="y"), leave(parent="", client="d")),
        ),
        refuses=True,
    ),
    "refusals and selectors of others": Scope(
        (quota(1), created("t", tags="x"), created("u", tags="y"), add("t", version=1), leave(parent="", version=2)),
        (
            *(add("z", version=1, tag="x"), replace("*", version=3, tag="y"), add("u", tag="*")),
            *(replace("*", client="d"), replace("*", client="d", tag="x"), leave(parent="", client="d")),
            leave(parent="", version=2),
        ),
        refuses=True,
    ),
    "refusals that are forgotten": Scope(
        (quota(1), created("t"), created("u"), replace("t", version=2), replace("*", version=4)),
        (
            *(add("u", version=1), add("u", version=3), much_later(add("u", version=1)), much_later(tick()), tick()),
            *(leave(version=3), leave(parent="", version=3), leave(parent="")),
        ),
        refuses=True,
    ),
    "refusals of what is held": Scope(
        (quota(2), created("t"), created("u"), replace("*", version=1), quota(1)),
        (
            *(replace("*"), add("u"), replace("t", version=3), replace("*", "t", version=2)),
            *(leave(parent=""), leave(parent="", version=2), later(replace("*"))),
        ),
        refuses=True,
    ),
    "topics that end": Scope(
        (WILD, replace("*")),
        (
            *(created("t"), created("t", ttlMs=TTL_MS), deleted("t"), tick(), Later(tick(), TTL_MS)),
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
        oracle = Oracle(routing, client_timeout_ms=scope.lease_ms, cap_requests=caps)
        for record in records:
            feed(oracle, [record])
        wanted = oracle.relation()
        for batches in cuts(rest):
            for pace in PACES:
                job = Simulation(routing, client_timeout_ms=scope.lease_ms, cap_requests=caps)
                sizes = {"end_bytes": END_BYTES[told % len(END_BYTES)], "backfill_topics": STEPS[told % len(STEPS)]}
                job.worker = Worker(job.config, Tuning(**sizes))
                found = pace(job, [*([each] for each in first), *batches])
                assert found == wanted, (pace.__name__, [[each.value for each in batch] for batch in batches])
                assert job.refused == [place.offset for place in oracle.refused]
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


def written(story: Sequence[Happening]) -> Iterator[Record]:
    now, offsets = 1_000_000, dict.fromkeys(Stream, 0)
    for happening in story:
        event, after_ms = happening if isinstance(happening, Later) else (happening, STEP_MS)
        now += after_ms
        stream = stream_of(event)
        value = {"tick": now} if stream is Stream.CLOCK else event
        yield Record(stream, json.dumps(value).encode(), 0, offsets[stream], now)
        offsets[stream] += 1


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
