"""Watcher of Kafka's topics: polls the cluster, and announces each change as a topic event."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streaming.adapters.topic_events import ANSWER_SECONDS, NoAnswer, Stopped, TopicEvents, until_answered
from streaming.adapters.watch import Listing, Presence, RoundRobin, Watch, listing, topic_filter
from streaming.errors import WatchFailed
from streaming.kafka.reach import wait_for_broker
from streaming.printable import counted

if TYPE_CHECKING:
    from streaming.config import Settings

log = logging.getLogger("reexpand")

READY = "ready: watching %s of %s as parent %s"
"""Log line after all existing topics are announced. Scripts may wait for it."""

_START_SECONDS = 30.0
"""Longest wait for Kafka at the start, in seconds."""

_IDS_PER_REQUEST = 500
"""Number of topic ids in one request; 500 ids take about 12 ms of CPU."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Topic id from a broker without topic ids."""

_PRESENCES = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: Presence.ABSENT,
    KafkaError.UNKNOWN_TOPIC_ID: Presence.ABSENT,
    KafkaError.LEADER_NOT_AVAILABLE: Presence.PRESENT,  # just created, or its broker is down
}


class Options(NamedTuple):
    """Options of a watcher.

    Attributes:
        parent: parent topic of the Kafka topics, which become its lite topics.
        interval: seconds between two polls.
        once: stop when the announced topics equal the existing topics.
        client: further options of the Kafka client.
    """

    parent: str = "kafka"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    dialect: str = "nats"
    interval: float = 0.5
    once: bool = False
    client: Mapping[str, str] = {}


class KafkaCluster(TopicEvents):
    """Kafka cluster whose topics are watched, with the topic events of one parent."""

    def __init__(self, settings: "Settings", parent: str, options: Mapping[str, str], stop: threading.Event) -> None:
        super().__init__(settings, parent, options, stop)
        self._id_requests = RoundRobin(_IDS_PER_REQUEST)
        self._internal: set[str] = set()

    def list_topics(
        self, selected: Callable[[str], bool], known: Mapping[str, str | None], doubtful: Iterable[str]
    ) -> Listing:
        """List the selected topics; request the ids of doubtful and unknown ones.

        Raises:
            NoAnswer: no answer came, or it is implausible.
        """
        listed = {name: _presence(error) for name, error in self._topics().items()}
        found = listing(listed, lambda name: name not in self._internal and selected(name), self._events)
        if found is None:
            raise NoAnswer(f"the answer does not contain the topic {self._events}, so it may be incomplete")
        urgent = [*(name for name in found.topics if name not in known), *doubtful]
        names = self._id_requests.next(found.topics.keys(), urgent)
        return found.identified(self._ids(names)) if names else found

    def _ids(self, names: list[str]) -> dict[str, str | Presence]:
        found: dict[str, str | Presence] = {}
        answers = self._admin.describe_topics(TopicCollection(names), request_timeout=ANSWER_SECONDS)
        for name, answer in answers.items():
            if answer.exception() is None and answer.result().is_internal:
                self._internal.add(name)
            found[name] = Presence.ABSENT if name in self._internal else _id(answer.result)
        return found


def _presence(error: KafkaError | None) -> Presence:
    return Presence.PRESENT if error is None else _PRESENCES.get(error.code(), Presence.UNCLEAR)


def _id(result: Callable[[], Any]) -> str | Presence:
    try:
        found = str(result().topic_id)
    except KafkaException as error:
        return _presence(error.args[0])
    return Presence.PRESENT if found == _NO_ID else found


def run(settings: "Settings", options: Options, announced: Callable[[bytes], None]) -> None:
    """Watch until SIGTERM or SIGINT, and pass each written event to `announced`.

    Raises:
        ConfigInvalid: an option is invalid.
        WatchFailed: Kafka does not answer at the start, or rejects the events.
    """
    own = (*settings.inputs, settings.updates, settings.dead_letters, settings.answers)
    selected = topic_filter(own, options.include, options.exclude, options.dialect)
    stop = threading.Event()
    cluster = KafkaCluster(settings, options.parent, options.client, stop)
    former = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        wait_for_broker(settings.bootstrap_servers, failure=WatchFailed, is_over=stop.is_set)
        _Watcher(cluster, selected, announced).run(options, stop)
    except Stopped:
        if options.once:
            raise WatchFailed("Stopped before all topics were announced.") from None
        log.info("stopped")
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class _Watcher:
    """Loop of the watcher, which keeps the announced topics equal to the topics of the cluster."""

    def __init__(
        self, cluster: KafkaCluster, selected: Callable[[str], bool], announced: Callable[[bytes], None]
    ) -> None:
        self._cluster = cluster
        self._selected = selected
        self._announced = announced
        self._watch = Watch()
        self._unreachable = False

    def run(self, options: Options, stop: threading.Event) -> None:
        """Watch until stopped or, with `once`, until all topics are announced."""
        deadline = time.monotonic() + _START_SECONDS
        try:
            until_answered(lambda: self._cluster.read_back(self._watch), deadline, stop)
            until_answered(self._poll, deadline, stop)
        except NoAnswer as error:
            raise self._unavailable(error) from None
        cluster = self._cluster
        log.info(READY, counted(len(self._watch.announced), "Kafka topic"), cluster.bootstrap_servers, cluster.parent)
        pause = options.interval
        while not (options.once and not self._watch.doubtful):
            if stop.wait(pause):
                raise Stopped
            began = time.monotonic()
            try:
                self._poll()
            except NoAnswer as error:
                if options.once:
                    raise self._unavailable(error) from None
                self._report(error)
                pause = options.interval
            else:
                self._report(None)
                # A slow cluster gets a pause as long as its answer.
                spent = time.monotonic() - began
                pause = max(options.interval - spent, spent)

    def _poll(self) -> None:
        watch = self._watch
        try:
            found = self._cluster.list_topics(self._selected, watch.announced, watch.doubtful)
        except NoAnswer:
            watch.unanswered()
            raise
        changes = watch.compare(found)
        for event in self._cluster.announce(changes, time.time_ns() // 1_000_000):
            self._announced(event)
        for change in changes:
            watch.fold(change)

    def _report(self, error: NoAnswer | None) -> None:
        """Log a line when Kafka stops answering, and another when it answers again."""
        if error is not None and not self._unreachable:
            log.warning("%s does not answer: %s", self._cluster.bootstrap_servers, error)
        elif error is None and self._unreachable:
            log.info("%s answers again", self._cluster.bootstrap_servers)
        self._unreachable = error is not None

    def _unavailable(self, error: NoAnswer) -> WatchFailed:
        return WatchFailed(
            f"Kafka at {self._cluster.bootstrap_servers} cannot be watched: {error}. "
            "Check the address and the client options, and that the broker runs."
        )
