"""Topics and patterns after the input streams: the same as in a job after the same input."""

import json
from random import Random
from typing import Any

import pytest

from streaming.operations.advise.inventory import Holding, Inventory
from streaming.records.model import BIND_TOPIC, QUOTA, Place, Stream
from streaming.records.routing import Routing
from tests.support.events import WILD, created, encoded, replace
from tests.support.histories import PROFILES, batches, history
from tests.support.simulator import Record, Simulation
from tests.support.states import decode

ORDER = (Stream.GROUPS, Stream.SUBSCRIPTIONS, Stream.TOPICS)
ROUTING = Routing({"p": 3}, 1)


def inventory_of(*values: tuple[Stream, bytes | None]) -> Inventory:
    """Return the inventory after these records, a second apart."""
    inventory = Inventory()
    for stream in ORDER:
        records = [(Place(0, at, 1_000 * at), value) for at, (of, value) in enumerate(values) if of is stream]
        inventory.feed(stream, records)
    return inventory


def holding_of(*values: tuple[Stream, bytes | None], now: int = 0) -> Holding:
    """Return the contents of the only parent."""
    (holding,) = inventory_of(*values).holdings(now).values()
    return holding


def request(**changes: Any) -> tuple[Stream, bytes]:
    return Stream.SUBSCRIPTIONS, encoded(replace("t", **changes))


def topic(**changes: Any) -> tuple[Stream, bytes]:
    return Stream.TOPICS, encoded(created(**changes))


def group(**changes: Any) -> tuple[Stream, bytes]:
    return Stream.GROUPS, encoded({**WILD, **changes})


def patterns(holding: Holding) -> list[str]:
    return [pattern for pattern, _ in holding.entries()]


@pytest.mark.parametrize("name", ["plain", "dialects", "selectors", "exclusive", "bound"])
@pytest.mark.parametrize("echoed", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_it_is_what_the_shards_of_a_job_hold(name: str, echoed: bool, seed: int) -> None:  # noqa: FBT001 - a case
    """With and without the records that the job writes back to its inputs."""
    random = Random(f"{name} {seed}")
    records = history(random, 150, PROFILES[name])
    job = Simulation(ROUTING)
    written = list(records)
    for batch in batches(random, records):
        todo: list[Record] = batch
        while todo:
            job._run_batch(todo, crash=False)
            todo, job.echoes = job.echoes, []
            written += todo
    inventory = Inventory()
    for stream in ORDER:
        inventory.feed(
            stream,
            [
                (Place(record.partition, record.offset, record.timestamp), record.value)
                for record in (written if echoed else records)
                if record.stream is stream
            ],
        )
    holdings = inventory.holdings(0)
    shards = {key: decode(data) for key, data in job.states.items() if key[0]}
    assert {parent for parent, _ in shards if shards[parent, _].topics or shards[parent, _].clients} == set(holdings)
    for parent, holding in holdings.items():
        own = {number: shard for (of, number), shard in shards.items() if of == parent}
        assert sorted(holding.topics) == sorted(name for shard in own.values() for name in shard.topics)
        assert holding.subscriptions.clients.keys() == {key for shard in own.values() for key in shard.clients}
        for number, shard in own.items():
            kept = [entry for entry in holding.entries() if ROUTING.may_touch(parent, entry[0], number, entry[1])]
            assert sorted(kept) == sorted(Holding({}, shard).entries())


def test_topics_come_and_go_by_events_and_by_ttl() -> None:
    events = [topic(liteTopic=name) for name in "abca"] + [topic(event="DELETED", liteTopic=name) for name in "bx"]
    assert list(holding_of(*events).topics) == ["a", "c"]
    first = topic(ttlMs=1_000)  # until 10,000, a step of deadlines
    assert inventory_of(first).holdings(9_999)["p"].topics.keys() == {"t"}
    assert inventory_of(first).holdings(10_000) == {}
    again = [(Place(0, 1, 9_000), encoded(created())), (Place(0, 2, 10_000), encoded(created(tags="red")))]
    for late, count in ((again[0], 0), (again[1], 1)):
        inventory = inventory_of(first)
        inventory.feed(Stream.TOPICS, [late])
        assert len(inventory.holdings(30_000)) == count


def test_the_largest_parent_comes_first() -> None:
    events = [topic(parentTopic=parent, liteTopic=name) for parent, name in ("az", "bx", "by", "cz")]
    assert list(inventory_of(*events, request(topic="d")).holdings(0)) == ["b", "a", "c", "d"]


def test_entries_of_a_literal_group_are_names_and_of_all_others_patterns() -> None:
    asks = request(liteTopicSet=["a*", "b__*"])
    assert patterns(holding_of(group(attributes={BIND_TOPIC: "p"}), asks)) == ["a*", "b__*"]
    assert patterns(holding_of(group(), asks)) == ["b__*"]
    assert patterns(holding_of(asks)) == ["b__*"]
    (shared,) = holding_of(group(), request(liteTopicSet=["$share/x/a/+"], dialect="mqtt")).entries()
    assert (shared[0], shared[1].dialect) == ("a/+", "mqtt")


def clients(*values: tuple[Stream, bytes | None]) -> dict[str, int]:
    return {name: len(found.subscriptions.clients) for name, found in inventory_of(*values).holdings(0).items()}


def test_clients_leave_everywhere_and_a_set_of_entries_is_taken_apart() -> None:
    leaves = request(action="COMPLETE_REMOVE", topic=...)
    assert clients(request(), request(topic="q"), request(topic="q", clientId="d"), leaves) == {"q": 1}
    entries = [replace("t", client=name) for name in "cd"]
    record = Stream.SUBSCRIPTIONS, json.dumps({"subscriptionSet": [*entries, {}]}).encode()
    assert clients(record) == {"p": 2}
    assert inventory_of(record).refused == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ((Stream.TOPICS, b"eu__created"), "topics, partition 0, record 1: the value is not JSON"),
        ((Stream.TOPICS, None), "topics, partition 0, record 1: the record has no value"),
        ((Stream.SUBSCRIPTIONS, b"[]"), "subscriptions, partition 0, record 1: the value must be a JSON object"),
        ((Stream.GROUPS, b"{}"), "groups, partition 0, record 1: group is missing"),
        (request(liteTopicSet=["a*", "b"]), "subscriptions, partition 0, record 1: left out: "),
    ],
)
def test_what_is_not_valid_is_counted_and_the_first_is_named(value: tuple[Stream, bytes | None], said: str) -> None:
    inventory = inventory_of(group(), value, (Stream.TOPICS, b"later"))
    assert inventory.refused == 2
    assert inventory.first_refused.startswith(said)


@pytest.mark.parametrize(("quotas", "least"), [([], 2_000), (["-1"], None), (["-1", "30", "7"], 7)])
def test_the_least_quota_is_that_of_a_group_with_clients(quotas: list[str], least: int | None) -> None:
    names = [f"g{number}" for number in range(len(quotas))] or ["unknown"]
    groups = [
        group(group=name, attributes={BIND_TOPIC: "p", QUOTA: quota})
        for name, quota in zip(names, quotas, strict=False)
    ]
    idle = group(group="idle", attributes={BIND_TOPIC: "p", QUOTA: "1"})
    assert holding_of(*groups, idle, *(request(group=name) for name in names)).least_quota == least
