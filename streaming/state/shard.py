"""Where a piece of the relation lives, and the rules that it follows."""

from dataclasses import dataclass, field
from functools import lru_cache

from matcher import InvalidPattern, validate
from streaming.events.model import Notation, check_name
from streaming.events.routing import Routing
from streaming.subscription.client import Mode
from streaming.subscription.interests import pattern_of
from streaming.subscription.requests import RequestRules, literal_problem


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a parent topic."""

    parent: str
    number: int = 0
    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False

    def rules(self, mode: Mode) -> RequestRules:
        """How requests are read in a group of that mode."""
        return RequestRules(mode, self._pattern_problem if mode is Mode.WILDCARD else literal_problem, self._relevant)

    def share(self, quota: int) -> int | None:
        """This shard's part of a client's quota; None for no limit.

        The parts add up to the quota, so that a client never holds more than that on all shards together.
        """
        if quota < 0:
            return None
        whole, rest = divmod(quota, self.routing.shard_count(self.parent))
        return whole + (self.number < rest)

    def _pattern_problem(self, entry: str, notation: Notation) -> str | None:
        return _pattern_problem(entry, notation, inner_multi=self.inner_multi)

    def _relevant(self, entry: str, notation: Notation) -> bool:
        return self.routing.may_touch(self.parent, pattern_of(entry, notation), self.number, notation)


@lru_cache(maxsize=65_536)
def _pattern_problem(entry: str, notation: Notation, *, inner_multi: bool) -> str | None:
    """Why a pattern is invalid; None when it is not."""
    problem = check_name("a pattern", entry)
    if problem is not None:
        return problem
    try:
        validate(
            pattern_of(entry, notation),
            dialect=notation.dialect,
            policy=notation.policy,
            allow_inner_multi=inner_multi and notation.dialect == "lite",
        )
    except InvalidPattern as error:
        return str(error)
    return None
