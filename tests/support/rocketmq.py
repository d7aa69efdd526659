"""Operations of RocketMQ's producers and administrators."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import pytest
from rocketmq import ClientConfiguration

from streaming.rocketmq.remoting import Link, RocketMQAccess

_SEND = 10
_QUERY_CONSUMER_OFFSET = 14
_OPEN = RocketMQAccess()

T = TypeVar("T")


def be_patient(patch: pytest.MonkeyPatch) -> None:
    """Let consumers wait a minute for a response of the proxy, instead of three seconds."""
    patient = partial(ClientConfiguration, request_timeout=60)
    patch.setattr("streaming.rocketmq.official.ClientConfiguration", patient)


def does(broker: str, act: Callable[[Link], Awaitable[T]], access: RocketMQAccess = _OPEN) -> T:
    async def run() -> T:
        async with Link(broker, access) as link:
            return await act(link)

    return asyncio.run(run())


async def send(
    broker: Link,
    parent: str,
    topic: str,
    body: bytes = b"message",
    *,
    tags: str | None = None,
    properties: Mapping[str, str] | None = None,
    queue: int = 0,
) -> None:
    """Send a message to a lite topic as a producer; the first message creates the topic."""
    all_properties = {**(properties or {}), "__LITE_TOPIC": topic, **({"TAGS": tags} if tags else {})}
    fields = {
        "producerGroup": "tests",
        "topic": parent,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1_000),
        "flag": 0,
        "properties": "\x02".join(f"{name}\x01{value}" for name, value in all_properties.items()),
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": False,
    }
    (await broker.ask(_SEND, fields, body, seconds=60)).checked()


async def consumer_offset(broker: Link, group: str, parent: str, topic: str) -> int:
    """Return the number of messages of a lite topic that a group has acknowledged."""
    fields = {"consumerGroup": group, "topic": f"%LMQ%${parent}${topic}", "queueId": 0, "setZeroIfNotFound": True}
    answer = (await broker.ask(_QUERY_CONSUMER_OFFSET, fields, seconds=60)).checked()
    return int(answer.fields["offset"])
