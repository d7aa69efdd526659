"""Kafka at the start of the job: topics, permissions, transactions that were left open, and attributes of groups."""

import logging
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.errors import ConfigInvalid, KafkaUnavailable, ReexpandError, Rejected, TopicReplaced
from streaming.kafka import facts
from streaming.kafka.facts import NotedTopic, Offsets
from streaming.kafka.permissions import Grant, checkpoint_of, grants, missing, writable
from streaming.kafka.specs import INPUT, answers_spec, flaws, specs
from streaming.printable import counted
from streaming.records.parsing import parse_group_event
from streaming.records.record import KafkaRecord
from streaming.spark import checkpoint
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.kafka_admin import KafkaAdmin
from streaming.spark.kafka_clients import Producer
from streaming.spark.lease import Lease

log = logging.getLogger("reexpand")

REFUSED = "AuthorizationException"
"""Suffix of the names of Java's exceptions for forbidden requests."""

_TRANSACTIONS_REFUSED = f"TransactionalId{REFUSED}"


def provide(
    spark: SparkSession,
    settings: Settings,
    admin: KafkaAdmin,
    agreed: Agreement,
    progress: QueryProgress,
    *,
    rebuilding: bool = False,
    adopted: Offsets | None = None,
) -> dict[str, NotedTopic]:
    """Check the topics against the checkpoint, create missing ones, return all.

    Nothing is created for a checkpoint that has written before, dead letters excepted: it would not fit. Without topics
    in `agreed`, any topics are accepted; a rebuild accepts any content of the updates topic. `adopted` are positions
    that the states have read with which a new checkpoint begins.

    Raises:
        ConfigInvalid: a topic is missing whose name resembles an existing name.
        KafkaUnavailable: no broker answers, or a topic can neither be found nor created.
        TopicReplaced: a topic of the checkpoint is missing, or was replaced.
        RecordsLost: inputs have lost records that the job has not read.
        UpdatesUnknown: the updates topic holds updates that are unknown to the checkpoint.
    """
    present = admin.names()
    absent = [name for name in facts.names(settings).values() if name not in present]
    found = admin.ids([name for name in facts.names(settings).values() if name in present])
    configurations = admin.configurations(found, INPUT)
    if progress.begun:
        facts.check_identity(settings, agreed.topics, found, absent)
        facts.check_unread(settings, progress.read, *admin.spans(facts.events(settings)))
        if not rebuilding:
            written = admin.last_sources(settings.updates)
            marked = max(admin.markers(agreed.partition_names).values(), default=0)
            # Read progress last: a live driver plans a micro-batch before it writes.
            latest = checkpoint.progress(spark, settings)
            facts.check_ahead(settings, written, latest.planned)
            facts.check_marked(settings, marked, latest.micro_batches)
    elif adopted is not None:
        facts.check_unread(settings, adopted, *admin.spans(facts.events(settings)))
    else:
        facts.check_spelling(settings, present)
        _check_new(admin, settings, found, configurations, rebuilding=rebuilding)
    for name, configuration in configurations.items():
        for flaw in flaws(settings, name, configuration):
            log.warning("%s; `reexpand topics --fix` fixes it", flaw)
    for spec in specs(settings):
        if spec.name in absent and admin.create(spec):
            log.info("created the topic %s", spec.name)
    found |= admin.ids_of_new(absent) if absent else {}
    return {role: NotedTopic(name, found[name]) for role, name in facts.names(settings).items()}


def _check_new(
    admin: KafkaAdmin,
    settings: Settings,
    found: dict[str, str],
    configurations: dict[str, dict[str, str]],
    *,
    rebuilding: bool,
) -> None:
    beginnings, ends = admin.spans([name for name in found if name != settings.dead_letters])
    if not rebuilding:
        first = beginnings.get(settings.updates, {})
        facts.check_empty(settings, sum(end - first[number] for number, end in ends.get(settings.updates, {}).items()))
    if not settings.accept_loss:
        compacted = [name for name, values in configurations.items() if "compact" in values["cleanup.policy"]]
        facts.check_complete(settings, beginnings, compacted)


def lacking(admin: KafkaAdmin, settings: Settings, group: str) -> list[Grant]:
    """Return the user's missing permissions, if the broker reports them.

    They are for topics and the checkpoint's group. Raises `KafkaUnavailable`.
    """
    needed = grants("job", settings)
    topics = admin.allowed_on_topics({grant.name for grant in needed if grant.kind == "TOPIC"})
    groups = admin.allowed_on_group(group)
    found = []
    for grant in needed:
        allowed = topics.get(grant.name) if grant.kind == "TOPIC" else groups if grant.kind == "GROUP" else None
        if allowed is not None and grant.operation not in allowed:
            found.append(grant)
    return found


def warn_of_missing(admin: KafkaAdmin, settings: Settings, group: str) -> None:
    """Warn of missing permissions that only a later record may need."""
    try:
        found = lacking(admin, settings, group)
    except KafkaUnavailable:  # the next request to Kafka reports it
        return
    if found:
        log.warning("%s; the job ends when it needs that", missing(found))


@contextmanager
def explaining_refusals(admin: KafkaAdmin, settings: Settings, group: str) -> Iterator[None]:
    """Name the missing permissions in errors of the block that are refusals of the broker."""
    try:
        yield
    except ReexpandError as error:
        text = str(error)
        if REFUSED not in text and not isinstance(error, TopicReplaced):  # a topic that may not be seen looks deleted
            raise
        found = []
        with suppress(KafkaUnavailable):
            found = lacking(admin, settings, group)
            if _TRANSACTIONS_REFUSED in text:
                found += [grant for grant in grants("job", settings) if grant.kind == "TRANSACTIONAL_ID"]
        if not found:
            raise
        raise KafkaUnavailable(f"{missing(found)}.") from error


def provide_answers(admin: KafkaAdmin, settings: Settings) -> bool:
    """Create the topic of answers if it is missing; return False if the job cannot write to it."""
    spec = answers_spec(settings)
    try:
        if spec.name not in admin.names() and admin.create(spec):
            admin.ids_of_new([spec.name])
        allowed = admin.allowed_on_topics([spec.name]).get(spec.name)
        if allowed is None or "WRITE" in allowed:
            return True
        problem = REFUSED
    except KafkaUnavailable as error:  # a topic that may not be seen looks missing, and may not be created
        problem = str(error)
    if REFUSED in problem:
        problem = missing([writable(spec.name)])
    log.warning("`reexpand explain` and the like get no answers from this job: %s", problem.rstrip("."))
    return False


def end_abandoned(spark: SparkSession, settings: Settings, admin: KafkaAdmin) -> None:
    """End the open transactions of checkpoints whose drivers are gone.

    They have held the lease at this clock topic. The next driver of a checkpoint ends the transactions that its
    predecessor left open. If the checkpoint is lost, so is its id. Until the broker aborted the transaction, after 15
    minutes, a new checkpoint could not read past it. A driver that only seems to be gone loses no more than its running
    micro-batch, which its next start repeats. Raises `KafkaUnavailable`.
    """
    left: dict[str, list[str]] = defaultdict(list)
    for name in sorted(admin.open_transactions()):
        if checkpoint_id := checkpoint_of(name):
            left[checkpoint_id].append(name)
    for checkpoint_id, producers in left.items():
        with Lease(spark, settings, checkpoint_id) as lease:
            if lease.is_abandoned():
                admin.end_transactions(producers)
                log.info(
                    "ended %s that a driver of another checkpoint has left open", counted(len(producers), "transaction")
                )


def read_groups(path: Path | None) -> dict[str, bytes]:
    """Return the group events of a TOML file by group; an empty dict when there is no file.

        ["billing"]
        "lite.bind.topic" = "orders"
        "lite.sub.wildcard" = true

    It is for deployments without a broker to keep the attributes. Each start of the job writes them to the group stream
    as ordinary events; attributes that already hold change nothing. An invalid file raises `ConfigInvalid`, which names
    the group.
    """
    if path is None:
        return {}
    try:
        groups = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path} cannot be read: {type(error).__name__}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(f"{path} is not TOML: {error}") from None
    events: dict[str, bytes] = {}
    for group, attributes in groups.items():
        try:
            event = orjson.dumps({"group": group, "attributes": attributes})
            parse_group_event(event)
        except (Rejected, TypeError) as error:
            raise ConfigInvalid(f"{path}, group {group!r}: {error}") from None
        events[group] = event
    return events


def publish_groups(spark: SparkSession, settings: Settings, events: Mapping[str, bytes]) -> None:
    """Write group events to the group stream; raise `NotWritten`."""
    if not events:
        return
    with Producer(spark, settings) as producer:
        producer.send_all(settings.group_events, (KafkaRecord(group.encode(), each) for group, each in events.items()))
    log.info("wrote the attributes of %s", counted(len(events), "group"))
