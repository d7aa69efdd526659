"""Spark's part of the job in plain Python: routes records, keeps state by key, and runs `work` on each micro-batch."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streaming import placement, worker
from streaming.events import BIND_TOPIC, Stream
from streaming.oracle import Effective
from streaming.routing import Routing
from streaming.worker import Kind, Output, Row, Settings

TOPICS = ("lite-group-events", "lite-subscription-events", "lite-topic-events")
NUMBER = {stream: number for number, stream in enumerate(worker.STREAMS)}


@dataclass(frozen=True)
class Record:
    """A record of an input stream."""

    stream: Stream
    value: bytes | None
    partition: int = 0
    offset: int = 0
    timestamp: int = 0


Routed = tuple[str, int, int, bytes | None]


def routes(record: Record, routing: Routing) -> list[Routed]:  # noqa: PLR0911 - a table of cases
    """What `streaming.job.route` computes in the JVM: (parent, shard, entry, payload)."""
    home = [(placement.HOME, placement.UNREADABLE, 0, record.value)]
    try:
        value = json.loads(record.value or b"")
    except ValueError:
        return home
    if record.stream is Stream.TOPICS:
        if not isinstance(value, dict):
            return home
        parent, topic = value.get("parentTopic"), value.get("liteTopic")
        if value.get("lmqName"):
            _, _, rest = str(value["lmqName"]).partition("$")
            lmq_parent, _, lmq_topic = rest.partition("$")
            parent, topic = parent or lmq_parent, topic or lmq_topic
        if not isinstance(parent, str):
            return home
        return [(parent, routing.shard_of(parent, topic or ""), 0, record.value)]
    if record.stream is Stream.SUBSCRIPTIONS:
        if not isinstance(value, dict):
            return home
        entries = value.get("subscriptionSet", None)
        found: list[Routed] = []
        texts = [json.dumps(entry) for entry in entries] if isinstance(entries, list) and entries else [None]
        for position, text in enumerate(texts):
            entry = json.loads(text) if text is not None else value
            payload = text.encode() if text is not None else record.value
            parent = entry.get("topic") if isinstance(entry, dict) else None
            shards = range(routing.shard_count(parent)) if isinstance(parent, str) and parent else [0]
            found += [
                (parent if isinstance(parent, str) else placement.HOME, shard, position, payload) for shard in shards
            ]
        return found
    attributes = value.get("attributes") if isinstance(value, dict) else None
    group = value.get("group") if isinstance(value, dict) else None
    parent = (attributes or {}).get(BIND_TOPIC) or value.get("parentTopic") if isinstance(attributes, dict) else None
    bucket = placement.bucket_of(group) if isinstance(group, str) else placement.UNREADABLE
    found = [(placement.HOME, bucket, 0, record.value)]
    if isinstance(parent, str) and parent:
        found += [(parent, shard, 0, record.value) for shard in range(routing.shard_count(parent))]
    return found


def rows_of(output: Output) -> list[tuple[Any, ...]]:
    """Output rows without their order, which only counts between a removal and its tombstone."""
    return sorted(zip(output.kinds, output.keys, output.payloads, output.counts, strict=True), key=repr)


@dataclass
class Simulation:
    """A job without Spark and Kafka: state by key, and all output rows so far."""

    routing: Routing = field(default_factory=Routing)
    inner_multi: bool = False
    states: dict[tuple[str, int], bytes] = field(default_factory=dict)
    relation: set[Effective] = field(default_factory=set)
    updates: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    echoes: list[Record] = field(default_factory=list)
    offset: int = 1_000_000

    def run(self, records: Iterable[Record], *, crash: bool = False) -> None:
        """One micro-batch, then further ones for what the job wrote back to itself.

        With `crash` the batch is computed once more from the same state, as after a failed commit, and must repeat
        its records to the byte.
        """
        batch: Sequence[Record] = list(records)
        while batch:
            self._run_batch(batch, crash=crash)
            batch, self.echoes = self.echoes, []

    def _run_batch(self, records: Sequence[Record], *, crash: bool) -> None:
        rows: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for record in records:
            for parent, shard, entry, payload in routes(record, self.routing):
                row = Row(NUMBER[record.stream], record.partition, record.offset, entry, 0, payload)
                rows[parent, shard].append(row)
        settings = Settings(TOPICS, self.routing, self.inner_multi)
        for key, batch in rows.items():
            former = self.states.get(key)
            state, output = worker.work(*key, batch, former, settings)
            if crash:
                again, repeated = worker.work(*key, list(reversed(batch)), former, settings)
                assert again == state
                assert rows_of(repeated) == rows_of(output)
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
            self._fold(output)

    def _fold(self, output: Output) -> None:
        for kind, key, value, count in zip(output.kinds, output.keys, output.payloads, output.counts, strict=True):
            if kind.startswith(Kind.IGNORED):
                self.ignored[kind.removeprefix(Kind.IGNORED)] += count
            elif kind == Kind.DEAD_LETTER:
                self.dead_letters.append(json.loads(value or b""))
            elif kind == Kind.GROUP_EVENT:
                self.offset += 1
                self.echoes.append(Record(Stream.GROUPS, value, 1, self.offset))
            elif kind == Kind.TOMBSTONE:
                assert value is None
                assert Effective(*json.loads(key or b"")) not in self.relation
            else:
                self._update(Effective(*json.loads(key or b"")), json.loads(value or b""))

    def _update(self, element: Effective, update: dict[str, Any]) -> None:
        """Every update is a change: nothing is added twice, nothing removed that is not there."""
        named = Effective(update["parentTopic"], update["group"], update["clientId"], update["liteTopic"])
        assert named == element
        self.updates.append(update)
        if update["op"] == "ADD":
            assert element not in self.relation, f"added twice: {element}"
            self.relation.add(element)
        else:
            assert element in self.relation, f"removed but not there: {element}"
            self.relation.remove(element)
