"""Answers of a job to a console on a simulated broker, which has none."""

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from streaming.inspect import EventPlace, GroupFacts, Page, TopicFacts
from tests.console.rows import HOSTILE

GROUPS = (
    GroupFacts("audit", {}, "wildcard", exclusive=False, quota=-1, clients=1),
    GroupFacts("billing", {"lite.sub.wildcard": "true"}, "wildcard", exclusive=True, quota=2_000, clients=3,
               selector=("SQL92", "region = 'eu'"), place=EventPlace("lite-group-events", 0, 7)),
    GroupFacts("night-shift", {}, "literal", exclusive=False, quota=500, clients=41, bound_to="sensors"),
)  # fmt: skip


class FakeJob:
    """A job with some groups, and with two shards whose topics have no receivers in part.

    Attributes:
        born: further topics of the first shard.
    """

    born: ClassVar[list[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""

    def groups(self, parent: str, *, limit: int) -> Iterator[Page[GroupFacts]]:
        """Yield the groups of orders."""
        yield Page(GROUPS[:limit] if parent == "orders" else (), None, len(GROUPS))

    def parents(self) -> list[str]:
        """Return a parent with rows, and one without."""
        return ["idle", "orders"]

    def topic_count(self, _: str) -> int:
        """Return the number of topics in both shards."""
        return 123

    def topics_from(self, _: str, shard: int, cursor: int, *, limit: int) -> tuple[Page[TopicFacts], Any]:
        """Return the topics of a shard, and the place of the next one."""
        names = [f"ap__{'new' if number % 2 else 'old'}__{number:03}" for number in range(120)]
        found = [TopicFacts(name, deadline=1_764_000_000_000) for name in names] if shard else [
            TopicFacts("eu__acme__order__created"), TopicFacts("ap__acme__lost"), TopicFacts(HOSTILE),
            *map(TopicFacts, self.born)]  # fmt: skip
        assert (cursor, limit >= len(found)) == (0, True)
        return Page(found, None, len(found)), None if shard else (1, 0)
