"""A history leaves one relation, however it is cut, and however late the job reads its own records."""

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.expansion import group_log
from streaming.oracle import Oracle
from streaming.records.model import Stream
from streaming.records.routing import Routing
from streaming.tuning import Tuning
from streaming.worker.worker import Worker
from tests.property.streaming.test_histories import routings
from tests.support.histories import PROFILES, REFUSALS, batches, feed, history, lease_of
from tests.support.simulator import Record, Simulation

EXAMPLES = int(os.environ.get("REEXPAND_EXAMPLES", "60"))

CUTTABLE = [name for name in PROFILES if name not in ("quota", "all")]
"""Whether a quota refuses a request depends on the topics of then, which come on another stream."""

MOVABLE = [name for name in CUTTABLE if name != "capped"]
"""Topics of several shards have no common order of creation, which decides what a quota leaves to a client."""

SHARDED = "capped, several shards"
several = st.builds(Routing, st.fixed_dictionaries({"p": st.integers(2, 5), "q": st.integers(2, 3)}), st.integers(0, 3))


@pytest.mark.rule("capped-request")
@pytest.mark.parametrize("profile", [*CUTTABLE, SHARDED])
@settings(max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 2**32),
    length=st.integers(1, 120),
    routing=st.tuples(routings, several),
    largest=st.integers(1, 60),
)
def test_any_cut_leaves_the_relation_of_single_records(
    profile: str, seed: int, length: int, routing: tuple[Routing, Routing], largest: int
) -> None:
    """The oracle reads record by record. The job reads many at once, and its own records at any time later.

    With several shards no shard refuses a request, whatever the settings, so quotas do not depend on the cut.
    """
    random, caps, layout = Random(seed), profile == "capped", routing[profile == SHARDED]
    records = history(random, length, PROFILES["capped" if profile == SHARDED else profile])
    oracle = Oracle(layout, client_timeout_ms=lease_of(records), cap_requests=caps)
    for record in records:
        feed(oracle, [record])
    job = Simulation(layout, client_timeout_ms=lease_of(records), cap_requests=caps)
    job.worker = Worker(job.config, Tuning(end_bytes=random.choice([40, 300, 262_144])))
    for batch in batches(random, records, largest, punctual=True):
        job.run_once([*taken(random, job.echoes), *taken(random, job.slices), *batch])
    assert_same_in_the_end(random, job, oracle)


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), largest=st.integers(1, 60))
def test_any_cut_leaves_the_refusals_of_single_records(seed: int, length: int, largest: int) -> None:
    """Of requests that follow all topics and groups: the relation, and the dead letters that stand.

    The state may be rebuilt at any time.
    """
    random = Random(seed)
    records = history(random, length, REFUSALS)
    lease = random.choice([0, *[lease_of(records)] * 3])
    oracle = Oracle(client_timeout_ms=lease)
    for record in records:
        feed(oracle, [record])
    job = Simulation(client_timeout_ms=lease)
    tuning = Tuning(end_bytes=random.choice([40, 300, 262_144]))
    job.worker = Worker(job.config, tuning)
    asked = (Stream.SUBSCRIPTIONS, Stream.CLOCK)
    for record in records:
        if record.stream not in asked:
            job.run_once([record])
    requests = [record for record in records if record.stream in asked]
    for batch in batches(random, requests, largest, punctual=True):
        job.run_once([*taken(random, job.echoes), *taken(random, job.slices), *batch])
        if random.random() < 0.1:
            letters, job = job.dead_letters, job.move(Routing())
            job.dead_letters, job.worker = letters, Worker(job.config, tuning)
    assert_same_in_the_end(random, job, oracle)
    assert job.refused == sorted(place.offset for place in oracle.refused)


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(40, 120))
def test_a_short_log_is_enough_for_an_end_that_comes_at_once(seed: int, length: int) -> None:
    """A group keeps only the latest requests that it may have to judge again."""
    records = history(Random(seed), length, REFUSALS)
    oracle = Oracle(client_timeout_ms=lease_of(records))
    job = Simulation(client_timeout_ms=lease_of(records))
    job.worker = Worker(job.config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_log, "MAX_LOGGED", 8)
        for record in records:
            feed(oracle, [record])
            job.run([record])
            assert job.relation == oracle.relation()
    assert job.refused == sorted(place.offset for place in oracle.refused)


@pytest.mark.rule("resharding")
@pytest.mark.parametrize("profile", MOVABLE)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), routing=st.lists(routings, min_size=2, max_size=3))
def test_states_may_move_to_other_shards_at_any_time(
    profile: str, seed: int, length: int, routing: list[Routing]
) -> None:
    """A new checkpoint that begins with the states of a former one has its relation, and goes on exactly."""
    random = Random(seed)
    records = history(random, length, PROFILES[profile])
    oracle = Oracle(client_timeout_ms=lease_of(records))
    for record in records:
        feed(oracle, [record])
    job = Simulation(routing[0], client_timeout_ms=lease_of(records))
    for batch in batches(random, records, random.choice([1, 5, 40]), punctual=True):
        if random.random() < 0.3:
            settled = not job.slices and random.random() < 0.5
            while settled and job.echoes:
                job.run_once(taken(random, job.echoes))
            before = job.relation
            job = job.move(random.choice(routing))
            assert not settled or job.relation == before
        job.run_once([*taken(random, job.echoes), *taken(random, job.slices), *batch])
    assert_same_in_the_end(random, job, oracle)


def taken(random: Random, waiting: list[Record]) -> list[Record]:
    """Take some of the records that the job wrote to itself, the oldest first."""
    count = random.choice([0, 1, len(waiting), len(waiting)])
    found = waiting[:count]
    del waiting[:count]
    return found


def assert_same_in_the_end(random: Random, job: Simulation, oracle: Oracle) -> None:
    """Let the job read all records that it wrote to itself, and compare its relation with the oracle's."""
    while job.echoes or job.slices:
        job.run_once([*taken(random, job.echoes), *taken(random, job.slices)])
    assert job.relation - oracle.relation() == set(), "surplus"
    assert oracle.relation() - job.relation == set(), "missing"
