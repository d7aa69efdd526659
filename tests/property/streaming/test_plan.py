"""Dry runs of random events: what a plan says is what happens when the event is sent."""

import json
import os
from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.coordinator import COORDINATOR
from streaming.records.model import Stream
from streaming.records.routing import Routing, placed
from streaming.state import Shard
from streaming.worker.inquiry.model import PlannedEffect, PlannedUpdate
from streaming.worker.inquiry.planning import plan_shard, read
from streaming.worker.inquiry.questions import Ask, Question
from tests.support.histories import PROFILES, batches, history, lease_of
from tests.support.simulator import TOPICS, Record, Simulation, element
from tests.support.states import decode

EXAMPLES = int(os.environ.get("REEXPAND_EXAMPLES", "60")) // 2
"""Histories of each profile; each ends with an event that is planned before it is sent."""

routings = st.builds(Routing, st.fixed_dictionaries({}, optional={"p": st.integers(2, 3)}), st.integers(0, 2))


@pytest.mark.rule("plan")
@pytest.mark.parametrize("profile", PROFILES)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(2, 100), routing=routings)
def test_a_plan_is_what_happens(profile: str, seed: int, length: int, routing: Routing) -> None:
    """Each update of the micro-batch that reads the event, and no other; the state stays as it was."""
    random = Random(seed)
    *records, last = history(random, length, PROFILES[profile])
    if last.stream is Stream.CLOCK:
        return
    job = Simulation(routing, client_timeout_ms=lease_of([*records, last]))
    for batch in batches(random, records):
        job.run(batch)
    planned = Counter(row(update) for effect in plans(job, last) for update in effect.shown)
    before = len(job.updates)
    job.run_once([last])
    happened = Counter((each["op"], *element(each)) for each in job.updates[before:])
    assert planned == happened


def plans(job: Simulation, record: Record) -> list[PlannedEffect]:
    """What each shard says to a record."""
    value: dict[str, Any] = json.loads(record.value or b"")
    question = Question("q", Ask.PLAN, stream=str(record.stream), record=value)
    effects = []
    keys = {(each.parent, each.shard) for each in placed(record.stream, record.value, job.routing)}
    for parent, number in sorted(key for key in keys if key[0] != COORDINATOR):
        stored = job.states.get((parent, number)), job.archives.of(parent, number)
        shard, former = decode(*stored), decode(*stored)
        topic = TOPICS[list(Stream).index(record.stream)]
        effect = plan_shard(
            shard, Shard(parent, number, job.routing), read(question, topic, record.timestamp), question
        )
        assert effect.complete
        assert effect.cursor is None
        assert effect.adds + effect.removes == len(effect.shown)
        assert shard == former
        effects.append(effect)
    return effects


def row(update: PlannedUpdate) -> tuple[str, ...]:
    """An update as its row of the relation."""
    return update.op, update.parent, update.group, update.client, update.topic, update.part
