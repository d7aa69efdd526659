"""Messages as a RocketMQ broker stores them, and what they tell about lite topics.

Source: `org.apache.rocketmq.common.message.MessageDecoder` and `MessageConst` of RocketMQ 5.5.
"""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

LITE_TOPIC = "__LITE_TOPIC"
"""Property that names the lite topic of a message."""

PLACE = "INNER_MULTI_QUEUE_OFFSET"
"""Property with the number that a message has in its lite topic; the first one has 0."""

_MAGIC = 0xDAA320A7
_MAGIC_WIDE = 0xDAA320AB
"""Mark of a message with two bytes for the length of its topic's name."""

_HEAD = struct.Struct(">IIiiiqqiq")
"""Size, magic, checksum, queue, flag, offset in the queue, offset in the log, system flag, time of birth."""

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
"""Properties that RocketMQ itself sets, as all whose names begin with two underscores."""


class Damaged(Exception):
    """Bytes are no stored messages."""


class Message(NamedTuple):
    """A message of a lite topic.

    Attributes:
        topic: its lite topic.
        is_first: True for the first message of the topic's life: its birth.
        stored_ms: time at which the broker has stored it.
        tags: its tag.
        properties: properties that the producer has set.
    """

    topic: str
    is_first: bool
    stored_ms: int
    tags: str | None
    properties: Mapping[str, str]


def decode(body: bytes) -> Iterator[Message]:
    """Yield the messages of an answer to a pull that belong to a lite topic, without their bodies.

    Raises:
        Damaged: the bytes are no messages.
    """
    start = 0
    try:
        while start < len(body):
            size, stored_ms, properties = _message(body, start)
            if LITE_TOPIC in properties:
                yield Message(
                    properties[LITE_TOPIC],
                    properties.get(PLACE) == "0",
                    stored_ms,
                    properties.get("TAGS") or None,
                    {k: v for k, v in properties.items() if k not in _SYSTEM and not k.startswith("__")},
                )
            start += size
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise Damaged(f"a message cannot be decoded: {error}") from None


def _message(body: bytes, start: int) -> tuple[int, int, dict[str, str]]:
    """Return size, time of storage and properties of the message that starts there."""
    size, magic, _, _, _, _, _, flag, _ = _HEAD.unpack_from(body, start)
    if magic not in {_MAGIC, _MAGIC_WIDE} or start + size > len(body):
        raise Damaged(f"no message begins at byte {start}")
    place = start + _HEAD.size + (20 if flag & _BORN_V6 else 8)
    (stored_ms,) = struct.unpack_from(">q", body, place)
    place += 8 + (20 if flag & _STORED_V6 else 8) + 12  # deliveries and the offset of a transaction
    (body_size,) = struct.unpack_from(">i", body, place)
    place += 4 + body_size
    if magic == _MAGIC_WIDE:
        place += 2 + int.from_bytes(body[place : place + 2])
    else:
        place += 1 + body[place]
    (properties_size,) = struct.unpack_from(">h", body, place)
    text = body[place + 2 : place + 2 + properties_size].decode()
    pairs = (pair.partition("\x01") for pair in text.split("\x02") if pair)
    return size, stored_ms, {name: value for name, _, value in pairs}
