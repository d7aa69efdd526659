"""Follower of new updates, with filters."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple, Self

import orjson
from confluent_kafka import Message

from matcher.dialects import get_dialect
from streaming.config import Settings
from streaming.kafka.options import for_librdkafka
from streaming.kafka.reader import Span, TopicReader
from streaming.records.op import Op
from streaming.worker.inquiry.model import EventPlace
from streaming.worker.inquiry.names import accepting


class Chosen(NamedTuple):
    """Selection of updates; None for any.

    The topic is a name or a pattern; of the source, the entry is ignored.
    """

    parent: str | None = None
    group: str | None = None
    client: str | None = None
    topic: str | None = None
    dialect: str = "lite"
    op: str | None = None
    source: EventPlace | None = None

    def predicate(self) -> Callable[[dict[str, Any]], bool]:
        """Return the predicate; raise `InvalidPattern` or `UnknownDialect`."""
        names = {"parentTopic": self.parent, "group": self.group, "clientId": self.client, "op": self.op}
        wanted = {field: name for field, name in names.items() if name is not None}
        is_chosen, source = accepting(self.topic, get_dialect(self.dialect).name), self.source

        def accepts(update: dict[str, Any]) -> bool:
            if any(update.get(field) != name for field, name in wanted.items()):
                return False
            if not is_chosen(str(update.get("liteTopic"))):
                return False
            place = update.get("source") or {}
            found = place.get("topic"), place.get("partition"), place.get("offset")
            return source is None or found == (source.stream, source.partition, source.offset)

        return accepts


class UpdatesFollower:
    """Follower of the updates topic, as a context manager. It commits no offsets and joins no group.

    Args:
        offset: first offset of each partition, or a negative distance from its end; None for its end.
        since: time in milliseconds since the epoch instead of the offset.
    """

    def __init__(self, settings: Settings, *, offset: int | None = None, since: int | None = None) -> None:
        self._topic = settings.updates
        servers, options = settings.bootstrap_servers, for_librdkafka(settings)
        with ExitStack() as stack:
            self._reader = stack.enter_context(TopicReader(servers, options, {"auto.offset.reset": "earliest"}))
            spans = self._reader.spans([self._topic])
            found = {} if since is None else self._reader.offsets_at(since, spans)
            self._open = stack.pop_all()
        self._starts = {
            partition: first_offset(span, offset if since is None else found[partition])
            for partition, span in spans.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def updates(self, chosen: Chosen, *, to_end: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the chosen updates, without tombstones and invalid records, without end or `to_end` of the topic."""
        accepts = chosen.predicate()
        for block in self._blocks(to_end=to_end):
            for message in block:
                try:
                    update = orjson.loads(message.value() or b"")
                except orjson.JSONDecodeError:
                    continue
                if _is_update(update) and accepts(update):
                    yield update

    def _blocks(self, *, to_end: bool) -> Iterator[list[Message]]:
        if to_end:
            ends = {partition: span.end for partition, span in self._reader.spans([self._topic]).items()}
            yield from self._reader.read({each: Span(start, ends[each]) for each, start in self._starts.items()})
            return
        self._reader.start(self._starts)
        while True:
            yield self._reader.poll(0.2)


def _is_update(value: Any) -> bool:
    """Return True if a value has the fields of an update; another topic may have been named."""
    return (
        isinstance(value, dict)
        and value.get("op") in tuple(Op)
        and all(isinstance(value.get(name, ""), str) for name in ("parentTopic", "group", "clientId", "liteTopic"))
        and isinstance(value.get("source", {}), dict)
        and all(isinstance(entry, str) for entry in value.get("patterns") or ())
    )


def first_offset(span: Span, offset: int | None) -> int:
    """Return the first offset to read, within the span."""
    if offset is None:
        return span.end
    return min(max(offset if offset >= 0 else span.end + offset, span.start), span.end)
