"""64 parents with 100 patterns each; each new topic is matched by about two of them."""

from collections.abc import Iterator
from random import Random
from typing import Any

from matcher import PatternIndex
from streaming.events import BIND_TOPIC, WILDCARD

PARENTS = [f"parent{number:02}" for number in range(64)]
GROUP = "group-{parent}"
CLIENTS = 20
PATTERNS = 100
REGIONS, TENANTS = 20, 40


class Workload:
    """Subscriptions of all parents, and as many new topics as wanted."""

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(seed)
        self._made = 0
        self.patterns = {parent: self._patterns() for parent in PARENTS}
        self._indexes = {parent: self._index(patterns) for parent, patterns in self.patterns.items()}

    def group_events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """A wildcard group for each parent, by its key."""
        for parent in PARENTS:
            group = GROUP.format(parent=parent)
            yield group, {"group": group, "attributes": {BIND_TOPIC: parent, WILDCARD: "true"}}

    def requests(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The patterns of each parent, spread over its clients, by group."""
        for parent, patterns in self.patterns.items():
            group = GROUP.format(parent=parent)
            for client in range(CLIENTS):
                yield (
                    group,
                    {
                        "action": "COMPLETE_ADD",
                        "clientId": f"client{client:02}",
                        "group": group,
                        "topic": parent,
                        "liteTopicSet": patterns[client::CLIENTS],
                        "version": 1,
                    },
                )

    def topics(self, count: int) -> list[tuple[str, str]]:
        """New topics, over the parents in turn."""
        found = []
        for _ in range(count):
            parent = PARENTS[self._made % len(PARENTS)]
            self._made += 1
            region, tenant = self._random.randrange(REGIONS), self._random.randrange(TENANTS)
            found.append((parent, f"region{region:02}__tenant{tenant:02}__session{self._made:08}"))
        return found

    def receivers(self, parent: str, topic: str) -> int:
        """How many clients receive a topic."""
        return len(set(self._indexes[parent].match(topic)))

    def _patterns(self) -> list[str]:
        random = self._random
        found: set[str] = {f"region{region:02}__**" for region in range(REGIONS)}
        while len(found) < REGIONS + 30:
            found.add(f"*__tenant{random.randrange(TENANTS):02}__*")
        while len(found) < PATTERNS:
            found.add(f"region{random.randrange(REGIONS):02}__tenant{random.randrange(TENANTS):02}__*")
        return sorted(found)

    @staticmethod
    def _index(patterns: list[str]) -> PatternIndex[int]:
        index: PatternIndex[int] = PatternIndex()
        for number, pattern in enumerate(patterns):
            index.add(pattern, number % CLIENTS)
        return index
