"""Brokers of a parent topic: the messages that they store, and the requests of the watcher.

Requests raise `Refused` if a server rejects them, `Unreachable` if it does not answer, and `Damaged` if its response
has invalid messages.

Source of the message format: `org.apache.rocketmq.common.message.MessageDecoder` and `MessageConst` of RocketMQ 5.5.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from streaming.rocketmq.remoting import SUCCESS, Link, Refused, RocketMQAccess, together

_LITE_TOPIC = "__LITE_TOPIC"
"""Property with the lite topic of a message."""

_PLACE = "INNER_MULTI_QUEUE_OFFSET"
"""Property with the offset of a message in its lite topic, from 0."""

_MAGIC = 0xDAA320A7
_MAGIC_WIDE = 0xDAA320AB
"""Magic number of a message whose topic length has two bytes."""

_HEAD = struct.Struct(">IIiiiqqiq")
"""Size, magic, checksum, queue, flag, queue offset, log offset, system flag, time of birth."""

_BORN_V6, _STORED_V6 = 1 << 4, 1 << 5

_SYSTEM = frozenset(
    "KEYS TAGS WAIT DELAY RETRY_TOPIC ORIGIN_GROUP REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET "  # noqa: SIM905
    "BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON "
    "UNIQ_KEY TRANS_OFFSET EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE "
    "CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_CHECK_TIMES INSTANCE_ID "
    "CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET "
    "1ST_POP_TIME PROPERTY_FORWARD_QUEUE_ID REDIRECT INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET "
    "TRACE_CONTEXT TIMER_DELAY_SEC TIMER_DELIVER_MS BORN_TIMESTAMP TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS "
    "TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_ROLL_LABEL TIMER_DELAY_LEVEL TIMER_DELAY_MS "
    "DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID _SYS_MSG_PRIORITY_".split()
)
"""Properties that RocketMQ itself sets, in addition to all names that start with two underscores."""

_PULL_MESSAGE = 11
_GET_ROUTE = 105
_GET_PARENT_INFO = 200075
_GET_LITE_TOPIC_INFO = 200076

_GROUP = "TOOLS_CONSUMER"
"""Consumer group of RocketMQ's own tools, which exists on every broker. No offsets are committed for it."""

_SUSPEND, _SUBSCRIPTION = 1 << 1, 1 << 2
_NOT_FOUND, _AT_ONCE, _OFFSET_MOVED = 19, 20, 21
_HOLD_MS = 15_000
"""Time in milliseconds for which a broker holds a pull request open until a topic is born."""

_BIRTHS = {"subscription": f"{_PLACE} = '0'", "expressionType": "SQL92"}
_ALL = {"subscription": "*", "expressionType": "TAG"}
_MESSAGES_A_PULL = 1_000
_MINUTE_MS = 60_000
_MAX_PROBES = 64
"""Maximum number of pending probes per connection."""


class Queue(NamedTuple):
    """A queue of a parent topic."""

    broker: str
    number: int


class Damaged(Exception):
    """The bytes are not stored messages."""


class Message(NamedTuple):
    """A message of a lite topic.

    Attributes:
        is_first: True for the first message of the topic's life: its birth.
        stored_ms: time at which the broker stored it.
        properties: properties that the producer set.
    """

    topic: str
    is_first: bool
    stored_ms: int
    tags: str | None
    properties: Mapping[str, str]


class Pulled(NamedTuple):
    """Messages of lite topics in a queue, the offset of the next pull, and the end offset of the queue."""

    messages: list[Message]
    next: int
    end: int


class ParentBroker(Link):
    """Connection to a broker of a parent topic."""

    def __init__(self, address: str, parent: str, access: RocketMQAccess) -> None:
        super().__init__(address, access)
        self._parent = parent
        self._selects_births = True

    async def pull(self, queue: int, offset: int, *, births: bool, hold: bool) -> Pulled:
        """Pull messages from a queue of the parent, which also contains all messages of its lite topics.

        With `births` the broker selects births, if it can. With `hold` it waits for a message if there is none.
        """
        selects = births and self._selects_births
        fields = {
            "consumerGroup": _GROUP,
            "topic": self._parent,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": _MESSAGES_A_PULL,
            "sysFlag": _SUBSCRIPTION | (_SUSPEND if hold else 0),
            "commitOffset": 0,
            "suspendTimeoutMillis": _HOLD_MS if hold else 0,
            "subVersion": 0,
            **(_BIRTHS if selects else _ALL),
        }
        answer = await self.ask(_PULL_MESSAGE, fields, seconds=_HOLD_MS / 1_000 + 10)
        if answer.code == 1 and selects and "nextBeginOffset" not in answer.fields:
            self._selects_births = False  # enablePropertyFilter is not set
            return await self.pull(queue, offset, births=births, hold=hold)
        if answer.code not in {SUCCESS, _NOT_FOUND, _AT_ONCE, _OFFSET_MOVED}:
            raise Refused(answer.code, answer.remark)
        messages = list(decode(answer.body)) if answer.code == SUCCESS else []
        return Pulled(messages, int(answer.fields["nextBeginOffset"]), int(answer.fields["maxOffset"]))

    async def probe(self, topics: Sequence[str]) -> dict[str, int]:
        """Probe lite topics; return the time of the last message of existing ones.

        Times are in milliseconds since the epoch.
        """
        found: dict[str, int] = {}
        remaining = iter(topics)

        async def work() -> None:
            for topic in remaining:
                answer = await self.ask(_GET_LITE_TOPIC_INFO, {"parentTopic": self._parent, "liteTopic": topic})
                offsets = answer.json()["topicOffset"]
                if offsets["maxOffset"] > 0:
                    found[topic] = offsets["lastUpdateTimestamp"]

        await together(work() for _ in range(min(_MAX_PROBES, len(topics))))
        return found

    async def parent_info(self) -> tuple[int, float]:
        """Return the parent's number of lite topics, and the milliseconds after which an unused topic expires."""
        found = (await self.ask(_GET_PARENT_INFO, {"topic": self._parent})).json()
        minutes = found["ttl"]
        return found["liteTopicCount"], minutes * _MINUTE_MS if minutes > 0 else math.inf


class Parent:
    """Brokers and queues of a parent topic, with the watcher's position in each queue.

    Attributes:
        brokers: brokers of the parent, by name.
        offsets: offset of the next message of each queue.
        lasts_ms: milliseconds after which an unused lite topic expires, by broker; only brokers that have answered.
    """

    def __init__(self, name_server: str, name: str, access: RocketMQAccess) -> None:
        self.brokers: dict[str, ParentBroker] = {}
        self.offsets: dict[Queue, int] = {}
        self.lasts_ms: dict[str, float] = {}
        self._names = Link(name_server, access)
        self._name, self._access = name, access

    async def find_brokers(self) -> None:
        """Update brokers and queues from the name server, and request the expiration time from new brokers."""
        addresses, queues = await route(self._names, self._name)
        for name, address in addresses.items():
            known = self.brokers.get(name)
            if known is None or known.address != address:
                self.brokers[name] = ParentBroker(address, self._name, self._access)
                if known is not None:
                    await known.close()
            if name not in self.lasts_ms:
                _, self.lasts_ms[name] = await self.brokers[name].parent_info()
        for queue in queues:
            if queue.broker in self.lasts_ms:
                self.offsets.setdefault(queue, 0)

    async def read(self, queue: Queue, births: dict[str, Message | None], *, births_only: bool) -> None:
        """Read a queue to its end.

        `births` receives the last birth of each topic; None for a topic with later messages only. With `births_only`
        topics are skipped whose birth is no longer in the queue.
        """
        offset = self.offsets[queue]
        while True:
            found = await self.brokers[queue.broker].pull(queue.number, offset, births=births_only, hold=False)
            for message in found.messages:
                if message.is_first:
                    known = births.get(message.topic)  # perhaps of a queue that is read at the same time
                    if known is None or known.stored_ms <= message.stored_ms:
                        births[message.topic] = message
                elif not births_only:
                    births.setdefault(message.topic, None)
            offset = found.next
            if offset >= found.end:
                break
        self.offsets[queue] = offset

    async def close(self) -> None:
        """Close all connections."""
        for link in (self._names, *self.brokers.values()):
            await link.close()


async def route(name_server: Link, parent: str) -> tuple[dict[str, str], list[Queue]]:
    """Return the masters' addresses by broker, and all queues of a parent topic."""
    found = (await name_server.ask(_GET_ROUTE, {"topic": parent, "acceptStandardJsonOnly": True})).json()
    addresses = {broker["brokerName"]: broker["brokerAddrs"] for broker in found["brokerDatas"]}
    masters = {name: of_brokers["0"] for name, of_brokers in addresses.items() if "0" in of_brokers}
    queues = found["queueDatas"]
    return masters, [Queue(each["brokerName"], number) for each in queues for number in range(each["readQueueNums"])]


def decode(body: bytes) -> Iterator[Message]:
    """Yield the messages of lite topics in a pull response, without their bodies."""
    start = 0
    try:
        while start < len(body):
            size, stored_ms, properties = _message(body, start)
            if _LITE_TOPIC in properties:
                yield Message(
                    properties[_LITE_TOPIC],
                    properties.get(_PLACE) == "0",
                    stored_ms,
                    properties.get("TAGS") or None,
                    {k: v for k, v in properties.items() if k not in _SYSTEM and not k.startswith("__")},
                )
            start += size
    except (struct.error, IndexError) as error:
        raise Damaged(f"a message cannot be decoded: {error}") from None


def _message(body: bytes, start: int) -> tuple[int, int, dict[str, str]]:
    size, magic, _, _, _, _, _, flag, _ = _HEAD.unpack_from(body, start)
    if magic not in {_MAGIC, _MAGIC_WIDE} or start + size > len(body):
        raise Damaged(f"no message at byte {start}")
    place = start + _HEAD.size + (20 if flag & _BORN_V6 else 8)
    (stored_ms,) = struct.unpack_from(">q", body, place)
    place += 8 + (20 if flag & _STORED_V6 else 8) + 12  # delivery count and transaction offset
    (body_size,) = struct.unpack_from(">i", body, place)
    place += 4 + body_size
    if magic == _MAGIC_WIDE:
        place += 2 + int.from_bytes(body[place : place + 2])
    else:
        place += 1 + body[place]
    (properties_size,) = struct.unpack_from(">h", body, place)
    # Like RocketMQ: the broker stores the properties of a batch unchecked.
    text = body[place + 2 : place + 2 + properties_size].decode(errors="replace")
    pairs = (pair.partition("\x01") for pair in text.split("\x02") if pair)
    return size, stored_ms, {name: value for name, _, value in pairs}
