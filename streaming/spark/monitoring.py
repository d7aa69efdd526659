"""Metrics, health and log of the running query."""

import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

import orjson
import pyspark
from pyspark.sql.streaming.query import StreamingQuery
from starlette.routing import BaseRoute

from streaming.config import Settings, parse_address
from streaming.errors import CheckpointUnusable, KafkaUnavailable
from streaming.kafka.permissions import lag_group
from streaming.monitor.batch import TOTAL, BatchReport, LagMeter
from streaming.monitor.health import Condition, Health
from streaming.monitor.metrics import Metrics, ProcessMemory
from streaming.monitor.server import HttpServer, routes
from streaming.printable import counted, quoted
from streaming.records.model import Reason
from streaming.spark import positions
from streaming.spark.checkpoint import CheckpointFiles
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.kafka_clients import JAVA_ERRORS
from streaming.spark.positions import CommittedPositions, InputEnds
from streaming.storage.folder import SIZES
from streaming.worker.rows import FACTS, KeyFacts, OutputKind, by_kind

log = logging.getLogger("reexpand")

_QUERY_SECONDS: Final = 1.0
"""Time between two checks of the query's state."""

_ENDS_SECONDS: Final = 2.0
"""Time between two requests for the ends of the inputs."""

_PATIENCE_SECONDS: Final = 5.0
"""Time without an answer after which Kafka counts as unreachable."""

_COMMIT_SECONDS: Final = 5.0
"""Shortest time between two commits of the positions."""

_COMMIT_AGAIN_SECONDS: Final = 3_600.0
"""Time after which positions are committed although they have not changed."""

_KEEP_SECONDS: Final = 300.0
"""Time between two notes of the sizes of shards, for the next driver."""

_NEWS_SECONDS: Final = 10.0
"""Time between two lines about catching up."""


_LITERAL = (
    "clients of the group %r ask for patterns on %r, as %r, but the group is literal, so its entries are names. "
    "If patterns are meant: `reexpand send group --wildcard --parent=%s -- %s`"
)
_NOT_APPLIED = (
    "%s not applied, with a dead letter each; the first is in %s, partition %d, offset %d, at "
    "position %d of its record: %s"
)
_MAX_WARNED = 1_000
"""Number of groups that are warned of, each once."""


class JobPage(Protocol):
    """Page of the running job."""

    def routes(self, health: Health, lag: LagMeter) -> list[BaseRoute]:
        """Return its routes, which show the condition and the lag of the job."""

    def follow(self, batch: BatchReport) -> None:
        """Record a committed micro-batch."""

    def close(self) -> None:
        """Close open pages and readers; the server waits for that."""


class Monitor(NamedTuple):
    """Metrics and health of a job, and its page; they live longer than the query."""

    health: Health
    lag: LagMeter
    metrics: Metrics
    page: JobPage | None


@contextmanager
def served(settings: Settings, page: JobPage | None = None) -> Iterator[Monitor]:
    """Serve metrics, health and the job's page, if there is an address."""
    health, lag = Health(settings.hang_seconds), LagMeter()
    metrics = Metrics(health, lag, ProcessMemory(), pyspark.__version__)
    where = parse_address(settings.http)
    shown = page.routes(health, lag) if page else []
    own = routes(metrics.registry, health, local=where is not None and where.is_loopback)
    with HttpServer(where, [*own, *shown]) if where else nullcontext() as server:
        if server is not None and server.url:
            log.info("metrics and health: %s/metrics, %s/healthz", server.url, server.url)
            if shown:
                log.info("console: %s/", server.url)
        try:
            yield Monitor(health, lag, metrics, page)
        finally:
            health.enter(Condition.STOPPING, "the job has ended")
            if page is not None:
                page.close()


class QueryMonitor:
    """Feed of a monitor from the running query; the supervisor loop calls it often.

    It never waits: a request to Kafka is sent in one call, and its response is read in a later call.
    """

    def __init__(
        self, monitor: Monitor, settings: Settings, query: StreamingQuery, admin: KafkaAdmin, files: CheckpointFiles
    ) -> None:
        java: Any = query
        self._status = java._jsq  # noqa: SLF001 - PySpark's own objects ask the JVM for each field
        self._query = query
        self._health, self._lag, self._metrics = monitor.health, monitor.lag, monitor.metrics
        self._page = monitor.page
        self._ends = InputEnds(admin, settings.inputs)
        self._positions = CommittedPositions(admin, lag_group(settings.updates))
        self._inputs = settings.inputs
        self._read = positions.committed(query)
        self._last_batch = -1
        self._next_look = self._next_question = self._next_commit = 0.0
        self._next_news = time.monotonic() + _NEWS_SECONDS
        self._asked = self._well = time.monotonic()
        self._again = time.monotonic() + _COMMIT_AGAIN_SECONDS
        self._has_told = False
        self._files = files
        self._next_note = time.monotonic() + _KEEP_SECONDS
        self._noted = -1
        self._is_working = False
        self._load_sizes()
        self._health.enter(Condition.READY, "the query runs, and the inputs are read")
        self._metrics.reached("ready", self._health.uptime)

    def follow(self, batch: BatchReport) -> None:
        """Record a committed micro-batch."""
        self._metrics.reached("first-micro-batch", self._health.uptime)
        self._last_batch = batch.number
        self._metrics.follow(batch)
        if self._page is not None:
            self._page.follow(batch)
        for key in batch.keys:
            for stream, partition, newest in key.newest:
                self._lag.learn_newest(self._inputs[stream], partition, newest / 1_000)

    def look(self) -> None:
        """Run the updates that are due."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _QUERY_SECONDS
            status = self._status.status()
            self._is_working = status.isTriggerActive() and status.isDataAvailable()
            self._health.look(self._last_batch, is_running=self._is_working)
        if self._ends.is_asked:
            self._take_ends(now)
        elif now >= self._next_question:
            self._next_question = now + _ENDS_SECONDS
            self._asked = now
            self._read = positions.committed(self._query)
            self._ends.ask(self._read)
        if now >= self._next_commit and not self._health.unreachable_seconds:
            self._next_commit = now + _COMMIT_SECONDS
            self._commit(now)
        if now >= self._next_note:
            self._next_note = now + _KEEP_SECONDS
            self.keep_sizes()

    def keep_sizes(self) -> None:
        """Note the sizes of the shards in the checkpoint, if there were micro-batches since the last time."""
        if self._noted == self._last_batch:
            return
        try:
            self._files.write(SIZES, self._metrics.shards.dump())
            self._noted = self._last_batch
        except (*JAVA_ERRORS, CheckpointUnusable) as error:  # the next driver learns them as it visits the shards
            log.debug("the sizes of the shards could not be noted: %s", error)

    def _load_sizes(self) -> None:
        try:
            if self._files.exists(SIZES):
                self._metrics.shards.load(self._files.read(SIZES))
        except (*JAVA_ERRORS, ValueError, CheckpointUnusable) as error:
            log.debug("the noted sizes of the shards could not be read: %s", error)

    def _take_ends(self, now: float) -> None:
        try:
            ends = self._ends.answer()
        except KafkaUnavailable as error:
            self._note_outage(now, str(error))
            return
        if ends is None:
            if now - self._asked > _PATIENCE_SECONDS:
                self._note_outage(now, "it does not answer")
            return
        if self._health.unreachable_seconds:
            log.info("Kafka is back after %.0f s", now - self._well)
        self._well = now
        self._health.note_kafka(unreachable_for=0.0)
        self._lag.look(ends, self._read)
        self._health.note_lag(self._lag.records, self._lag.seconds)
        self._tell_progress(now)

    def _note_outage(self, now: float, reason: str) -> None:
        if not self._health.unreachable_seconds:
            since = datetime.now().astimezone() - timedelta(seconds=now - self._well)
            text = since.isoformat(sep=" ", timespec="seconds")
            log.warning("Kafka unreachable since %s: %s. The job waits for it", text, reason.rstrip("."))
        self._health.note_kafka(unreachable_for=now - self._well)

    def _tell_progress(self, now: float) -> None:
        left, rate = self._lag.records, self._lag.rate
        if not self._health.is_catching_up:
            self._metrics.reached("caught-up", self._health.uptime)
            if self._has_told:
                log.info("caught up: the inputs are read")
                self._has_told = False
            self._next_news = now + _NEWS_SECONDS
        elif left and now >= self._next_news:
            self._next_news = now + _NEWS_SECONDS
            self._has_told = True
            log.info("catching up: %s left, %s", counted(left, "record"), self._pace(left, rate))

    def _pace(self, left: int, rate: float) -> str:
        if rate:
            return f"{rate:.0f} per second, {left / rate:.0f} s left"
        if self._is_working:
            return "a micro-batch is running"
        return "0 per second, no records are read at present"

    def _commit(self, now: float) -> None:
        again = now >= self._again
        try:
            self._positions.commit(self._read, again=again)
        except KafkaUnavailable as error:
            log.warning("lag monitors do not see the positions of the job: %s", error)
            self._next_commit = now + _COMMIT_AGAIN_SECONDS
            return
        if again:
            self._again = now + _COMMIT_AGAIN_SECONDS


def add_up(progress: Mapping[str, Any]) -> tuple[Counter[str], list[KeyFacts]]:
    """Return Spark's counts of a micro-batch, added up, and facts of its keys.

    Counts are output records by kind, and ignored entries by reason.
    """
    summed: Counter[str] = Counter()
    keys = []
    for counts in orjson.loads(progress.get("sink", {}).get("metrics", {}).get("counts", "[]")):
        facts = counts.pop(FACTS, None)
        if facts is not None:
            keys.append(KeyFacts(*facts))
        summed.update(counts)
    return summed, keys


def take(counts: Counter[str], start: str) -> list[Any]:
    """Remove the kinds with a prefix from counts; return the JSON after it."""
    kinds = [kind for kind in counts if kind.startswith(start)]
    for kind in kinds:
        del counts[kind]
    return [orjson.loads(kind.removeprefix(start)) for kind in kinds]


class Report:
    """One log line for each micro-batch, which is passed to `follow`.

    Its level is INFO if there were updates, dead letters or ignored entries, else DEBUG: an idle job has a micro-batch
    for each of its ticks.

    The report polls the query. Spark would call a listener for each micro-batch through Py4J, which then looks for each
    name that Python uses in all jars: a third of the JVM's CPU at 20 events per second.
    """

    def __init__(self, query: StreamingQuery, follow: Callable[[BatchReport], None] | None = None) -> None:
        java: Any = query
        self._query = java._jsq  # noqa: SLF001 - PySpark's own objects ask the JVM for each field
        self._follow = follow
        self._last_reported = -1
        self._warned: set[tuple[str, str]] = set()

    def write(self) -> None:
        """Log all micro-batches since the last call."""
        latest = self._query.lastProgress()
        if latest is None or latest.batchId() <= self._last_reported:
            return
        unseen = [latest]
        if latest.batchId() > self._last_reported + 1:
            # From the last one: Py4J asks the JVM for each of the hundred that Spark keeps, and for its number.
            recent = reversed(self._query.recentProgress())
            unseen = list(itertools.takewhile(lambda each: each.batchId() > self._last_reported, recent))
        for progress in reversed(unseen):
            self._take(orjson.loads(progress.json()))
        self._last_reported = unseen[0].batchId()

    def _take(self, progress: dict[str, Any]) -> None:
        total, keys = add_up(progress)
        failures = sorted(take(total, OutputKind.FAILURE))  # by their places
        suspects = take(total, OutputKind.SUSPECT)  # literal groups with an apparent pattern
        if self._follow is not None:
            self._follow(BatchReport.of(progress, total, keys))
        if progress["numInputRows"]:
            _write(progress, by_kind(total))
        if failures:
            topic, partition, offset, position, message = failures[0]
            number = total[f"{OutputKind.DEAD_LETTER}:{Reason.NOT_APPLICABLE}"]
            log.warning(
                _NOT_APPLIED, counted(number, "entry is", "entries are"), topic, partition, offset, position, message
            )
        for parent, group, entry in suspects:
            if (parent, group) not in self._warned and len(self._warned) < _MAX_WARNED:
                self._warned.add((parent, group))
                log.warning(_LITERAL, group, parent, entry, quoted(parent), quoted(group))


def _write(progress: dict[str, Any], total: Counter[str]) -> None:
    milliseconds = progress["durationMs"].get(TOTAL, 0)
    log.log(
        logging.INFO if total else logging.DEBUG,
        "micro-batch %d: %s in %d ms: %s",
        progress["batchId"],
        counted(progress["numInputRows"], "record"),
        milliseconds,
        ", ".join(f"{count} {name}" for name, count in sorted(total.items())) or "no change",
        extra={
            "micro_batch": progress["batchId"],
            "records": progress["numInputRows"],
            "milliseconds": milliseconds,
            "counts": dict(total),
        },
    )
