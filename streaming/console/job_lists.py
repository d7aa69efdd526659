"""Lists that the running job answers: groups, topics without receivers, and parents without rows."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from streaming.config import Settings
from streaming.console.budget import fitting, shortened
from streaming.console.listing import ListRequest, Search
from streaming.console.live import LiveRelation
from streaming.errors import InspectError
from streaming.inspect import GroupFacts, Inspector, Page
from streaming.worker.inquiry.questions import MAX_ITEMS

BASIS: Final = "Answered by the running job, from its live state."

UPDATES_BASIS: Final = (
    "Read from the updates topic, which contains only groups with receivers. The other columns come from the job."
)

_ANSWER_SECONDS: Final = 5.0
"""Timeout in seconds of the job's response."""

_FRESH_SECONDS: Final = 5.0
"""Time in seconds during which an answer about groups is used again, so readers of the page share a question."""

_KEPT: Final = 8
"""Maximum number of parents whose answers are kept."""

_SEARCH_SECONDS: Final = 3.0
"""Time in seconds after which a request asks for no further topics."""

_FOUND: Final = 100
"""Number of topics without receivers after which a request asks for no further topics."""

_PAGE: Final = 2_000
"""Number of topics per question, and about the maximum number of topics in a response."""

_FACTS: Final = ("mode", "exclusive", "quota", "selector", "clients", "boundTo", "event")


class JobLists:
    """Lists from the job of some topics in Kafka. Thread-safe.

    Args:
        open_inspector: opens an `Inspector`.
    """

    def __init__(self, open_inspector: Callable[[], AbstractContextManager[Any]]) -> None:
        self._open = open_inspector
        self._lock = threading.Lock()
        self._groups: dict[str, tuple[float, Page[GroupFacts] | InspectError]] = {}

    @classmethod
    def of(cls, settings: Settings) -> "JobLists":
        """Return the lists of the job with these settings."""
        return cls(partial(Inspector, settings, _ANSWER_SECONDS))

    def groups(self, parent: str) -> Page[GroupFacts]:
        """Return the groups of a parent, at most `MAX_ITEMS`, as of the last seconds.

        Raises:
            InspectError: the job does not answer.
        """
        with self._lock:
            at, found = self._groups.get(parent, (0.0, None))
            if found is None or time.monotonic() - at > _FRESH_SECONDS:
                found = self._asked_groups(parent)
                self._groups.pop(parent, None)
                self._groups[parent] = time.monotonic(), found
                for name in list(self._groups)[:-_KEPT]:
                    del self._groups[name]
        if isinstance(found, InspectError):
            raise found
        return found

    def _asked_groups(self, parent: str) -> Page[GroupFacts] | InspectError:
        try:
            with self._open() as inspector:
                found: Page[GroupFacts] = next(inspector.groups(parent, limit=MAX_ITEMS))
                return found
        except InspectError as error:
            return error

    def parents(self) -> list[str]:
        """Return the parents with a group or a client.

        Raises:
            InspectError: the job does not answer.
        """
        with self._open() as inspector:
            found: list[str] = inspector.parents()
            return found

    def unreceived(self, live: LiveRelation, parent: str, after: tuple[int, int], search: Search) -> dict[str, Any]:
        """Return topics without receivers, from a part of the job's topics.

        It ends after some seconds or topics: a long list takes several requests. `more` is the place of the next one.

        Args:
            live: rows of the updates.
            parent: the parent.
            after: shard and cursor; zeros for the first part.
            search: selection of topics.

        Raises:
            InspectError: the job does not answer.
        """
        gap = live.gap(parent)
        if gap:
            return {"error": f"Topics without receivers are not known: {gap}."}
        found: list[dict[str, Any]] = []
        searched, place, deadline = 0, after, time.monotonic() + _SEARCH_SECONDS
        more: tuple[int, int] | None = after
        with self._open() as inspector:
            total = inspector.topic_count(parent) if after == (0, 0) else None
            while more is not None and len(found) < _FOUND and time.monotonic() < deadline:
                page, more = inspector.topics_from(parent, *place, limit=_PAGE)
                place = more or place
                searched += len(page.items)
                found += (
                    {"topic": each.topic, "expires": each.deadline}
                    for each in page.items
                    if search.selects(each.topic) and not live.rows.count_of_topic(parent, each.topic)
                )
        return {"topics": found, "searched": searched, "names": total, "more": more and "{}:{}".format(*more)}


def by_job(lists: JobLists | None, ask: Callable[[JobLists], dict[str, Any]]) -> dict[str, Any]:
    """Return the answer of a job, or an error that the page shows in its place."""
    if lists is None:
        return {"error": "This console does not ask the job."}
    try:
        return ask(lists)
    except InspectError as error:
        return {"error": f"The job did not answer: {error}."}


def group_list(live: LiveRelation, lists: JobLists | None, parent: str, listing: ListRequest) -> dict[str, Any]:
    """Return a page of the groups of a parent: from the job, otherwise those with rows.

    Args:
        live: rows of the updates.
        lists: lists of the job; None to use only the updates.
        parent: the parent.
        listing: the page.
    """
    counts = live.groups(parent, MAX_ITEMS)
    answer: Page[GroupFacts] = Page((), None, 0)
    basis = UPDATES_BASIS
    if lists is not None:
        try:
            answer, basis = lists.groups(parent), BASIS
        except InspectError as error:
            basis = f"{basis} The job did not answer: {error}."
    policies = {each.group: _policy(each) for each in answer.items}
    rows = [
        {"group": name, "subscribers": counts.get(name, 0), **policies.get(name, dict.fromkeys(_FACTS))}
        for name in sorted({*counts, *policies})
    ]
    start, size = listing.span
    found = listing.page(rows[start : start + size], len(rows), lambda group: (group["group"],), _COLUMNS)
    is_cut = answer.cursor is not None or len(counts) == MAX_ITEMS
    shown = fitting(found.items, lambda group: sum(len(str(value)) for value in group.values()))
    return {"groups": shown, **found.facts, "names": None if is_cut else found.names, "basis": basis}


def _policy(group: GroupFacts) -> dict[str, Any]:
    """Return the fields of a group that come from the job; a negative quota is None."""
    selector = "" if group.selector is None else f"{group.selector[0]} {shortened(group.selector[1])}"
    quota = None if group.quota < 0 else group.quota
    place = None if group.place is None else str(group.place)
    values = (group.mode, group.exclusive, quota, selector, group.clients, group.bound_to, place)
    return dict(zip(_FACTS, values, strict=True))


def _column(name: str) -> Callable[[Mapping[str, Any]], tuple[bool, Any]]:
    return lambda group: (group[name] is None, group[name])


GROUP_COLUMNS: Final = ("group", "mode", "exclusive", "quota", "selector", "clients", "subscribers")
"""Columns by which groups are sorted. No quota counts as more than any number."""

_COLUMNS: Final = {name: _column(name) for name in GROUP_COLUMNS}
