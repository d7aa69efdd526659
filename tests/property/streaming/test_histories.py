"""Random histories leave the oracle's relation, however they are interleaved, cut into batches, sharded or repeated."""

import json
import os
from collections.abc import Iterator, Mapping
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streaming.oracle import Oracle
from streaming.oracle.sets import Entry
from streaming.records.model import Stream
from streaming.records.parsing import parse_subscription
from streaming.records.routing import Routing
from streaming.records.updates import Cause
from streaming.tuning import Tuning
from streaming.worker.worker import Worker
from tests.support.histories import PROFILES, batches, entries_of, feed, history, lease_of
from tests.support.simulator import Record, Simulation, element

EXAMPLES = int(os.environ.get("REEXPAND_EXAMPLES", "60"))
"""Histories of each profile; `make test-histories` tries many more."""


@pytest.fixture(scope="module", autouse=True)
def few_topics() -> Iterator[None]:
    """Let three topics be enough for a table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming.state.snapshot._FEW_TOPICS", 3)
        patch.setattr("streaming.state.snapshot._NEW_TOPICS", 2)
        yield


routings = st.builds(
    Routing,
    st.fixed_dictionaries({}, optional={"p": st.integers(2, 5), "q": st.integers(2, 3)}),
    st.integers(0, 3),
)


@pytest.mark.rule("relation")
@pytest.mark.parametrize("profile", PROFILES)
@settings(max_examples=EXAMPLES)
@example(seed=2894, length=89, routing=Routing())  # capped: a backfill of a client without a quota was under way
@example(seed=2965, length=89, routing=Routing())  # capped: a topic matched only what the client wanted before
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), routing=routings)
def test_any_split_and_any_shard_count_leave_the_oracles_relation(
    profile: str, seed: int, length: int, routing: Routing
) -> None:
    """Each stream keeps its order; how streams interleave, batches are cut, and shards are counted does not matter.

    Two workers do it by turns, are replaced and repeat batches on the way, states lie in parts, changes are carried out
    in slices, and every update must be a change of the relation. After each micro-batch, and what the job told itself
    because of it, the relation is the oracle's.
    """
    random = Random(seed)
    records = history(random, length, PROFILES[profile])
    caps = PROFILES[profile].capped
    job = Simulation(routing, client_timeout_ms=lease_of(records), cap_requests=caps)
    oracle = Oracle(routing, client_timeout_ms=lease_of(records), cap_requests=caps)
    workers = [Worker(job.config), Worker(job.config)]
    steps = random.choice([[1, 3, 20_000], [20_000]])  # updates of a backfill name the last request of the client
    for batch in batches(random, records):
        if random.random() < 0.2:
            workers[random.randrange(2)] = Worker(job.config)
        # Arrays answer, and columns are made, for large batches; here they must for small ones as well.
        before = len(job.updates)
        tuning = Tuning(
            columnar_min_topics=random.choice([1, 1, 64]),
            array_min_topics=random.choice([1, 256]),
            array_build_topics=0,
            backfill_topics=random.choice(steps),
            inline_bytes=random.choice([0, 200]),
            retained_micro_batches=2,
            snapshot_min_bytes=random.choice([1, 200, 1_000_000]),
            updates_per_chunk=random.choice([1, 1_000]),
            output_row_bytes=random.choice([1, 1_000, 1_000_000]),
            column_row_bytes=random.choice([1, 3_000, 1_000_000]),
            piece_bytes=random.choice([1, 1_000_000]),
            end_bytes=random.choice([40, 300, 262_144]),
        )
        job.worker = at_work(job, tuning, random.choice(workers))
        settle = random.random() < 0.6
        rounds = job.run(batch, crash=random.random() < 0.3, settle=settle)
        feed(oracle, batch)
        if job.slices:
            continue
        wanted = oracle.relation()
        assert job.relation - wanted == set(), "surplus"
        assert wanted - job.relation == set(), "missing"
        if rounds == 1:  # else what an update says may be out of date when all is said
            for update in job.updates[before:]:
                says_what_holds(update, oracle)
            if steps == [20_000] and all(record.stream is not Stream.GROUPS for record in batch):
                sources = {record.offset: record for record in batch if record.stream is Stream.SUBSCRIPTIONS}
                for update in job.updates[before:]:
                    says_who_asked(update, sources)
    job.run([])
    assert job.relation == oracle.relation()


@pytest.mark.rule("by-column")
@pytest.mark.parametrize("profile", PROFILES)
@settings(max_examples=max(20, EXAMPLES // 3))
@example(seed=23_267_772, length=90, routing=Routing({"p": 2}, 0))  # a kept count was stale
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), routing=routings)
def test_columns_give_the_updates_of_single_topics(profile: str, seed: int, length: int, routing: Routing) -> None:
    """The same updates, dead letters and counts after each micro-batch, to the byte."""
    random = Random(seed)
    records = history(random, length, PROFILES[profile])
    lease, caps = lease_of(records), PROFILES[profile].capped
    jobs = [Simulation(routing, client_timeout_ms=lease, cap_requests=caps) for _ in range(2)]
    for job, minimum in zip(jobs, (1, inf), strict=True):
        job.worker = Worker(job.config, Tuning(columnar_min_topics=minimum))
    for batch in batches(random, records):
        for job in jobs:
            job.run(batch)
        by_column, one_by_one = jobs
        assert by_column.states.keys() == one_by_one.states.keys()
        assert by_column.ignored == one_by_one.ignored
        for said in ("updates", "dead_letters"):
            assert sorted(getattr(by_column, said), key=repr) == sorted(getattr(one_by_one, said), key=repr)


def at_work(job: Simulation, tuning: Tuning, process: Worker) -> Worker:
    """Return a worker with the decoded states of a process, under another tuning."""
    worker = Worker(job.config, tuning)
    worker.states._kept, worker.states._mapped = process.states._kept, process.states._mapped
    return worker


def says_what_holds(update: dict[str, Any], oracle: Oracle) -> None:
    """An ADD names the entries that match, and the groups whose selectors agree."""
    if update["op"] == "ADD":
        row = element(update)
        assert tuple(update["patterns"]) == oracle.patterns(row)
        bitmap = oracle.bitmap(row.parent, row.lite_topic)
        assert update.get("bitmap") == (bitmap and bitmap.hex())


def says_who_asked(update: dict[str, Any], records: Mapping[int, Record]) -> None:
    """An ADD of a subscription names a request that asks for the topic, with its offset option."""
    source = update["source"]
    if (update["op"], update["cause"]) != ("ADD", Cause.SUBSCRIBED) or source["offset"] not in records:
        return  # or a change that goes on from an earlier micro-batch
    value = entries_of(records[source["offset"]].value)[source["entry"]]
    request = parse_subscription(value)
    assert (request.client_id, request.group) == (update["clientId"], update["group"])
    assert json.loads(value).get("offsetOption") == update.get("offsetOption")
    entries = [Entry(text, notation) for text in request.entries for notation in (request.notation, None)]
    assert not entries or any(entry.matches(update["liteTopic"], inner_multi=False) for entry in entries)
