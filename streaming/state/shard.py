"""Place of a shard in its parent topic, and its settings."""

from dataclasses import dataclass, field
from sys import getsizeof

from matcher import InvalidPattern, get_dialect, validate
from matcher.cache import BoundedCache
from streaming.records.model import Notation, check_name
from streaming.records.routing import Routing
from streaming.state.client import NOTHING, Interest, Mode, RequestRules, literal_problem
from streaming.state.group import Group
from streaming.state.interests import pattern_of

_PATTERN_CACHE_BYTES = 32 * 1024 * 1024
"""Memory of the patterns whose validity a process caches."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a parent topic.

    Attributes:
        parent: the parent topic.
        number: from 0 on.
        routing: how the lite topics of the parent are spread over its shards.
        inner_multi: `**` is allowed inside a pattern.
        cap_requests: requests beyond a quota are applied, and capped, on parents with one shard as well.
    """

    parent: str
    number: int = 0
    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False
    cap_requests: bool = False

    @property
    def is_first(self) -> bool:
        """True for one shard of each parent: the reporter of events seen by all shards."""
        return self.number == 0

    @property
    def count(self) -> int:
        """Number of shards of the parent."""
        return self.routing.shards.get(self.parent, 1)

    @property
    def refuses_requests(self) -> bool:
        """True if a request beyond the quota of its client is refused.

        No shard of several has all topics of the parent, so shards could decide differently.
        """
        return self.count == 1 and not self.cap_requests

    def rules(self, mode: Mode) -> RequestRules:
        """Return the rules for requests in a group of that mode."""
        problem = self._pattern_problem if mode is Mode.WILDCARD else literal_problem
        return RequestRules(mode, problem, self._relevant if self.count > 1 else None)

    def rules_by_mode(self) -> dict[Mode, RequestRules]:
        """Return the rules for requests under each mode."""
        return {mode: self.rules(mode) for mode in Mode}

    def share(self, quota: int) -> int | None:
        """Return this shard's share of a quota; None for no limit.

        The shares add up to the quota, so that a client never holds more on all shards together.
        """
        if quota < 0:
            return None
        whole, rest = divmod(quota, self.count)
        return whole + (self.number < rest)

    def client_share(self, group: Group, wanted: Interest) -> int | None:
        """Return the share of a client's quota here; None for no limit.

        A client that receives everything has no quota: the broker keeps no list for it.
        """
        return None if wanted.everything is not None or wanted == NOTHING else self.share(group.quota)

    def _pattern_problem(self, entry: str, notation: Notation) -> str | None:
        return _PATTERN_PROBLEMS[entry, notation, self.inner_multi]

    def _relevant(self, entry: str, notation: Notation) -> bool:
        return self.routing.may_touch(self.parent, pattern_of(entry, notation), self.number, notation)


def _pattern_problem(asked: tuple[str, Notation, bool]) -> str | None:
    """Return the reason why a pattern, with its notation and `inner_multi`, is invalid; None for a valid one."""
    entry, notation, inner_multi = asked
    problem = check_name("a pattern", entry)
    if problem is not None:
        return problem
    try:
        validate(
            entry,
            dialect=notation.dialect,
            policy=notation.policy,
            allow_inner_multi=inner_multi and get_dialect(notation.dialect).has_inner_multi,
        )
    except InvalidPattern as error:
        return str(error)
    return None


_PATTERN_PROBLEMS = BoundedCache(
    _pattern_problem, lambda asked, problem: getsizeof(asked[0]) + getsizeof(problem), _PATTERN_CACHE_BYTES
)
