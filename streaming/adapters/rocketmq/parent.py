"""A parent topic as a watcher knows it so far: its brokers, its own queues, and how far each of these was read."""

from streaming.adapters.rocketmq.access import RocketMQAccess
from streaming.adapters.rocketmq.admin import Queue, route
from streaming.adapters.rocketmq.brokers import ParentBroker
from streaming.adapters.rocketmq.messages import Message
from streaming.adapters.rocketmq.remoting import Link


class Parent:
    """Brokers and queues of a parent, and connections to them.

    Attributes:
        brokers: brokers that have it, by name.
        offsets: offset of the next message of each queue.
        lasts_ms: time in milliseconds that a lite topic goes on without a message, by broker, of those that answer.

    Args:
        name_server: address of the name server.
        name: name of the parent.
        access: login and TLS.
    """

    def __init__(self, name_server: str, name: str, access: RocketMQAccess) -> None:
        self.brokers: dict[str, ParentBroker] = {}
        self.offsets: dict[Queue, int] = {}
        self.lasts_ms: dict[str, float] = {}
        self._names = Link(name_server, access)
        self._name, self._access = name, access

    async def find_brokers(self) -> None:
        """Ask the name server for brokers and queues, and new brokers for how long an unused topic lasts.

        Raises:
            Unreachable: name server or broker does not answer.
            Refused: one of them knows no such parent.
        """
        found = await route(self._names, self._name)
        for name, address in found.addresses.items():
            known = self.brokers.get(name)
            if known is None or known.address != address:
                self.brokers[name] = ParentBroker(address, self._name, self._access)
                if known is not None:
                    await known.close()
            if name not in self.lasts_ms:
                _, self.lasts_ms[name] = await self.brokers[name].parent_info()
        for queue in found.queues:
            if queue.broker in self.lasts_ms:
                self.offsets.setdefault(queue, 0)

    async def read(self, queue: Queue, births: dict[str, Message | None], *, births_only: bool) -> None:
        """Read a queue to its end.

        Args:
            queue: the queue.
            births: gets the last birth of each topic of the broker; None where only later messages are there.
            births_only: leave out topics whose birth is gone.

        Raises:
            Unreachable: the broker does not answer.
            Refused: it does not allow it.
            Damaged: it answers with something else than messages.
        """
        offset = self.offsets[queue]
        while True:
            found = await self.brokers[queue.broker].pull(queue.number, offset, births=births_only, hold=False)
            for message in found.messages:
                if message.is_first:
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
