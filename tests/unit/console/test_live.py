"""The relation that the console keeps."""

from collections import defaultdict
from random import Random

import pytest

from streaming.client import Subscriber
from streaming.console import listing as module
from streaming.console.budget import Budget
from streaming.console.listing import ListRequest, Search
from streaming.console.live import LiveRelation
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add, gone, remove


def test_names_are_in_step_with_the_rows(broker: Simulated) -> None:
    """After random updates, names and counts are those of the rows that are left."""
    random = Random(7)
    with LiveRelation(broker.address, TOPIC) as live:
        records = []
        for _ in range(600):
            topic, client = f"t{random.randrange(12)}", f"c{random.randrange(6)}"
            parent, part = random.choice("pq"), random.choice([None, "share:s"])
            builder = random.choice([add, add, remove, gone])
            records.append(builder(topic, client=client, parent=parent, part=part))
        records.append(add("last", parent="r"))
        broker.write(*records, partition=0)
        assert eventually(lambda: live.rows.count_of_topic("r", "last") > 0)
        rows = live.rows.rows()
        topics: dict[str, set[str]] = defaultdict(set)
        subscribers: dict[str, set[Subscriber]] = defaultdict(set)
        for row in rows:
            topics[row.parent].add(row.lite_topic)
            subscribers[row.parent].add(row.subscriber)
        assert live.parents(listing(0, 9)).items == [(parent, len(names)) for parent, names in sorted(topics.items())]
        for parent, names in topics.items():
            with live.names(parent) as kept:
                assert list(kept.topics) == sorted(names)
            assert set(live.subscribers(parent, listing(0, 100)).items) == subscribers[parent]
        health = live.health()
        assert health.rows == len(rows) == len(live.rows)
        assert health.topics == sum(map(len, topics.values()))
        assert health.subscribers == sum(map(len, subscribers.values()))


def test_rows_beyond_the_bound_are_left_out_and_counted(broker: Simulated) -> None:
    broker.write(*(add(f"t{number}") for number in range(10)), add("t", parent="other"), partition=0)
    with LiveRelation(broker.address, TOPIC, max_rows=4, parents=["p"]) as live:
        live.wait_ready(60)
        assert live.parents(listing(0, 9)).items == [("p", 4)]
        assert live.health()[1:5] == (4, 4, 1, 6)
        with live.names("p") as names:
            assert list(names.topics) == ["t0", "t1", "t2", "t3"]
        broker.write(add("t0"), remove("t1"), add("new"), add("newer"), partition=0)
        assert eventually(lambda: live.health().left_out == 7)
        with live.names("p") as names:
            assert list(names.topics) == ["new", "t0", "t2", "t3"]


def test_a_broker_that_does_not_answer_is_told() -> None:
    with LiveRelation("127.0.0.1:1", TOPIC) as live:
        assert eventually(lambda: "127.0.0.1:1" in live.health().trouble)
        assert not live.health().ready
        assert live.health().error == ""


def test_subscribers_are_found_by_client_and_by_a_part_of_their_names(live: LiveRelation) -> None:
    part = Subscriber("sensors", "hot", "c3", "share:s")
    for client, parts in ((part._replace(part=None), [part]), (part._replace(client_id="c"), [])):
        assert live.parts(client) == parts
    assert live.parts(Subscriber("nobody", "hot", "c3")) == []
    c1 = Subscriber("orders", "billing", "c1")
    assert live.subscribers("orders", listing(0, 10, "bill")) == ([c1], 1, 2, 2)
    assert live.subscribers("orders", listing(1, 10)) == ([c1], 2, 2, 2)


@pytest.mark.parametrize(("how", "text"), [("contains", "s__a"), ("lite", "*__acme__**"), ("begins", "us")])
def test_a_search_looks_at_a_bounded_number_of_names(
    live: LiveRelation, monkeypatch: pytest.MonkeyPatch, how: str, text: str
) -> None:
    """And returns that number."""
    found = live.topics("orders", listing(0, 10, text, how))
    assert found.items[-1] == "us__acme__created"
    assert found.searched == found.names
    monkeypatch.setattr(Budget, "__init__", lambda self: self.__dict__.update(left=0, is_spent=False))
    assert live.topics("orders", listing(0, 10, text, how)) == ([], 0, 0, found.names)
    assert live.subscribers("orders", listing(0, 10, "c")) == ([], 0, 0, 2)
    assert live.parents(listing(0, 10, "s")) == ([], 0, 0, 2)
    assert live.parents(listing(1, 10)) == ([("sensors", 1)], 2, 2, 2)


def test_a_list_is_sorted_up_to_a_bounded_length(live: LiveRelation, monkeypatch: pytest.MonkeyPatch) -> None:
    by_receivers = ListRequest(0, 1, Search(), "receivers", descending=True)
    assert live.topics("orders", by_receivers) == (["eu__acme__created"], 3, 3, 3)
    last = by_receivers._replace(start=2, descending=False)
    assert live.topics("orders", last).items == ["eu__acme__created"]
    monkeypatch.setattr(module, "SORTED", 2)
    assert live.topics("orders", by_receivers._replace(descending=False)) == (["eu__globex__created"], 3, 2, 3)
    found = live.topics("orders", ListRequest(0, 9, Search("e"), "topic", descending=True))
    assert found == (["eu__globex__created", "eu__acme__created"], 2, 2, 3)


def listing(start: int, size: int, text: str = "", how: str = "contains") -> ListRequest:
    return ListRequest(start, size, Search(text, how))
