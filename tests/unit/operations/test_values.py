"""Patterns and versions of ADDs: none of a right job is doubted in the end, and an altered one is found."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.coordinator import COORDINATOR
from streaming.operations.verify.ledger import BOTH_STATES, Ledger, Says, UpdateMark
from streaming.operations.verify.replay import Replay, Rules, in_order, read_state
from streaming.operations.verify.values import (
    CONTRADICTORY,
    ClientName,
    RequestLog,
    announced,
    name_of,
    stated,
    unexplained,
)
from streaming.records.model import Stream
from streaming.records.routing import Routing
from streaming.records.writing import update_key
from streaming.worker.worker import Worker
from tests.support.events import WILD, created, encoded, replace
from tests.support.histories import PROFILES, batches, history
from tests.support.recorder import Recorder
from tests.support.simulator import TOPICS, Record, element

EXAMPLES = 15


def wrong(
    job: Recorder,
    updates: Iterable[dict[str, Any]],
    folder: Path,
    altered: Mapping[bytes, dict[str, Any]] = MappingProxyType({}),
) -> set[bytes]:
    """The keys of the rows whose last ADD is found wrong, by state and inputs."""
    rules, worker = Rules(TOPICS, job.routing, inner_multi=False), Worker(job.config)
    with Ledger(folder / "rows.sqlite") as ledger:
        for key, data in job.states.items():
            if key[0] != COORDINATOR:
                ledger.mark(stated(rules, key, read_state(worker, key, data)), BOTH_STATES)
        ledger.fold(mark(update_key(*element(update)), update) for update in updates)
        ledger.fold(itertools.starmap(mark, altered.items()))
        doubts = list(ledger.doubts())
        clients = {ClientName(*name_of(row.key)[:3]) for row in doubts}
        with RequestLog(folder / "requests.sqlite", clients) as log:
            replay = Replay(rules, folder / "replay", log.note)
            for records in in_order(job.partitions()):
                replay.feed(records)
            undecided = (row for row in doubts if row.said != CONTRADICTORY)
            found = {row.key for row in unexplained(rules, log, undecided)}
    return found | {row.key for row in doubts if row.said == CONTRADICTORY}


def mark(key: bytes, update: dict[str, Any]) -> UpdateMark:
    if update["op"] == "REMOVE":
        return UpdateMark(key, 0, 0, 0, is_tombstone=False)
    return UpdateMark(
        key, int(Says.UPDATES), 0, 0, is_tombstone=False, value=announced(name_of(key), orjson.dumps(update))
    )


@pytest.mark.parametrize("profile", [name for name in PROFILES if name not in ("quota", "capped", "life", "all")])
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 60), shards=st.integers(1, 3))
def test_no_add_of_a_job_is_wrong_and_any_other_value_is(
    profile: str, seed: int, length: int, shards: int, tmp_path_factory: Any
) -> None:
    """However the job has cut its inputs into micro-batches, and however its clients changed their sets afterwards."""
    random = Random(seed)
    job = Recorder(Routing({"p": shards}))
    for batch in batches(random, history(random, length, PROFILES[profile])):
        job.run(batch)
    assert wrong(job, job.updates, tmp_path_factory.mktemp("right")) == set()
    last = {update_key(*element(update)): update for update in job.updates}
    holding = sorted(key for key, update in last.items() if update["op"] == "ADD")
    if holding:
        key = random.choice(holding)
        altered = {key: {**last[key], **random.choice(ALTERATIONS)}}
        assert wrong(job, job.updates, tmp_path_factory.mktemp("wrong"), altered) == {key}


ALTERATIONS: list[dict[str, Any]] = [
    {"patterns": ["other__**"]}, {"version": 77_777}, {"clientId": "other"}, {"eventId": "other"}, {"patterns": None},
    {"source": {"topic": "t", "partition": 0, "offset": 1, "entry": 0, "timestamp": 1}}, {"lmqName": "other"},
]  # fmt: skip
"""Values that no ADD of a history has."""


def story(*requests: dict[str, Any]) -> Recorder:
    """A job with a topic that one client receives, each of whose requests is in a micro-batch of its own."""
    job = Recorder()
    job.run([Record(Stream.GROUPS, encoded(WILD))])
    job.run([Record(Stream.TOPICS, encoded(created("a__b")))])
    for number, fields in enumerate(requests):
        job.run([Record(Stream.SUBSCRIPTIONS, encoded(replace("t", **fields)), 0, number)])
    return job


@pytest.mark.parametrize(
    ("patterns", "version", "is_right"),
    [
        (["a__*"], 1, True),
        (["a__**"], 2, True),
        (["a__*", "a__**"], 3, True),
        (["a__*"], 2, False),
        (["a__**"], 3, False),
        ([], 1, False),
        (["x__*"], 1, False),
        (["a__*"], None, False),
    ],
)
def test_a_value_is_right_if_it_was_once(tmp_path: Path, patterns: list[str], version: int, is_right: bool) -> None:  # noqa: FBT001 - a case
    job = story(
        {"liteTopicSet": ["a__*"], "version": 1},
        {"liteTopicSet": ["a__**"], "version": 2},
        {"liteTopicSet": ["a__*", "a__**"], "version": 3},
        {"liteTopicSet": ["a__b"], "version": 4},
    )
    (add,) = job.updates
    found = wrong(job, [{**add, "patterns": patterns, "version": version}], tmp_path)
    assert found == (set() if is_right else {update_key(*element(add))})


@pytest.mark.parametrize("update", [{}, {"source": 1}, {"source": {}}, {"source": {"topic": 1}}])
def test_an_add_without_the_fields_of_an_update_is_contradictory(update: dict[str, Any]) -> None:
    assert announced(name_of(update_key("p", "g", "c", "t")), orjson.dumps(update)) == CONTRADICTORY


def test_only_requests_of_doubted_clients_are_kept(tmp_path: Path) -> None:
    job = story(*({"clientId": f"c{number}", "liteTopicSet": ["a__*"]} for number in range(20)))
    rules = Rules(TOPICS, job.routing, inner_multi=False)
    wanted = ClientName("p", "g", "c7")
    with RequestLog(tmp_path / "requests.sqlite", {wanted}) as log:
        replay = Replay(rules, tmp_path, log.note)
        for records in in_order(job.partitions()):
            replay.feed(records)
        assert len(list(log.of(wanted))) == 1
        assert log._table.execute("SELECT count(*) FROM requests").fetchone() == (1,)
