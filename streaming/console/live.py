"""The relation of the console, read from the updates topic with limited memory, and its names."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any, NamedTuple, Self

from sortedcontainers import SortedDict, SortedList

from streaming.client.follower import SubscriptionClient
from streaming.client.relation import Change, Relation
from streaming.client.rows import Subscriber
from streaming.console.budget import MAX_CHARACTERS
from streaming.console.changes import Changes
from streaming.console.listing import Found, ListRequest
from streaming.printable import counted
from streaming.records.op import Op

MAX_ROWS = 1_000_000
"""Default maximum number of rows in memory, which take some 350 MB."""

_LAST = 0x10FFFF


class ReaderState(NamedTuple):
    """State of the reader.

    Attributes:
        ready: True if all updates from before the start are read.
        rows: number of rows.
        topics: number of lite topics with a row.
        subscribers: number of subscribers with a row.
        left_out: number of ADDs beyond the maximum number of rows.
        malformed: number of records that are not updates.
        error: reason why the reader has stopped; empty otherwise.
        changes: number of the last change.
        trouble: the last transient error of Kafka; empty some time after recovery.
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


class Branch(NamedTuple):
    """A topic, or all topics with a common prefix.

    Attributes:
        text: the segment.
        prefix: prefix of the names, with the separator; empty for a topic.
        topic: name of the topic; empty for a branch.
        topics: number of topics.
    """

    text: str
    prefix: str
    topic: str
    topics: int


class Level(NamedTuple):
    """A page of a level of the tree.

    Attributes:
        branches: branches and topics, sorted by name.
        more: `after` of the next page; empty on the last page.
    """

    branches: list[Branch]
    more: str


class ParentNames(NamedTuple):
    """Sorted names of the topics and subscribers of a parent. A subscriber is group, client and part."""

    topics: SortedList
    subscribers: SortedList


def count(names: SortedList, prefix: str) -> int:
    """Return the number of names with a prefix."""
    start, end = _range(names, prefix)
    return end - start


def page(names: SortedList, prefix: str, after: str, size: int) -> list[str]:
    """Return at most `size` names with a prefix, after the name `after` (empty: from the first name)."""
    start, end = _range(names, prefix)
    if after:
        start = max(start, names.bisect_right(after))
    return list(names.islice(start, min(end, start + size)))


def sample(names: SortedList, size: int) -> list[str]:
    """Return at most `size` names, evenly spaced."""
    found = min(size, len(names))
    return [names[at * len(names) // found] for at in range(found)]


def level(names: SortedList, prefix: str, separator: str, after: str, size: int) -> Level:
    """Return the branches and topics directly below a prefix, with two binary searches per branch.

    Args:
        names: names of topics.
        prefix: empty, or the prefix of a branch.
        separator: separator of segments.
        after: `more` of the previous page; empty for the first page.
        size: maximum number of branches and topics.
    """
    at, end = _range(names, prefix)
    if after:
        at = max(at, names.bisect_left(after))
    found: list[Branch] = []
    room = MAX_CHARACTERS
    while at < end:
        name = names[at]
        if len(found) == size or (found and room < len(name)):
            return Level(found, name)
        room -= len(name)
        cut = name.find(separator, len(prefix))
        if cut < 0:
            found.append(Branch(name[len(prefix) :], "", name, 1))
            at += 1
        else:
            below = name[: cut + len(separator)]
            behind = _end(names, below)
            found.append(Branch(name[len(prefix) : cut], below, "", behind - at))
            at = behind
    return Level(found, "")


def _range(names: SortedList, prefix: str) -> tuple[int, int]:
    return names.bisect_left(prefix), _end(names, prefix)


class LiveRelation:
    """The relation and its last changes. Thread-safe.

    It contains at most `max_rows` rows. New rows beyond that are counted but omitted from all responses, until the
    console is restarted with a higher maximum or for fewer parents. The other rows stay correct.

    Args:
        bootstrap_servers: Kafka brokers.
        topic: the updates topic.
        options: librdkafka options.
        max_rows: maximum number of rows.
        parents: parents whose rows are read; empty for all.

    Raises:
        UpdatesUnreadable: an option is invalid.
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
        self._client.close()

    @property
    def rows(self) -> Relation:
        """Rows of the relation."""
        return self._client.relation

    def wait_ready(self, timeout: float) -> None:
        """Wait until all updates are read.

        Raises:
            ClientError: the updates cannot be read, or not in time.
        """
        self._client.wait_ready(timeout)

    def health(self) -> ReaderState:
        """Return the state of the reader."""
        client, error = self._client, str(self._client.error or "")
        with self._lock:
            counts = self._rows, self._topics, self._subscribers, self._left_out
        return ReaderState(client.ready, *counts, client.malformed, error, self.changes.last, client.trouble)

    def gap(self, parent: str) -> str:
        """Return the reason why rows of a parent may be missing; empty if all are there."""
        if self._only and parent not in self._only:
            return "this console does not read this parent: add it with --parent"
        health = self.health()
        if not health.ready:
            return "the updates are being read"
        omitted = counted(health.left_out, "row is", "rows are")
        return f"{omitted} omitted: use a higher --max-rows" if health.left_out else ""

    @contextmanager
    def names(self, parent: str) -> Iterator[ParentNames]:
        """Yield the names of a parent, which do not change meanwhile."""
        with self._lock:
            yield self._names.get(parent) or ParentNames(SortedList(), SortedList())

    def parents(self, listing: ListRequest) -> Found[tuple[str, int]]:
        """Return a page of the parents, with their numbers of topics."""
        with self._lock:
            start, size = listing.span
            names = list(islice(self._names, start, start + size))
            page = listing.page(names, len(self._names), lambda name: (name,), {})
            return page._replace(items=[(name, len(self._names[name].topics)) for name in page.items])

    def topics(self, parent: str, listing: ListRequest) -> Found[str]:
        """Return a page of the topics of a parent."""
        start, size = listing.span
        with self.names(parent) as names:
            first, end = _range(names.topics, listing.search.prefix)
            found = list(names.topics.islice(first + start, min(end, first + start + size)))
        columns: dict[str, Callable[[str], Any]] = {
            "topic": str,
            "receivers": lambda topic: self.rows.count_of_topic(parent, topic),
        }
        return listing.page(found, end - first, lambda topic: (topic,), columns)

    def subscribers(self, parent: str, listing: ListRequest) -> Found[Subscriber]:
        """Return a page of the subscribers of a parent. A search is for groups and clients."""
        start, size = listing.span
        with self.names(parent) as names:
            keys, total = list(names.subscribers.islice(start, start + size)), len(names.subscribers)
        columns: dict[str, Callable[[Any], Any]] = {
            "client": itemgetter(1), "group": itemgetter(0),
            "topics": lambda key: self.rows.count_of_subscriber(_subscriber(parent, key)),
        }  # fmt: skip
        page = listing.page(keys, total, itemgetter(0, 1), columns)
        return page._replace(items=[_subscriber(parent, key) for key in page.items])

    def groups(self, parent: str, most: int) -> dict[str, int]:
        """Return the numbers of subscribers of the first `most` groups of a parent that have rows."""
        found: dict[str, int] = {}
        with self.names(parent) as names:
            at = 0
            while at < len(names.subscribers) and len(found) < most:
                group = names.subscribers[at][0]
                behind = names.subscribers.bisect_left((f"{group}\0",))
                found[group], at = behind - at, behind
        return found

    def parts(self, client: Subscriber, most: int | None = None) -> list[Subscriber]:
        """Return the subscribers of a client with a row: all, or the first `most`."""
        whole = client.group, client.client_id
        with self.names(client.parent) as names:
            keys = takewhile(lambda key: key[:2] == whole, names.subscribers.irange((*whole, "")))
            return [_subscriber(client.parent, key) for key in islice(keys, most)]

    def _admits(self, subscriber: Subscriber) -> bool:
        """Return True if a new row is kept. Only the client's thread calls this and `_note`."""
        if self._only and subscriber.parent not in self._only:
            return False
        if self._rows < self.max_rows:
            return True
        self._left_out += 1
        return False

    def _note(self, change: Change) -> None:
        self._began.wait()
        row, rows = change.row, self.rows
        parent, group, client, part = row.subscriber
        by_topic = rows.count_of_topic(parent, row.lite_topic)
        by_subscriber = rows.count_of_subscriber(row.subscriber)
        with self._lock:
            names = self._names.setdefault(parent, ParentNames(SortedList(), SortedList()))
            key = (group, client, part or "")
            if change.op is Op.REMOVE:
                self._rows -= 1
                if not by_topic:
                    self._topics -= 1
                    names.topics.discard(row.lite_topic)
                if not by_subscriber:
                    self._subscribers -= 1
                    names.subscribers.discard(key)
                if not names.topics:
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


def _subscriber(parent: str, key: tuple[str, str, str]) -> Subscriber:
    group, client, part = key
    return Subscriber(parent, group, client, part or None)


def _end(names: SortedList, prefix: str) -> int:
    """Return the position behind the names with a prefix."""
    head = prefix.rstrip(chr(_LAST))
    return names.bisect_left(head[:-1] + chr(ord(head[-1]) + 1)) if head else len(names)
