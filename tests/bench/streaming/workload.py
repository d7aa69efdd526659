"""Parents with patterns, of which about two match each new topic."""

from collections import Counter
from collections.abc import Iterator
from random import Random

from matcher import PatternIndex
from tests.support import events
from tests.support.events import Event

GROUP = "group-{parent}"
CLIENT = "client{number:02}"
REGIONS = 20


class Workload:
    """Subscriptions of all parents, and as many new topics as wanted.

    A third of the patterns begin with a wildcard, twenty end with one for all segments, the others name two of three
    segments.

    Args:
        parents: how many.
        patterns: of each parent; at least 100.
        quota: how many topics a client may hold; by default more than it does after two dozen bursts, and less than
            there are topics, so that they have to be counted.
    """

    def __init__(self, parents: int = 64, patterns: int = 100, quota: int = 10_000, seed: int = 1) -> None:
        self._random = Random(seed)
        self._quota = quota
        self._clients = patterns // 5
        self._tenants = max(40, patterns // 3)
        self.parents = [f"parent{number:02}" for number in range(parents)]
        self.made: list[tuple[str, str]] = []
        self.held: Counter[tuple[str, str]] = Counter()
        self.patterns = {parent: self._patterns(patterns) for parent in self.parents}
        self._indexes = {parent: self._index(patterns) for parent, patterns in self.patterns.items()}

    def group_events(self) -> Iterator[Event]:
        """A wildcard group for each parent."""
        for parent in self.parents:
            yield events.wildcard(group=GROUP.format(parent=parent), parent=parent, quota=self._quota)

    def requests(self) -> Iterator[Event]:
        """The patterns of each parent, spread over its clients."""
        for parent, patterns in self.patterns.items():
            for client in range(self._clients):
                names = {"client": CLIENT.format(number=client), "group": GROUP.format(parent=parent), "parent": parent}
                yield events.replace(*patterns[client :: self._clients], **names, version=1)

    def topics(self, count: int) -> list[tuple[str, str]]:
        """New topics, over the parents in turn."""
        start = len(self.made)
        for number in range(start, start + count):
            parent = self.parents[number % len(self.parents)]
            region, tenant = f"region{self._random.randrange(REGIONS):02}", self.tenant()
            self.made.append((parent, f"{region}__{tenant}__session{number + 1:08}"))
            self.held[parent, tenant] += 1
        return self.made[start:]

    def tenant(self) -> str:
        """One of the second segments; `held` says how many topics have it."""
        return f"tenant{self._random.randrange(self._tenants):02}"

    def subscribers(self, parent: str, topic: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for pattern, client in self._indexes[parent].match_patterns(topic):
            found.setdefault(client, []).append(pattern)
        return found

    def _patterns(self, count: int) -> list[str]:
        tenants = self._random.sample(range(self._tenants), count // 3)
        found = {f"region{region:02}__**" for region in range(REGIONS)}
        found |= {f"*__tenant{tenant:02}__*" for tenant in tenants}
        while len(found) < count:
            found.add(f"region{self._random.randrange(REGIONS):02}__{self.tenant()}__*")
        return sorted(found)

    def _index(self, patterns: list[str]) -> PatternIndex[str]:
        index: PatternIndex[str] = PatternIndex()
        for number, pattern in enumerate(patterns):
            index.add(pattern, CLIENT.format(number=number % self._clients))
        return index
