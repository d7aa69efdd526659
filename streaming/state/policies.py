"""Policies and quotas of the groups of a shard, found when first asked and kept up to date."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from streaming.events.model import DEFAULT_QUOTA
from streaming.state.group import Group
from streaming.subscription.policy import GroupPolicy


class Policies:
    """Policies of some groups.

    Args:
        is_wanted: tells whether a policy is to be found here.
    """

    def __init__(self, is_wanted: Callable[[GroupPolicy], bool]) -> None:
        self._is_wanted = is_wanted
        self._found: dict[str, GroupPolicy] | None = None

    def of(self, names: Callable[[], Iterable[str]], policy_of: Callable[[str], GroupPolicy]) -> dict[str, GroupPolicy]:
        """Return them by group.

        Args:
            names: returns all groups, in case that nobody asked before.
            policy_of: the policy of a group.
        """
        if self._found is None:
            self._found = {}
            self.apply(names(), policy_of)
        return self._found

    def apply(self, names: Iterable[str], policy_of: Callable[[str], GroupPolicy]) -> None:
        """Follow changes of some groups."""
        if self._found is None:
            return
        for name in names:
            policy = policy_of(name)
            if self._is_wanted(policy):
                self._found[name] = policy
            else:
                self._found.pop(name, None)


class Quotas:
    """Quotas in force."""

    def __init__(self) -> None:
        self._counts: Counter[int] | None = None

    def of(self, groups: Mapping[str, Group]) -> Collection[int]:
        """Return them; `groups` are all groups, in case that nobody asked before."""
        if self._counts is None:
            self._counts = Counter([DEFAULT_QUOTA, *(group.quota for group in groups.values())])
        return self._counts.keys()

    def apply(self, changes: Mapping[str, Group | None], groups: Mapping[str, Group]) -> None:
        """Follow a micro-batch; `groups` are those before it."""
        if self._counts is None:
            return
        for name, later in changes.items():
            for group, step in ((groups.get(name), -1), (later, 1)):
                if group is not None:
                    self._counts[group.quota] += step
                    if not self._counts[group.quota]:
                        del self._counts[group.quota]
