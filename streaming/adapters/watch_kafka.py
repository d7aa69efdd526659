"""`reexpand watch-kafka`: looks at Kafka's topics again and again, and announces what has changed."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import orjson

from streaming.adapters.cluster import Cluster, NoAnswer, Stopped
from streaming.adapters.watch import Selection, Watch
from streaming.errors import ConfigInvalid, WatchFailed
from streaming.events.model import check_name

if TYPE_CHECKING:
    from streaming.config import Settings

log = logging.getLogger("reexpand")

READY = "ready: watching %d topics of %s as parent %s"
"""The line that says that what exists was announced; scripts may wait for it."""

_START_SECONDS = 30.0
"""How long it waits for Kafka at its start."""

_RETRY_SECONDS = 0.5


class Options(NamedTuple):
    """What to watch, and how.

    Attributes:
        parent: under which the Kafka topics appear as lite topics.
        include: patterns of which a topic must match one; none for all topics.
        exclude: patterns of which a topic must match none.
        dialect: how the patterns are written.
        interval: seconds between two looks.
        once: end as soon as all that exists and nothing else is announced.
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
    """Watches until SIGTERM or SIGINT.

    Args:
        settings: where Kafka is, and the names of reexpand's topics.
        options: what to watch, and how.
        announced: gets each event when it is written.

    Raises:
        ConfigInvalid: an option is not valid.
        WatchFailed: Kafka does not answer at the start, or does not take the events.
    """
    problem = check_name("--parent", options.parent)
    if problem is not None:
        raise ConfigInvalid(problem)
    own = (*settings.inputs, settings.updates, settings.dead_letters)
    selected = Selection(own, options.include, options.exclude, options.dialect)
    stop = threading.Event()
    cluster = Cluster(settings.bootstrap_servers, settings.topic_events, options.parent, options.client, stop)
    former = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        _Watcher(cluster, selected, announced).run(options, stop)
    except Stopped:
        if options.once:
            raise WatchFailed("Stopped before everything was announced.") from None
        log.info("stopped")
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def in_words(event: bytes) -> str:
    """A line for people."""
    fields = orjson.loads(event)
    return f"{fields['event']} {fields['liteTopic']}"


class _Watcher:
    """Watch and cluster, brought together again and again."""

    def __init__(self, cluster: Cluster, selected: Selection, announced: Callable[[bytes], None]) -> None:
        self._cluster = cluster
        self._selected = selected
        self._announced = announced
        self._watch = Watch()
        self._away = False

    def run(self, options: Options, stop: threading.Event) -> None:
        """Watches until it is stopped or, with `once`, has announced everything."""
        deadline = time.monotonic() + _START_SECONDS
        self._patiently(self._recall, deadline, stop)
        self._patiently(self._look, deadline, stop)
        cluster = self._cluster
        log.info(READY, len(self._watch.announced), cluster.bootstrap_servers, cluster.parent)
        pause = options.interval
        while not (options.once and not self._watch.doubtful):
            if stop.wait(pause):
                raise Stopped
            began = time.monotonic()
            try:
                self._look()
            except NoAnswer as error:
                if options.once:
                    raise self._unavailable(error) from None
                self._report(error)
                pause = options.interval
            else:
                self._report(None)
                # A cluster that takes long to answer is not kept busy all the time.
                spent = time.monotonic() - began
                pause = max(options.interval - spent, spent)

    def _recall(self) -> None:
        """Finds out what was announced before."""
        self._cluster.provide()
        for change in self._cluster.history():
            self._watch.fold(change)

    def _look(self) -> None:
        """Announces what has changed."""
        watch = self._watch
        try:
            found = self._cluster.look(self._selected, watch.announced, watch.doubtful)
        except NoAnswer:
            watch.unanswered()
            raise
        changes = watch.compare(found)
        for event in self._cluster.write(changes, time.time_ns() // 1_000_000):
            self._announced(event)
        for change in changes:
            watch.fold(change)

    def _patiently(self, step: Callable[[], None], deadline: float, stop: threading.Event) -> None:
        """Takes a step as soon as Kafka answers."""
        while True:
            try:
                return step()
            except NoAnswer as error:
                if time.monotonic() > deadline:
                    raise self._unavailable(error) from None
            if stop.wait(_RETRY_SECONDS):
                raise Stopped

    def _report(self, error: NoAnswer | None) -> None:
        """One line when Kafka stops answering, and one when it answers again."""
        if error is not None and not self._away:
            log.warning("no news of %s: %s", self._cluster.bootstrap_servers, error)
        elif error is None and self._away:
            log.info("%s answers again", self._cluster.bootstrap_servers)
        self._away = error is not None

    def _unavailable(self, error: NoAnswer) -> WatchFailed:
        return WatchFailed(
            f"Kafka at {self._cluster.bootstrap_servers} cannot be watched: {error}. "
            "Check the address and the client options, and that the broker runs."
        )
