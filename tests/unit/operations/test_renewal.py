"""States of a former checkpoint with which a new one begins."""

import dataclasses
from typing import Any

import pytest

from streaming.coordinator import COORDINATOR, bucket_of
from streaming.errors import StateCorrupted
from streaming.operations.adoption import Layout, Renewed, renewed_states
from streaming.records.model import VERSION_RETENTION_MS
from streaming.records.routing import Routing
from streaming.state import ShardState
from streaming.storage.store import ADOPTED
from streaming.worker.rows import InputRow
from streaming.worker.worker import Worker, WorkerConfig
from tests.support.events import EXCLUSIVE, WILD, add, created, leave, replace
from tests.support.simulator import TOPICS as NAMES
from tests.support.simulator import Memories, Simulation
from tests.support.states import GROUPS, SUBSCRIPTIONS, TOPICS, decode, decode_home, row, work
from tests.support.world import World

ONE, THREE = Routing(), Routing({"p": 3}, 0)


def former(*rows: InputRow, key: tuple[str, int] = ("p", 0)) -> tuple[str, int, bytes]:
    """A key of the former checkpoint."""
    data, _ = work(*key, list(rows), None, Worker(WorkerConfig(NAMES)))
    assert data is not None
    return *key, data


def renewed(*values: tuple[str, int, bytes], before: Routing = ONE, after: Routing = THREE) -> dict[Any, Renewed]:
    layouts = Layout(before, Memories()), Layout(after, Memories())
    return {each[:2]: each for each in renewed_states(values, *layouts, inner_multi=False)}


def topics(*names: str, **fields: Any) -> list[InputRow]:
    return [row(TOPICS, created(name, **fields), offset) for offset, name in enumerate(names)]


@pytest.mark.rule("resharding")
def test_topics_and_entries_are_divided_and_the_newest_request_stays_the_newest() -> None:
    asked = [replace("**", client, client=client) for client in "abc"]
    rows = [row(GROUPS, EXCLUSIVE, 0), *(row(SUBSCRIPTIONS, each, at) for at, each in enumerate(asked))]
    names = [f"t{number}" for number in range(20)]
    shards = {key: decode(each.value) for key, each in renewed(former(*rows, *topics(*names))).items()}
    assert set(shards) == {("p", number) for number in range(3)}
    assert sorted(name for shard in shards.values() for name in shard.topics) == sorted(names)
    for (_, number), shard in shards.items():
        assert [name for name in names if THREE.shard_of("p", name) == number] == list(shard.topics)
        assert all({row.client_id for row in shard.subscribers(name)} == {"c"} for name in shard.topics)
        own = {
            entry for client in shard.clients.values() for block in client.wildcard.blocks for entry in block.entries
        }
        assert own == {"**", *(client for client in "abc" if THREE.shard_of("p", client) == number)}
    together = renewed(*((*key, each.value) for key, each in renewed(former(*rows, *topics(*names))).items()),
                       before=THREE, after=ONE)  # fmt: skip
    (whole,) = together.values()
    assert {each.client_id for name in names for each in decode(whole.value).subscribers(name)} == {"c"}


def test_each_shard_is_visited_and_told_its_times() -> None:
    found = renewed(former(*topics(*"abcdef", ttlMs=5_000)))
    assert len(found) > 1
    for (parent, number), key in found.items():
        said = [record.value for record in key.records]
        assert said == [
            b'{"alarm":10000,"parentTopic":"%b","shard":%d}' % (parent.encode(), number),
            b'{"wake":0,"parentTopic":"%b","shard":%d}' % (parent.encode(), number),
        ]


def test_a_parent_that_keeps_its_shards_keeps_its_states() -> None:
    """Another route depth moves nothing where there is one shard."""
    values = [former(*topics("b", "a")), former(*topics("d", "c", parentTopic="q"), key=("q", 0))]
    found = renewed(*values, after=Routing({"p": 2}, 2))
    assert decode(found["q", 0].value) == decode(values[1][2])
    assert list(decode(found["q", 0].value).topics) == ["d", "c"]


def test_the_coordinator_goes_on() -> None:
    home = (COORDINATOR, bucket_of("g"))
    value = former(row(GROUPS, WILD, 0), row(SUBSCRIPTIONS, replace("t", version=3), 1), key=home)
    found = renewed(value)[home]
    assert decode_home(found.value) == decode_home(value[2])
    assert found.records == []


def test_a_damaged_state_is_refused() -> None:
    parent, number, value = former(*topics("a"))
    with pytest.raises(StateCorrupted):
        renewed((parent, number, value[:-1]))


@pytest.mark.rule("resharding")
def test_a_key_begins_with_its_adopted_state_once() -> None:
    """One that has become empty must not begin with it again."""
    archives = Memories()
    archives.of("p", 0).write(ADOPTED, former(*topics("a", "b"))[2])
    config = WorkerConfig(NAMES, archives=archives, adopts=True)
    visited, _ = work("p", 0, topics("c"), None, Worker(config))
    assert list(decode(visited).topics) == ["a", "b", "c"]
    emptied, _ = work("p", 0, topics("a", "b", event="DELETED"), None, Worker(config))
    assert decode(emptied) == ShardState()
    assert emptied is not None
    later, _ = work("p", 0, topics("d"), emptied, Worker(config))
    assert list(decode(later).topics) == ["d"]
    ordinary, _ = work("p", 0, topics("d"), None, Worker(dataclasses.replace(config, adopts=False)))
    assert list(decode(ordinary).topics) == ["d"]
    unknown, _ = work("q", 0, topics("d", event="DELETED"), None, Worker(config))
    assert unknown is None


@pytest.mark.rule("resharding")
def test_a_new_request_is_newer_than_the_requests_of_an_end_that_the_former_job_has_not_read() -> None:
    """Stale requests of a client whose versions are forgotten have no numbers in the state; the end repeats them."""
    job = Simulation()
    world = World(job, EXCLUSIVE, created("y"), replace("q", client="f"), add("v", version=5, client="z"))
    world.batch(leave(parent="", version=5, client="z"))
    stale = [add("y", version=1, client="z")] * 9
    job.run_once(world.records(*stale, at=VERSION_RETENTION_MS + 1))
    world.told = moved = job.move(Routing({"p": 2}))
    echoes, moved.echoes = moved.echoes, []
    moved.run(echoes)
    assert world.rows == {"z y"}
    world.batch(replace("y", client="d"), at=VERSION_RETENTION_MS + 2)
    assert world.rows == {"d y"}
