"""A history leaves one relation, however it is cut, and however late the job reads its own records."""

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.expansion import group_log
from streaming.oracle import Oracle
from streaming.records.model import Reason, Stream
from streaming.records.routing import Routing
from streaming.tuning import Tuning
from streaming.worker import Worker
from tests.property.streaming.test_histories import routings
from tests.support.histories import PROFILES, REFUSALS, Profile, batches, feed, history, lease_of
from tests.support.simulator import TOPICS, Record, Simulation

EXAMPLES = int(os.environ.get("REEXPAND_EXAMPLES", "60"))

CUTTABLE = [name for name in PROFILES if name not in ("quota", "all")]
"""Whether a quota refuses a request depends on the topics of then, which come on another stream."""

MOVABLE = [name for name in CUTTABLE if name != "capped"]
"""Topics of several shards have no common order of creation, which decides what a quota leaves to a client."""

several = st.builds(Routing, st.fixed_dictionaries({"p": st.integers(2, 5), "q": st.integers(2, 3)}), st.integers(0, 3))


@pytest.mark.rule("capped-request")
@pytest.mark.parametrize("profile", CUTTABLE)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), routing=routings, largest=st.integers(1, 60))
def test_any_cut_leaves_the_relation_of_single_records(
    profile: str, seed: int, length: int, routing: Routing, largest: int
) -> None:
    """The oracle reads record by record; the job reads many at once, and its own records at any time later."""
    told = PROFILES[profile]
    assert_any_cut_leaves_one_relation(Random(seed), length, told, routing, largest, cap_requests=told.capped)


@pytest.mark.rule("capped-request")
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 120), routing=several, largest=st.integers(1, 60))
def test_with_several_shards_quotas_do_not_depend_on_the_cut(
    seed: int, length: int, routing: Routing, largest: int
) -> None:
    """No shard refuses a request, whatever the settings; so all shards know the same of each client."""
    assert_any_cut_leaves_one_relation(Random(seed), length, PROFILES["capped"], routing, largest)


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
    while job.echoes or job.slices:
        job.run_once([*taken(random, job.echoes), *taken(random, job.slices)])
    assert job.relation - oracle.relation() == set(), "surplus"
    assert oracle.relation() - job.relation == set(), "missing"
    assert refused(job) == sorted(place.offset for place in oracle.refused)


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
    assert refused(job) == sorted(place.offset for place in oracle.refused)


def refused(job: Simulation) -> list[int]:
    """The requests that a quota refused, by the dead letters that stand."""
    letters = [letter["source"] for letter in job.dead_letters if letter["reason"] == Reason.QUOTA_EXCEEDED]
    return sorted(source["offset"] for source in letters if source["topic"] == TOPICS[1])


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
    while job.echoes or job.slices:
        job.run_once([*taken(random, job.echoes), *taken(random, job.slices)])
    assert job.relation - oracle.relation() == set(), "surplus"
    assert oracle.relation() - job.relation == set(), "missing"


def taken(random: Random, waiting: list[Record]) -> list[Record]:
    """Take some of the records that the job wrote to itself, the oldest first."""
    count = random.choice([0, 1, len(waiting), len(waiting)])
    found = waiting[:count]
    del waiting[:count]
    return found


def assert_any_cut_leaves_one_relation(
    random: Random, length: int, profile: Profile, routing: Routing, largest: int, *, cap_requests: bool = False
) -> None:
    """Hold a job that reads a history in random micro-batches against an oracle that reads its records one by one."""
    records = history(random, length, profile)
    oracle = Oracle(routing, client_timeout_ms=lease_of(records), cap_requests=cap_requests)
    for record in records:
        feed(oracle, [record])
    job = Simulation(routing, client_timeout_ms=lease_of(records), cap_requests=cap_requests)
    job.worker = Worker(job.config, Tuning(end_bytes=random.choice([40, 300, 262_144])))
    for batch in batches(random, records, largest, punctual=True):
        job.run_once([*taken(random, job.echoes), *taken(random, job.slices), *batch])
    while job.echoes or job.slices:
        job.run_once([*taken(random, job.echoes), *taken(random, job.slices)])
    assert job.relation - oracle.relation() == set(), "surplus"
    assert oracle.relation() - job.relation == set(), "missing"
