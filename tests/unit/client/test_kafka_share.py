"""Which client of a group reads which partition."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.client.offsets import PartShare, holder, mark, owner
from streaming.kafka.reader import Partition

CLIENTS = st.frozensets(st.text(min_size=1, max_size=9), max_size=6)
COUNTS = st.integers(0, 12)


@pytest.mark.rule("partition-owner")
@given(CLIENTS, COUNTS)
def test_each_partition_is_read_by_exactly_one_client(clients: frozenset[str], count: int) -> None:
    gained = [PartShare(client).change("t", count, clients)[1] for client in clients]
    assert Counter(part for parts in gained for part in parts) == Counter(
        Partition("t", number) for number in range(count) if clients
    )


@pytest.mark.rule("partition-owner")
@given(CLIENTS.filter(bool), COUNTS)
def test_a_client_that_goes_moves_nothing_between_two_others(clients: frozenset[str], count: int) -> None:
    gone = min(clients)
    for part in (Partition("t", number) for number in range(count)):
        before, after = owner(part, clients), owner(part, clients - {gone})
        assert before in (gone, after)


@given(st.lists(st.tuples(CLIENTS, COUNTS), min_size=1))
def test_differences_add_up(steps: list[tuple[frozenset[str], int]]) -> None:
    """After any number of changes a client has what it would have if the last one had been the first."""
    share, held = PartShare("c"), set[Partition]()
    for clients, count in [(frozenset(), 0), *steps]:
        lost, gained = share.change("t", count, clients)
        assert lost <= held
        assert not gained & held
        held = held - lost | gained
    clients, count = steps[-1]
    assert held == PartShare("c").change("t", count, clients)[1]


def test_topics_of_one_partition_are_spread() -> None:
    clients = {"a", "b", "c", "d"}
    found = Counter(owner(Partition(f"orders.{number}", 0), clients) for number in range(1_000))
    assert all(200 <= found[client] <= 300 for client in clients)
    assert owner(Partition("t", 3), ["c"]) == "c"  # as the holder of a topic of an exclusive group
    assert owner(Partition("t", 3), []) is None


def test_topics_are_apart() -> None:
    share = PartShare("c")
    assert share.change("a", 1, {"c"})[1] == {Partition("a", 0)}
    assert share.change("b", 2, {"c"})[1] == {Partition("b", 0), Partition("b", 1)}
    assert share.change("a", 0, ()) == ({Partition("a", 0)}, set())
    assert share.change("b", 3, {"c"}) == (set(), {Partition("b", 2)})


@given(st.text(), st.text())
def test_a_mark_names_who_reads(client: str, other: str) -> None:
    """Metadata of others is no mark."""
    assert holder(mark(client, held=True)) == client
    assert holder(mark(client, held=False)) is None
    assert [holder(text) for text in (None, "", "someone else's")] == [None] * 3
    assert len({mark(client, held=True), mark(client, held=False), mark(other, held=True)}) == 2 + (client != other)
