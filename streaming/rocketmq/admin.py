"""Administration of parents, groups and lite topics of a RocketMQ, over the remoting protocol.

Coroutines raise `Refused` if the broker rejects a request, and `Unreachable` if it does not answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import orjson

from streaming.errors import BrokerFailed
from streaming.rocketmq.remoting import Link, Refused, Unreachable

_UPDATE_AND_CREATE_TOPIC = 17
_UPDATE_AND_CREATE_GROUP = 200
_DELETE_TOPIC = 215

_SECONDS = 60
"""Timeout of an operation in seconds. A broker that has just started may be slow."""

_READ_WRITE = 6
_DAY_MINUTES = 1_440


def create(broker: str, parents: Iterable[str], groups: Mapping[str, str]) -> None:
    """Create or change parents, and consumer groups, each with its parent.

    Lite topics of the parents expire after a day without a message.

    Raises:
        BrokerFailed: the broker does not answer, or rejects a parent or group.
    """

    async def create_all(link: Link) -> None:
        for parent in parents:
            await create_parent(link, parent, minutes=_DAY_MINUTES)
        for group, parent in groups.items():
            await create_group(link, group, {"lite.bind.topic": parent})

    _run(broker, create_all, "create parents and groups")


def delete(broker: str, parent: str, name: str) -> None:
    """Delete a lite topic; raise `BrokerFailed` if the broker does not."""
    _run(broker, lambda link: delete_lite_topic(link, parent, name), f"delete the lite topic {name!r}")


def _run(broker: str, work: Callable[[Link], Awaitable[None]], what: str) -> None:
    async def run() -> None:
        async with Link(broker) as link:
            await work(link)

    try:
        asyncio.run(run())
    except (Refused, Unreachable) as error:
        raise BrokerFailed(f"RocketMQ at {broker} cannot {what}: {error}.") from None


async def create_parent(broker: Link, name: str, *, minutes: int) -> None:
    """Create or change a parent; `minutes` without a message end a lite topic."""
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": _READ_WRITE,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": f"+message.type=LITE,+lite.topic.expiration={minutes}",
    }
    (await broker.ask(_UPDATE_AND_CREATE_TOPIC, fields, seconds=_SECONDS)).checked()


async def create_group(broker: Link, name: str, attributes: Mapping[str, str]) -> None:
    """Create or change a consumer group; `lite.bind.topic` is its parent."""
    group = {"groupName": name, "attributes": {f"+{key}": value for key, value in attributes.items()}}
    (await broker.ask(_UPDATE_AND_CREATE_GROUP, body=orjson.dumps(group), seconds=_SECONDS)).checked()


async def delete_lite_topic(broker: Link, parent: str, name: str) -> None:
    """Delete a lite topic on a broker."""
    (await broker.ask(_DELETE_TOPIC, {"topic": f"%LMQ%${parent}${name}"}, seconds=_SECONDS)).checked()
