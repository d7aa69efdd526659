"""64 parents with 100 patterns each; each new topic is matched by about two of them."""

from collections.abc import Iterator
from random import Random
from typing import Any

from matcher import PatternIndex
from streaming.events import BIND_TOPIC, WILDCARD

PARENTS = [f"parent{number:02}" for number in range(64)]
GROUP = "group-{parent}"
CLIENT = "client{number:02}"
CLIENTS = 20
PATTERNS = 100
REGIONS, TENANTS = 20, 40


class Workload:
    """Subscriptions of all parents, and as many new topics as wanted."""

    def __init__(self, seed: int = 1) -> None:
        self._random = Random(seed)
        self.made: list[tuple[str, str]] = []
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
                        "clientId": CLIENT.format(number=client),
                        "group": group,
                        "topic": parent,
                        "liteTopicSet": patterns[client::CLIENTS],
                        "version": 1,
                    },
                )

    def topics(self, count: int) -> list[tuple[str, str]]:
        """New topics, over the parents in turn."""
        start = len(self.made)
        for number in range(start, start + count):
            region, tenant = self._random.randrange(REGIONS), self._random.randrange(TENANTS)
            topic = f"region{region:02}__tenant{tenant:02}__session{number + 1:08}"
            self.made.append((PARENTS[number % len(PARENTS)], topic))
        return self.made[start:]

    def receivers(self, parent: str, topic: str) -> dict[str, list[str]]:
        """The clients that receive a topic, each with those of its patterns that match."""
        found: dict[str, list[str]] = {}
        for pattern, client in self._indexes[parent].match_patterns(topic):
            found.setdefault(client, []).append(pattern)
        return found

    def _patterns(self) -> list[str]:
        random = self._random
        found: set[str] = {f"region{region:02}__**" for region in range(REGIONS)}
        while len(found) < REGIONS + 30:
            found.add(f"*__tenant{random.randrange(TENANTS):02}__*")
        while len(found) < PATTERNS:
            found.add(f"region{random.randrange(REGIONS):02}__tenant{random.randrange(TENANTS):02}__*")
        return sorted(found)

    @staticmethod
    def _index(patterns: list[str]) -> PatternIndex[str]:
        index: PatternIndex[str] = PatternIndex()
        for number, pattern in enumerate(patterns):
            index.add(pattern, CLIENT.format(number=number % CLIENTS))
        return index
