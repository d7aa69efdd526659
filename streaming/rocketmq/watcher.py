"""`reexpand watch-rocketmq`: announces births and deaths of lite topics.

A birth is the first message of a lite topic. It is also in one of the parent's own queues, from which the broker sends
it immediately. The broker does not announce a death, so `Deaths` searches for it.
"""

import asyncio
import gc
import logging
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from streaming.adapters.topic_events import NoAnswer, Stopped, TopicEvents, until_answered
from streaming.adapters.watch import TopicChange, Watch
from streaming.errors import WatchFailed
from streaming.kafka.reach import wait_for_broker
from streaming.printable import counted
from streaming.rocketmq.brokers import Damaged, Message, Parent, Queue
from streaming.rocketmq.lite_topics import PROBES_A_LOOK, Deaths, Life, LiteTopics, living, now_ms
from streaming.rocketmq.remoting import Refused, RocketMQAccess, Unreachable, together

if TYPE_CHECKING:
    from streaming.config import Settings

log = logging.getLogger("reexpand")

READY = "ready: watching %s of %s at %s"
"""Log line after all existing lite topics are announced. Scripts may wait for it."""

_START_SECONDS = 30.0
"""Timeout of RocketMQ and of Kafka at the start, in seconds."""

_REGISTERED_SECONDS = 45.0
"""Time in seconds within which all brokers register: a broker registers at a new name server within 30 s."""

_RETRY_SECONDS = 0.5
_ROUTE_SECONDS, _EARLY_ROUTE_SECONDS = 30.0, 5.0
"""Interval of requests for brokers and queues, in seconds; the shorter interval while topics are missing."""

_EVENTS_A_WRITE = 5_000
"""Maximum number of events per write, which bounds memory."""

_NO_TOPIC = 17
_FAULTS = (Unreachable, Refused, Damaged)


class RocketMQOptions(NamedTuple):
    """Options of the watcher.

    Attributes:
        once: exit as soon as the announced topics equal the existing topics.
        client: additional options of the Kafka client.
    """

    name_server: str
    parent: str
    once: bool = False
    client: Mapping[str, str] = {}
    access: RocketMQAccess = RocketMQAccess()


def run(settings: "Settings", options: RocketMQOptions, announced: Callable[[bytes], None]) -> None:
    """Watch until SIGTERM or SIGINT, and pass each written event to `announced`.

    Raises:
        ConfigInvalid: an option is invalid.
        WatchFailed: RocketMQ or Kafka does not answer at the start, or Kafka rejects the events.
    """
    stop = threading.Event()
    events = TopicEvents(settings, options.parent, options.client, stop)

    async def work() -> None:
        reach = partial(wait_for_broker, settings.bootstrap_servers, failure=WatchFailed, is_over=stop.is_set)
        await asyncio.to_thread(reach)
        await _LiteWatcher(events, options, announced, stop).run()

    asyncio.run(_until_stopped(work(), stop))
    if stop.is_set():
        if options.once:
            raise WatchFailed("Stopped before all changes were announced.")
        log.info("stopped")


async def _until_stopped(work: Awaitable[None], stop: threading.Event) -> None:
    """Await some work. A signal cancels it."""
    task = asyncio.ensure_future(work)

    def on_signal() -> None:
        stop.set()
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    try:
        await task
    except (asyncio.CancelledError, Stopped):
        pass
    except ExceptionGroup as group:  # the first error cancelled the others
        raise group.exceptions[0] from None


class _LiteWatcher:
    """Tasks of the watcher: one per queue, one per broker, and one that writes events."""

    def __init__(
        self,
        events: TopicEvents,
        options: RocketMQOptions,
        announced: Callable[[bytes], None],
        stop: threading.Event,
    ) -> None:
        self._events = events
        self._stop = stop
        self._options = options
        self._announced = announced
        self._parent = Parent(options.name_server, options.parent, options.access)
        self._changes: asyncio.Queue[TopicChange] = asyncio.Queue()
        self._topics = LiteTopics({})
        self._surveyed: set[Queue] = set()
        self._registered_at = 0.0
        # Queues to read from their beginning, because their parent was deleted and may have been recreated.
        self._new_queues: set[Queue] = set()
        self._silent: dict[str, set[Queue | None]] = defaultdict(set)

    async def run(self) -> None:
        """Announce the differences between existing and announced topics, then follow changes."""
        try:
            self._registered_at = time.monotonic() + _REGISTERED_SECONDS
            await self._catch_up()
            if not self._options.once:
                await self._follow()
            elif self._topics.missing:
                await asyncio.sleep(self._registered_at - time.monotonic())
                await self._catch_up()
                await self._write(list(self._topics.give_up()))
        finally:
            await self._parent.close()

    async def _catch_up(self) -> None:
        changes = iter(await self._survey(await self._history()))
        while some := list(islice(changes, _EVENTS_A_WRITE)):
            await self._write(some)
        log.info(READY, counted(len(self._topics), "lite topic"), self._options.parent, self._options.name_server)
        gc.freeze()  # most of these objects stay, and traversing them in each collection would delay births

    async def _history(self) -> Mapping[str, str | None]:
        watch, deadline = Watch(), time.monotonic() + _START_SECONDS
        try:
            await asyncio.to_thread(until_answered, lambda: self._events.read_back(watch), deadline, self._stop)
        except NoAnswer as error:
            raise WatchFailed(
                f"Kafka at {self._events.bootstrap_servers} does not answer: {error}. "
                "Check the address, the client options, and that the broker is running."
            ) from None
        return watch.announced

    async def _survey(self, former: Mapping[str, str | None]) -> list[TopicChange]:
        """Find all existing lite topics; return the differences from the announced topics."""
        deadline = time.monotonic() + _START_SECONDS
        registered = self._registered_at if former else 0
        while True:
            self._parent.offsets.clear()
            try:
                await self._parent.find_brokers()
                births: dict[str, dict[str, Message | None]] = {name: {} for name in self._parent.brokers}
                await together(
                    self._parent.read(queue, births[queue.broker], births_only=bool(former))
                    for queue in self._parent.offsets
                )
                alive: dict[Life, float] = {}
                for name, of_broker in births.items():
                    for topic in former:
                        of_broker.setdefault(topic, None)
                    alive |= await self._living(name, of_broker)
            except _FAULTS as error:
                is_unknown = isinstance(error, Refused) and error.code == _NO_TOPIC
                if time.monotonic() > (registered if is_unknown else deadline):
                    raise WatchFailed(
                        f"The parent {self._options.parent!r} at {self._options.name_server} cannot be watched: "
                        f"{error}. Check the address of the name server, that the parent exists there with "
                        "message.type=LITE, and --rocketmq-options if RocketMQ requires TLS or a login."
                    ) from None
            else:
                self._topics, self._surveyed = LiteTopics(former), set(self._parent.offsets)
                changes = list(self._topics.found((life, births[life.broker].get(life.topic)) for life in alive))
                for life, last_ms in alive.items():
                    self._topics.expect(life, now_ms(), last_ms, self._parent.lasts_ms[life.broker])
                return changes
            await asyncio.sleep(_RETRY_SECONDS)

    async def _living(self, broker: str, births: Mapping[str, Message | None]) -> dict[Life, float]:
        """Probe topics on a broker; return the living topics with the time of their last message."""
        alive: dict[Life, float] = {}
        lives = (Life(broker, topic, birth.stored_ms if birth else 0) for topic, birth in births.items())
        while some := list(islice(lives, PROBES_A_LOOK)):
            alive |= await living(self._parent.brokers[broker], some)
        return alive

    async def _follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._announce())
            queues, brokers = set[Queue](), set[str]()
            while True:
                for queue in self._surveyed - queues:
                    tasks.create_task(self._follow_queue(queue))
                new = self._parent.offsets.keys() - queues - self._surveyed
                for name in {queue.broker for queue in new}:
                    tasks.create_task(self._join(name, [queue for queue in new if queue.broker == name]))
                for name in self._parent.lasts_ms.keys() - brokers:
                    tasks.create_task(self._follow_deaths(name))
                queues, brokers = set(self._parent.offsets), set(self._parent.lasts_ms)
                await asyncio.sleep(_EARLY_ROUTE_SECONDS if self._topics.missing else _ROUTE_SECONDS)
                with suppress(*_FAULTS):
                    await self._parent.find_brokers()
                    if time.monotonic() > self._registered_at and self._surveyed >= self._parent.offsets.keys():
                        self._note(self._topics.give_up())

    async def _follow_queue(self, queue: Queue) -> None:
        while True:
            try:
                found = await self._parent.brokers[queue.broker].pull(
                    queue.number, self._parent.offsets[queue], births=True, hold=True
                )
            except _FAULTS as error:
                await self._pause(queue.broker, error, queue)
                continue
            self._answers(queue.broker, queue)
            if queue in self._new_queues or found.end < self._parent.offsets[queue]:
                self._new_queues.discard(queue)
                self._parent.offsets[queue] = 0
                await self._record(queue.broker, [queue])
                continue
            self._parent.offsets[queue] = found.next
            for message in found.messages:
                if message.is_first:
                    self._note(self._topics.born(queue.broker, message))
                    life = Life(queue.broker, message.topic, message.stored_ms)
                    self._topics.expect(life, now_ms(), message.stored_ms, self._parent.lasts_ms[queue.broker])

    async def _join(self, broker: str, queues: Sequence[Queue]) -> None:
        """Record the topics of a broker's new queues, and missing topics found there; then follow the queues."""
        await self._record(broker, queues)
        self._surveyed.update(queues)
        await asyncio.gather(*map(self._follow_queue, queues))

    async def _record(self, broker: str, queues: Sequence[Queue]) -> None:
        """Record the living topics in some queues, and missing topics of their broker."""
        births: dict[str, Message | None] = {}
        while True:
            try:
                for queue in queues:
                    await self._parent.read(queue, births, births_only=True)
                await self._take(broker, births)
            except _FAULTS as error:
                await self._pause(broker, error)
            else:
                break

    async def _take(self, broker: str, births: Mapping[str, Message | None]) -> None:
        """Record the living topics among some births and the missing topics."""
        known = {**dict.fromkeys(self._topics.missing), **births}
        for life, last_ms in (await self._living(broker, known)).items():
            birth = known[life.topic]
            if birth is not None:
                self._note(self._topics.born(broker, birth))
            elif life.topic in self._topics.missing:
                self._note(self._topics.back(life, None))
            self._topics.expect(life, now_ms(), last_ms, self._parent.lasts_ms[broker])

    async def _follow_deaths(self, name: str) -> None:
        deaths = Deaths(name, self._topics, self._note)
        while True:
            await asyncio.sleep(deaths.pause_seconds)
            try:
                self._parent.lasts_ms[name] = await deaths.look(self._parent.brokers[name], self._parent.lasts_ms[name])
            except _FAULTS as error:
                await self._pause(name, error)
            else:
                self._answers(name)

    def _note(self, changes: Iterable[TopicChange]) -> None:
        for change in changes:
            self._changes.put_nowait(change)

    async def _announce(self) -> None:
        """Write changes in order, all pending changes per write."""
        while True:
            changes = [await self._changes.get()]
            while not self._changes.empty():
                changes.append(self._changes.get_nowait())
            await self._write(changes)

    async def _write(self, changes: list[TopicChange]) -> None:
        for event in await asyncio.to_thread(self._events.announce, changes, now_ms()):
            self._announced(event)

    async def _pause(self, broker: str, error: Exception, queue: Queue | None = None) -> None:
        """Wait before the next attempt, and log when a broker stops answering one of the watcher's tasks."""
        silent = self._silent[broker]
        if not silent:
            log.warning("broker %s does not answer: %s", broker, error)
        silent.add(queue)
        if isinstance(error, Refused) and error.code == _NO_TOPIC:
            self._new_queues.update(queue for queue in self._parent.offsets if queue.broker == broker)
        await asyncio.sleep(_RETRY_SECONDS)

    def _answers(self, broker: str, queue: Queue | None = None) -> None:
        silent = self._silent[broker]
        if queue in silent:
            silent.discard(queue)
            if not silent:
                log.info("broker %s answers again", broker)
