"""Parents, groups and routes of a RocketMQ, over its remoting protocol."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import orjson

from streaming.adapters.rocketmq.remoting import Link, Refused, Unreachable, loads
from streaming.errors import BrokerFailed

_UPDATE_AND_CREATE_TOPIC = 17
_GET_ROUTE = 105
_UPDATE_AND_CREATE_GROUP = 200
_DELETE_TOPIC = 215

_READ_WRITE = 6
_DAY_MINUTES = 1_440


class Queue(NamedTuple):
    """A queue of a parent topic."""

    broker: str
    number: int


class Route(NamedTuple):
    """Brokers of a parent topic.

    Attributes:
        addresses: address of the master of each broker, by its name.
        queues: all queues.
    """

    addresses: Mapping[str, str]
    queues: Sequence[Queue]


def create(broker: str, parents: Iterable[str], groups: Mapping[str, str]) -> None:
    """Create parents and consumer groups on a broker, or change them.

    Args:
        broker: its address.
        parents: names of parents, whose lite topics end after a day without a message.
        groups: parent of each group.

    Raises:
        BrokerFailed: the broker does not answer, or does not accept one.
    """

    async def create_all() -> None:
        async with Link(broker) as link:
            for parent in parents:
                await create_parent(link, parent, minutes=_DAY_MINUTES)
            for group, parent in groups.items():
                await create_group(link, group, {"lite.bind.topic": parent})

    try:
        asyncio.run(create_all())
    except (Refused, Unreachable) as error:
        raise BrokerFailed(f"RocketMQ at {broker} does not create parents and groups: {error}.") from None


async def create_parent(broker: Link, name: str, *, minutes: int, queues: int = 4) -> None:
    """Create a parent topic on a broker, or change it.

    Args:
        broker: the broker.
        name: name of the parent.
        minutes: time without a message after which a lite topic ends.
        queues: number of its own queues.

    Raises:
        Refused: the broker does not accept it.
        Unreachable: the broker does not answer.
    """
    fields = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": _READ_WRITE,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": f"+message.type=LITE,+lite.topic.expiration={minutes}",
    }
    (await broker.ask(_UPDATE_AND_CREATE_TOPIC, fields)).checked()


async def create_group(broker: Link, name: str, attributes: Mapping[str, str]) -> None:
    """Create a consumer group on a broker, or change it.

    Args:
        broker: the broker.
        name: name of the group.
        attributes: its attributes, such as `lite.bind.topic`, the parent.

    Raises:
        Refused: the broker does not accept it.
        Unreachable: the broker does not answer.
    """
    group = {"groupName": name, "attributes": {f"+{key}": value for key, value in attributes.items()}}
    (await broker.ask(_UPDATE_AND_CREATE_GROUP, body=orjson.dumps(group))).checked()


async def delete_lite_topic(broker: Link, parent: str, name: str) -> None:
    """Delete a lite topic on a broker.

    Raises:
        Refused: the broker does not do it.
        Unreachable: the broker does not answer.
    """
    (await broker.ask(_DELETE_TOPIC, {"topic": f"%LMQ%${parent}${name}"})).checked()


def delete(broker: str, parent: str, name: str) -> None:
    """Delete a lite topic.

    Args:
        broker: address of the broker.
        parent: its parent.
        name: its name.

    Raises:
        BrokerFailed: the broker does not answer, or does not do it.
    """

    async def run() -> None:
        async with Link(broker) as link:
            await delete_lite_topic(link, parent, name)

    try:
        asyncio.run(run())
    except (Refused, Unreachable) as error:
        raise BrokerFailed(f"RocketMQ at {broker} does not delete the lite topic {name!r}: {error}.") from None


async def route(name_server: Link, parent: str) -> Route:
    """Return the brokers that have a parent topic.

    Raises:
        Refused: the name server knows no such topic.
        Unreachable: the name server does not answer.
    """
    fields = {"topic": parent, "acceptStandardJsonOnly": True}
    found = loads((await name_server.ask(_GET_ROUTE, fields)).checked().body)
    addresses = {broker["brokerName"]: broker["brokerAddrs"] for broker in found["brokerDatas"]}
    return Route(
        {name: of_brokers["0"] for name, of_brokers in addresses.items() if "0" in of_brokers},
        [
            Queue(queue["brokerName"], number)
            for queue in found["queueDatas"]
            for number in range(queue["readQueueNums"])
        ],
    )
