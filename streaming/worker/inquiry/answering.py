"""Answers to questions about the state of one key, as Kafka records."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson

from streaming.coordinator import COORDINATOR, CoordinatorState, bucket_of
from streaming.errors import Rejected
from streaming.records.model import Source, Stream
from streaming.records.record import KafkaRecord
from streaming.records.subscribers import ClientKey
from streaming.state import Shard, ShardState
from streaming.worker.inquiry import listing, planning
from streaming.worker.inquiry.listing import overview
from streaming.worker.inquiry.pair import explain_pair
from streaming.worker.inquiry.questions import ANSWERABLE_MS, Ask, Question, parse_question

MAX_ANSWER_BYTES: Final = 900_000
"""Largest answer in bytes; Kafka takes records of 1 MB."""

_STREAMS: Final = tuple(map(str, Stream))

_MAX_ID: Final = 256
"""Maximum length of the id of a question: the answer and its key repeat it."""

_MAX_ERROR: Final = 2_000
"""Maximum number of characters of the reason why there is no answer."""

WORK: Final = 64
"""Work of a key for questions in one micro-batch; a list is 1. Questions beyond it get an error."""

_WORK_OF: Final = {Ask.PLAN: 16, Ask.EXPLAIN: 4, Ask.TOPIC: 4}

_MAX_PAIRS: Final = 20
"""Number of groups for which a pair is explained, if the question names none."""


class Inquiry(NamedTuple):
    """A question as it came to a key, with unchecked fields."""

    source: Source
    fields: dict[str, Any]

    @property
    def has_id(self) -> bool:
        """True if the question has an id that an answer and its key can repeat."""
        name = self.fields.get("id")
        return isinstance(name, str) and len(name) <= _MAX_ID

    def is_stale(self, now: float) -> bool:
        """Return True if the question has expired at a time in seconds since the epoch."""
        return now * 1_000 - self.source.timestamp > ANSWERABLE_MS


class Asked(NamedTuple):
    """Settings on which answers depend; without a check, records have no bounds."""

    topics: tuple[str, ...]
    client_timeout_ms: int
    check: planning.Check | None = None


def answers(inquiries: Iterable[Inquiry], answer: Callable[[Inquiry], KafkaRecord]) -> Iterator[KafkaRecord]:
    """Answer the questions to a key in one micro-batch, in their order, as long as their work is at most `WORK`."""
    left = WORK
    for inquiry in inquiries:
        ask = inquiry.fields.get("ask")
        work = next((work for kind, work in _WORK_OF.items() if kind == ask), 1)
        left = max(-1, left - work)
        if left >= 0:
            yield answer(inquiry)
        else:
            name = inquiry.fields["id"]
            error = "more questions were asked within one micro-batch than are answered: ask again"
            yield KafkaRecord(name.encode(), orjson.dumps({"id": name, "error": error}))


def answer_shard(inquiry: Inquiry, state: ShardState, shard: Shard, settings: Asked) -> KafkaRecord:
    """Return the answer of a shard."""

    def answer(question: Question) -> Any:
        if question.ask in _LISTS:
            return _LISTS[question.ask](state, question)
        if question.ask is Ask.EXPLAIN:
            return _pairs(question, state, shard)
        if question.ask is Ask.TOPIC:
            return listing.topic(state, shard, question.topic or "")
        planned = planning.read(question, _topic(question, settings), inquiry.source.timestamp, settings.check)
        return planning.plan_shard(state, shard, planned, question)

    place = {"parent": shard.parent, "shard": shard.number, "shards": shard.count, "depth": shard.routing.depth}
    return _record(inquiry, place, settings, answer)


def answer_coordinator(inquiry: Inquiry, state: CoordinatorState, bucket: int, settings: Asked) -> KafkaRecord:
    """Return the answer of a bucket of the coordinator."""

    def answer(question: Question) -> Any:
        if question.ask is Ask.PLAN:
            planned = planning.read(question, _topic(question, settings), inquiry.source.timestamp, settings.check)
            groups = ((each, getattr(each[1], "group", None)) for each in planned.events)  # none of a topic
            own = [each for each, group in groups if group is not None and bucket_of(group) == bucket]
            return planning.plan_coordinator(state, planned._replace(events=own), settings.client_timeout_ms)
        return overview(state, question, settings.client_timeout_ms)

    return _record(inquiry, {"parent": COORDINATOR, "shard": bucket}, settings, answer)


def _record(inquiry: Inquiry, place: dict[str, Any], settings: Asked, answer: Callable[[Question], Any]) -> KafkaRecord:
    """Return the record with an answer, or with the reason why there is none: a question must not stop a job."""
    name = inquiry.fields["id"]
    head = {"id": name, **place, "topics": dict(zip(_STREAMS, settings.topics, strict=True))}
    try:
        question = parse_question(inquiry.fields)
        value = orjson.dumps({**head, "answer": answer(question)})
        while len(value) > MAX_ANSWER_BYTES and question.limit > 1 and question.ask in _LISTS:
            question = replace(question, limit=max(1, question.limit // 4))
            value = orjson.dumps({**head, "answer": answer(question)})
        if len(value) > MAX_ANSWER_BYTES:
            reason = f"the answer has {len(value):,} bytes, more than a record takes: ask for less, such as one group"
            raise Rejected("value-too-large", reason)  # noqa: TRY301
    except Exception as error:  # noqa: BLE001 - see above
        said = (str(error) or type(error).__name__)[:_MAX_ERROR].encode(errors="backslashreplace").decode()
        value = orjson.dumps({**head, "error": said})
    return KafkaRecord(name.encode(), value)


_LISTS: Final[Mapping[Ask, Callable[[ShardState, Question], Any]]] = {
    Ask.TOPICS: listing.topics,
    Ask.CLIENTS: listing.clients,
    Ask.GROUPS: listing.groups,
    Ask.SUBSCRIPTIONS: listing.subscriptions,
}


def _pairs(question: Question, state: ShardState, shard: Shard) -> list[Any]:
    """Return the explanation for each group of the client; for one that the question names, in any case."""
    client, topic = question.client or "", question.topic or ""
    groups = [key.group for key in state.clients if key.client_id == client]
    wanted = sorted(groups)[:_MAX_PAIRS] if question.group is None else [question.group]
    return [explain_pair(state, shard, ClientKey(group, client), topic) for group in wanted]


def _topic(question: Question, settings: Asked) -> str:
    return dict(zip(_STREAMS, settings.topics, strict=True)).get(question.stream or "", "")
