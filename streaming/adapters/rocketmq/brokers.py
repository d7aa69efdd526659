"""Brokers as a watcher asks them: pulls, which bring births, and probes, which tell deaths."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from streaming.adapters.rocketmq.access import RocketMQAccess
from streaming.adapters.rocketmq.messages import PLACE, Message, decode
from streaming.adapters.rocketmq.remoting import SUCCESS, Link, Refused, loads
from streaming.adapters.rocketmq.together import together

_PULL_MESSAGE = 11
_GET_PARENT_INFO = 200075
_GET_LITE_TOPIC_INFO = 200076

_GROUP = "TOOLS_CONSUMER"
"""Consumer group of RocketMQ's own tools, which exists on every broker; no offsets are committed for it."""

_SUSPEND, _SUBSCRIPTION = 1 << 1, 1 << 2
_NOT_FOUND, _AT_ONCE, _OFFSET_MOVED = 19, 20, 21
_HOLD_MS = 15_000
"""Time in milliseconds for which a broker holds a pull back when there is no birth."""

_BIRTHS = {"subscription": f"{PLACE} = '0'", "expressionType": "SQL92"}
_ALL = {"subscription": "*", "expressionType": "TAG"}
_MESSAGES_A_PULL = 1_000
_MINUTE_MS = 60_000
_MAX_PROBES = 64
"""Number of probes under way on one connection."""


class Pulled(NamedTuple):
    """Answer to a pull.

    Attributes:
        messages: messages of lite topics.
        next: offset of the next pull.
        end: offset after the last message of the queue.
    """

    messages: list[Message]
    next: int
    end: int


class Probe(NamedTuple):
    """Answer to a probe of a lite topic.

    Attributes:
        is_alive: True if the topic exists on the broker.
        last_ms: time of its last message, in milliseconds since the epoch.
    """

    is_alive: bool
    last_ms: int


class ParentBroker(Link):
    """A broker with a parent topic."""

    def __init__(self, address: str, parent: str, access: RocketMQAccess) -> None:
        super().__init__(address, access)
        self._parent = parent
        self._selects_births = True

    async def pull(self, queue: int, offset: int, *, births: bool, hold: bool) -> Pulled:
        """Pull messages of one of the parent's own queues, in which all messages of its lite topics lie too.

        Args:
            queue: number of the queue.
            offset: offset of the first message.
            births: let the broker send births only, if it can.
            hold: wait for a message where there is none.

        Raises:
            Unreachable: the broker does not answer.
            Refused: it does not allow it.
            Damaged: it answers with something else than messages.
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

    async def probe(self, topics: Sequence[str]) -> list[Probe]:
        """Ask for lite topics, many at a time; return the answers in the same order.

        Raises:
            Unreachable: the broker does not answer.
            Refused: it has no such parent.
        """
        found: dict[int, Probe] = {}
        remaining = iter(enumerate(topics))

        async def work() -> None:
            for place, topic in remaining:
                answer = await self.ask(_GET_LITE_TOPIC_INFO, {"parentTopic": self._parent, "liteTopic": topic})
                offsets = loads(answer.checked().body)["topicOffset"]
                found[place] = Probe(offsets["maxOffset"] > 0, offsets["lastUpdateTimestamp"])

        await together(work() for _ in range(min(_MAX_PROBES, len(topics))))
        return [found[place] for place in range(len(topics))]

    async def parent_info(self) -> tuple[int, float]:
        """Return the number of lite topics of the parent, and the milliseconds after which an unused one ends.

        Raises:
            Unreachable: the broker does not answer.
            Refused: it has no such parent.
        """
        answer = await self.ask(_GET_PARENT_INFO, {"topic": self._parent})
        found = loads(answer.checked().body)
        minutes = found["ttl"]
        return found["liteTopicCount"], minutes * _MINUTE_MS if minutes > 0 else math.inf
