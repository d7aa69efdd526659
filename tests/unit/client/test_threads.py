"""One thread changes the relation while many read it: no answer shows half an update."""

import pytest

from streaming.client import Relation
from tests.support.threads import write_with_readers
from tests.support.update_records import add, gone, remove

ROUNDS = 60
TOPICS = [f"t{number}" for number in range(12)]


@pytest.mark.usefixtures("frequent_switches")
def test_many_threads_ask_while_one_changes() -> None:
    """Permanent rows are in every answer, each row at most once, and no question fails."""
    relation = Relation()
    for topic in TOPICS:
        relation.apply(*add(topic, client="stays"))

    def ask() -> None:
        for topic in TOPICS:
            clients = [row.client_id for row in relation.subscribers("p", topic)]
            assert "stays" in clients
            assert len(clients) == len(set(clients))
        assert relation.topics("p", "g", "stays") == set(TOPICS)
        assert relation.topics("p", "g", "comes") <= set(TOPICS)
        assert len(TOPICS) <= len(relation) <= len(TOPICS) * 3
        assert len(TOPICS) <= len(relation.rows()) <= len(TOPICS) * 3

    def change() -> None:
        for topic in TOPICS * ROUNDS:
            relation.apply(*add(topic, client="comes"))
            relation.apply(*add(topic, client="goes"))
            relation.apply(*remove(topic, client="comes"))
            relation.apply(*gone(topic, client="goes"))

    write_with_readers(change, ask)
    assert {row.client_id for row in relation.rows()} == {"stays"}
