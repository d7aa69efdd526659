"""The relation that states amount to is the one that the updates of a job leave."""

import dataclasses
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.coordinator import COORDINATOR
from streaming.operations.verify.replay import Replay, Rules, StoredInput, in_order, read_state
from streaming.oracle import Effective
from streaming.records.model import Stream
from streaming.records.routing import Routing
from streaming.records.writing import update_key
from streaming.state.delta import carried_out
from streaming.tuning import Tuning
from streaming.worker.quarantine import partition_of
from streaming.worker.worker import Worker
from tests.support.events import WILD, created, encoded, replace
from tests.support.histories import CLIENT_TIMEOUT_MS, PROFILES, batches, history
from tests.support.recorder import Recorder
from tests.support.simulator import TOPICS, Simulation

EXAMPLES = 25


def rules(routing: Routing) -> Rules:
    return Rules(TOPICS, routing, inner_multi=False)


def by_state(job: Simulation, *, completed: bool = False) -> set[bytes]:
    """The keys of the rows that the states of a job amount to."""
    found = set()
    worker = Worker(job.config)
    for key, data in job.states.items():
        if key[0] != COORDINATOR:
            state = read_state(worker, key, data)
            if completed:
                state.apply(carried_out(state.backfills))
            found |= {row for row, _, _ in rules(job.routing).held(key, state)}
    return found


def keys(relation: set[Effective]) -> set[bytes]:
    return {update_key(*row) for row in relation}


@pytest.mark.parametrize("profile", PROFILES)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 80), shards=st.integers(1, 4))
def test_a_state_amounts_to_what_was_announced(profile: str, seed: int, length: int, shards: int) -> None:
    """After each micro-batch, also while a wide request is carried out in steps."""
    random = Random(seed)
    routing = Routing({"p": shards})
    job = Simulation(routing, client_timeout_ms=CLIENT_TIMEOUT_MS)
    for batch in batches(random, history(random, length, PROFILES[profile])):
        job.worker = Worker(job.config, Tuning(backfill_topics=random.choice([1, 3, 20_000])))
        job.run(batch, settle=random.random() < 0.6)
        assert by_state(job) == keys(job.relation)
    after = by_state(job, completed=True)
    job.run([])
    assert after == keys(job.relation)


@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in ("quota", "capped", "life", "all")])
@settings(max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 2**32), length=st.integers(1, 80), sizes=st.tuples(st.integers(1, 4), st.sampled_from([0, 2]))
)
def test_inputs_that_are_worked_off_anew_leave_the_same_relation(
    tmp_path_factory: Any, profile: str, seed: int, length: int, sizes: tuple[int, int]
) -> None:
    """With the job's records to itself, in another partition than others: Kafka clients hash keys differently."""
    random, (shards, own) = Random(seed), sizes
    routing = Routing({"p": shards})
    job = Recorder(routing, client_timeout_ms=CLIENT_TIMEOUT_MS, own_partition=own)
    for batch in batches(random, history(random, length, PROFILES[profile])):
        job.run([dataclasses.replace(record, partition=1) for record in batch])
    replay = Replay(rules(routing), tmp_path_factory.mktemp("replay"))
    for records in in_order(job.partitions()):
        replay.feed(records)
    found = {row for key, state in replay.states() for row, _, _ in rules(routing).held(key, state)}
    assert found == keys(job.relation)


def test_inputs_are_worked_off_without_entries_that_the_job_left_out(tmp_path: Path) -> None:
    """Except for the keys of state partitions that had applied them."""
    records = [
        StoredInput(Stream.GROUPS, 0, 0, 1, encoded(WILD)),
        StoredInput(Stream.SUBSCRIPTIONS, 0, 0, 2, encoded(replace("*"))),
        *(StoredInput(Stream.TOPICS, 0, number, 3, encoded(created(f"t{number}"))) for number in range(8)),
    ]
    routing, partitions = Routing({"p": 4}), 3
    left_out = {(TOPICS[2], 0, number, 0): (1,) for number in range(8)}
    replay = Replay(dataclasses.replace(rules(routing), left_out=left_out, partitions=partitions), tmp_path)
    replay.feed(records)
    found = {topic for _, state in replay.states() for topic in state.topics}
    wanted = {
        f"t{number}" for number in range(8) if partition_of("p", routing.shard_of("p", f"t{number}"), partitions) == 1
    }
    assert found == wanted
    assert 0 < len(wanted) < 8
