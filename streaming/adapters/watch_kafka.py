"""`reexpand watch-kafka`: polls Kafka's topics, and announces each change."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from streaming.adapters.cluster import KafkaCluster
from streaming.adapters.topic_events import NoAnswer, Stopped, read_back, until_answered
from streaming.adapters.watch import TopicFilter, Watch
from streaming.errors import ConfigInvalid, WatchFailed
from streaming.events.model import check_name
from streaming.kafka.reach import wait_for_broker

if TYPE_CHECKING:
    from streaming.config import Settings

log = logging.getLogger("reexpand")

READY = "ready: watching %d topics of %s as parent %s"
"""Log line after all existing topics are announced; scripts may wait for it."""

_START_SECONDS = 30.0
"""Longest wait for Kafka at the start, in seconds."""


class Options(NamedTuple):
    """Options of a watcher.

    Attributes:
        parent: parent topic of the Kafka topics, which become its lite topics.
        include: patterns; a topic must match one of them. None at all admits every topic.
        exclude: patterns; a topic must match none of them.
        dialect: dialect of the patterns.
        interval: seconds between two polls.
        once: end as soon as the announced topics are exactly the existing ones.
        client: further options of the Kafka client.
    """

    parent: str = "kafka"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    dialect: str = "nats"
    interval: float = 0.5
    once: bool = False
    client: Mapping[str, str] = {}


def run(settings: "Settings", options: Options, announced: Callable[[bytes], None]) -> None:
    """Watch until SIGTERM or SIGINT.

    Args:
        settings: address of Kafka, and the names of reexpand's topics.
        options: options of the watcher.
        announced: called with each written event.

    Raises:
        ConfigInvalid: an option is not valid.
        WatchFailed: Kafka does not answer at the start, or does not take the events.
    """
    problem = check_name("--parent", options.parent)
    if problem is not None:
        raise ConfigInvalid(problem)
    own = (*settings.inputs, settings.updates, settings.dead_letters, settings.answers)
    selected = TopicFilter(own, options.include, options.exclude, options.dialect)
    stop = threading.Event()
    cluster = KafkaCluster(settings.bootstrap_servers, settings.topic_events, options.parent, options.client, stop)
    former = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        wait_for_broker(settings.bootstrap_servers, failure=WatchFailed, is_over=stop.is_set)
        _Watcher(cluster, selected, announced).run(options, stop)
    except Stopped:
        if options.once:
            raise WatchFailed("Stopped before everything was announced.") from None
        log.info("stopped")
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class _Watcher:
    """Loop of the watcher: keeps the announced topics equal to those of the cluster."""

    def __init__(self, cluster: KafkaCluster, selected: TopicFilter, announced: Callable[[bytes], None]) -> None:
        self._cluster = cluster
        self._selected = selected
        self._announced = announced
        self._watch = Watch()
        self._unreachable = False

    def run(self, options: Options, stop: threading.Event) -> None:
        """Watch until stopped or, with `once`, until everything is announced."""
        deadline = time.monotonic() + _START_SECONDS
        try:
            until_answered(lambda: read_back(self._cluster, self._watch), deadline, stop)
            until_answered(self._poll, deadline, stop)
        except NoAnswer as error:
            raise self._unavailable(error) from None
        cluster = self._cluster
        log.info(READY, len(self._watch.announced), cluster.bootstrap_servers, cluster.parent)
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
        """Poll the cluster, and announce the changes."""
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
            log.warning("no news of %s: %s", self._cluster.bootstrap_servers, error)
        elif error is None and self._unreachable:
            log.info("%s answers again", self._cluster.bootstrap_servers)
        self._unreachable = error is not None

    def _unavailable(self, error: NoAnswer) -> WatchFailed:
        return WatchFailed(
            f"Kafka at {self._cluster.bootstrap_servers} cannot be watched: {error}. "
            "Check the address and the client options, and that the broker runs."
        )
