"""The relation as the console keeps it: followed from the updates topic, within bounds of memory."""

from __future__ import annotations

import threading
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from sortedcontainers import SortedDict, SortedList

from streaming.client.follower import SubscriptionClient
from streaming.client.rows import Subscriber
from streaming.console.budget import Budget
from streaming.console.changes import Changes
from streaming.console.names import Level, SortedNames
from streaming.updates.op import Op

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streaming.client.relation import Change, Relation

T = TypeVar("T")

MAX_ROWS = 1_000_000
"""Default bound of the number of rows that are kept: some 350 MB."""


class ReaderState(NamedTuple):
    """State of the reader.

    Attributes:
        ready: all updates from before its start are read.
        rows: number of rows that are kept.
        topics: number of lite topics that have a row.
        subscribers: number of subscribers that have a row.
        left_out: number of ADDs that were not kept, because of the bound.
        malformed: number of records that are no updates.
        error: reason for which it has stopped; empty otherwise.
        changes: number of the last change.
        trouble: the last error of Kafka from which the reader recovers by itself; empty some time after that.
    """

    ready: bool
    rows: int
    topics: int
    subscribers: int
    left_out: int
    malformed: int
    error: str
    changes: int
    trouble: str


class Found(NamedTuple, Generic[T]):
    """A page of what a search has found.

    Attributes:
        items: what the page shows.
        total: number of all that was found.
        complete: False if the search ended early, because its work is bounded.
    """

    items: list[T]
    total: int
    complete: bool


class _ParentNames:
    """Names of the topics and subscribers of one parent."""

    def __init__(self) -> None:
        self.topics = SortedNames()
        self.subscribers: SortedList = SortedList()


class LiveRelation:
    """The relation and its last changes; safe in any number of threads.

    It keeps `max_rows` rows. New rows beyond are left out, and counted; they are missing from all answers until the
    console is started anew, with a higher bound or for fewer parents. Rows that are kept stay right meanwhile.

    Args:
        bootstrap_servers: Kafka brokers.
        topic: the updates topic.
        options: librdkafka options.
        max_rows: bound of the number of rows.
        parents: only the rows of these parents; all where it is empty.

    Raises:
        UpdatesUnreadable: an option is wrong.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        options: Mapping[str, Any] | None = None,
        max_rows: int = MAX_ROWS,
        parents: Collection[str] = (),
    ) -> None:
        self.changes = Changes()
        self.max_rows = max_rows
        self._only = frozenset(parents)
        self._lock = threading.Lock()
        self._names: SortedDict = SortedDict()
        self._rows = self._topics = self._subscribers = self._left_out = 0
        self._began = threading.Event()
        self._client = SubscriptionClient(
            bootstrap_servers, topic, options=options, on_change=self._note, admits=self._admits
        )
        self._began.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading."""
        self._client.close()

    @property
    def rows(self) -> Relation:
        """The rows."""
        return self._client.relation

    def wait_ready(self, timeout: float) -> None:
        """Wait until all updates are read.

        Raises:
            ClientError: they cannot be read, or not in time.
        """
        self._client.wait_ready(timeout)

    def health(self) -> ReaderState:
        """Return the state of the reader."""
        client = self._client
        with self._lock:
            counts = self._rows, self._topics, self._subscribers, self._left_out
        error = str(client.error or "")
        return ReaderState(client.ready, *counts, client.malformed, error, self.changes.last, client.trouble)

    def parents(self) -> dict[str, int]:
        """Return the number of topics of each parent, in the order of their names."""
        with self._lock:
            return {name: len(names.topics) for name, names in self._names.items()}

    def parents_like(self, contains: str, start: int, size: int) -> Found[tuple[str, int]]:
        """Return a page of the parents whose name contains a text, with the number of topics of each."""
        with self._lock:
            page = _page(self._names.keys(), contains, start, size)
            return page._replace(items=[(name, len(self._names[name].topics)) for name in page.items])

    def level(self, parent: str, prefix: str, separator: str, after: str, size: int) -> Level:
        """Return a page of one level of a parent's tree; see `SortedNames.level`."""
        with self._lock:
            names = self._names.get(parent)
            return names.topics.level(prefix, separator, after, size) if names else Level([], "")

    def topics(self, parent: str, prefix: str, after: str, size: int) -> tuple[list[str], int]:
        """Return a page of the topics with a beginning, and the number of all of them."""
        with self._lock:
            names = self._names.get(parent)
            return (names.topics.page(prefix, after, size), names.topics.count(prefix)) if names else ([], 0)

    def sample(self, parent: str, size: int) -> list[str]:
        """Return at most `size` topics of a parent, evenly spaced."""
        with self._lock:
            names = self._names.get(parent)
            return names.topics.sample(size) if names else []

    def exists(self, parent: str, lite_topic: str) -> bool:
        """Tell whether anybody receives a lite topic."""
        return self.rows.count_of_topic(parent, lite_topic) > 0

    def subscribers(self, parent: str, start: int, size: int, contains: str = "") -> Found[Subscriber]:
        """Return a page of the subscribers of a parent whose group or client contains a text."""
        with self._lock:
            names = self._names.get(parent)
            page = _page(names.subscribers if names else SortedList(), contains, start, size)
        return page._replace(items=[_subscriber(parent, key) for key in page.items])

    def parts(self, client: Subscriber, most: int | None = None) -> list[Subscriber]:
        """Return the subscribers of a client that have a row: all, or the first ones."""
        group, client_id = client.group, client.client_id
        with self._lock:
            names = self._names.get(client.parent)
            if names is None:
                return []
            found: list[Subscriber] = []
            for key in names.subscribers.irange((group, client_id, "")):
                if key[:2] != (group, client_id) or len(found) == most:
                    break
                found.append(_subscriber(client.parent, key))
        return found

    def _admits(self, subscriber: Subscriber) -> bool:
        """Tell whether a new row is kept; called by the client's thread only, as is `_note`."""
        if self._only and subscriber.parent not in self._only:
            return False
        if self._rows < self.max_rows:
            return True
        self._left_out += 1
        return False

    def _note(self, change: Change) -> None:
        """Keep the names in step with the rows."""
        self._began.wait()
        row, rows = change.row, self.rows
        parent, group, client, part = row.subscriber
        by_topic = rows.count_of_topic(parent, row.lite_topic)
        by_subscriber = rows.count_of_subscriber(row.subscriber)
        with self._lock:
            names = self._names.setdefault(parent, _ParentNames())
            key = (group, client, part or "")
            if change.op is Op.REMOVE:
                self._rows -= 1
                if not by_topic:
                    self._topics -= 1
                    names.topics.remove(row.lite_topic)
                if not by_subscriber:
                    self._subscribers -= 1
                    names.subscribers.discard(key)
                if not len(names.topics):
                    del self._names[parent]
            elif change.former is None:
                self._rows += 1
                if by_topic == 1:
                    self._topics += 1
                    names.topics.add(row.lite_topic)
                if by_subscriber == 1:
                    self._subscribers += 1
                    names.subscribers.add(key)
        self.changes.add(change, time.time_ns() // 1_000_000, live=self._client.ready)


def _page(names: Any, contains: str, start: int, size: int) -> Found[Any]:
    """Return a page of sorted names, or tuples of names, that contain a text."""
    if not contains:
        return Found(list(islice(names, start, start + size)), len(names), complete=True)
    budget = Budget()
    found = list(budget.search(names, contains))
    return Found(found[start : start + size], len(found), not budget.is_spent)


def _subscriber(parent: str, key: tuple[str, str, str]) -> Subscriber:
    group, client, part = key
    return Subscriber(parent, group, client, part or None)
