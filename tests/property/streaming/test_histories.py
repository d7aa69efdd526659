"""Random histories leave the oracle's relation, however they are interleaved, cut into batches, sharded or repeated."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.coordinator import coordinator
from streaming.events.routing import Routing
from streaming.expansion import backfill
from streaming.expansion import batch as batch_module
from streaming.oracle import Oracle
from streaming.state import state
from streaming.storage import journal
from streaming.subscription.interests import Interests
from streaming.worker import output, reading, worker
from streaming.worker.cache import CACHE_BYTES, StateCache
from tests.support.histories import CLIENT_TIMEOUT_MS, PROFILES, batches, feed, history
from tests.support.simulator import Simulation, element

EXAMPLES = int(os.environ.get("REEXPAND_EXAMPLES", "60"))
"""Histories of each profile; `make test-histories` tries many more."""

routings = st.builds(
    Routing,
    st.fixed_dictionaries({}, optional={"p": st.integers(2, 5), "q": st.integers(2, 3)}),
    st.integers(0, 3),
)


@pytest.mark.parametrize("profile", PROFILES)
@settings(max_examples=EXAMPLES, deadline=None)
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
    job = Simulation(routing, client_timeout_ms=CLIENT_TIMEOUT_MS)
    oracle = Oracle(routing, client_timeout_ms=CLIENT_TIMEOUT_MS)
    workers = [Worker(), Worker()]
    for batch in batches(random, records):
        if random.random() < 0.2:
            workers[random.randrange(2)] = Worker()
        # Arrays answer, and columns are made, for large batches; here they must for small ones as well.
        before = len(job.updates)
        many = random.choice([1, 1, 64])
        with (
            from_many_on(many),
            patch.multiple(worker, PIECE_BYTES=random.choice([1, 1_000_000]), _CHUNK=random.choice([1, 1_000])),
            patch.object(worker, "COLUMN_ROW_BYTES", random.choice([1, 3_000, 1_000_000])),
            patch.object(output, "ROW_BYTES", random.choice([1, 1_000, 1_000_000])),
            patch.dict(
                Interests.__init__.__kwdefaults__, array_min_topics=random.choice([1, 256]), build_topics_per_pattern=0
            ),
            patch.object(backfill, "BACKFILL_TOPICS", random.choice([1, 3, 20_000])),
            patch.multiple(journal, INLINE_BYTES=random.choice([0, 200]), RETAINED_BATCHES=2),
            random.choice(workers),
        ):
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
    job.run([])
    assert job.relation == oracle.relation()


@pytest.mark.parametrize("profile", PROFILES)
@settings(max_examples=max(20, EXAMPLES // 3), deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), routing=routings)
def test_columns_say_what_topics_one_by_one_say(profile: str, seed: int, length: int, routing: Routing) -> None:
    """The same updates, dead letters and counts after each micro-batch, to the byte."""
    random = Random(seed)
    jobs = [Simulation(routing, client_timeout_ms=CLIENT_TIMEOUT_MS) for _ in range(2)]
    workers = [Worker(), Worker()]
    for batch in batches(random, history(random, length, PROFILES[profile])):
        for job, at_work, many in zip(jobs, workers, (1, inf), strict=True):
            with from_many_on(many), at_work:
                job.run(batch)
        by_column, one_by_one = jobs
        assert by_column.states.keys() == one_by_one.states.keys()
        assert by_column.ignored == one_by_one.ignored
        for said in ("updates", "dead_letters"):
            assert sorted(getattr(by_column, said), key=repr) == sorted(getattr(one_by_one, said), key=repr)


@contextmanager
def from_many_on(count: float) -> Iterator[None]:
    """So many topics are judged by column."""
    with ExitStack() as stack:
        for module in (reading, batch_module, state):
            stack.enter_context(patch.object(module, "COLUMNAR_MIN_TOPICS", count))
        yield


class Worker:
    """One of the processes that do a job's work by turns, and what it has decoded."""

    def __init__(self) -> None:
        shards = StateCache(CACHE_BYTES, state.catch_up)
        homes = StateCache(CACHE_BYTES, coordinator.catch_up)
        self._patch = patch.multiple(worker, _SHARDS=shards, _HOMES=homes)

    def __enter__(self) -> None:
        self._patch.start()

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def says_what_holds(update: dict[str, Any], oracle: Oracle) -> None:
    """An ADD names the entries that match, and the groups whose selectors agree."""
    if update["op"] == "ADD":
        row = element(update)
        assert tuple(update["patterns"]) == oracle.patterns(row)
        bitmap = oracle.bitmap(row.parent, row.lite_topic)
        assert update.get("bitmap") == (bitmap and bitmap.hex())
