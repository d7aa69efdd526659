"""Check of the job's Kafka topics at its start, and creation of missing topics."""

import logging

from pyspark.sql import SparkSession

from streaming.config import Settings
from streaming.kafka import facts
from streaming.kafka.facts import NotedTopic, Offsets
from streaming.kafka.specs import INPUT, flaws, specs
from streaming.spark import checkpoint
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.kafka_admin import KafkaAdmin

log = logging.getLogger("reexpand")


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
    """Check the topics against the checkpoint, create missing topics, and return all topics by role.

    Nothing is created for a checkpoint that has written before, dead letters excepted: it would not fit.

    Args:
        spark: session of the job.
        settings: settings of the job.
        admin: Kafka, with all of the job's client options.
        agreed: identity of the checkpoint; without topics if any topics are accepted.
        progress: how far its query has come.
        rebuilding: the checkpoint is rebuilt for an updates topic that may hold anything.
        adopted: positions that the states have read with which a new checkpoint begins; None if it has none.

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
            log.warning("%s; `reexpand topics --fix` mends it", flaw)
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
    """Check the topics that exist before a new checkpoint reads and writes them."""
    beginnings, ends = admin.spans([name for name in found if name != settings.dead_letters])
    if not rebuilding:
        facts.check_empty(settings, _size(settings.updates, beginnings, ends))
    if not settings.accept_loss:
        compacted = [name for name, values in configurations.items() if "compact" in values["cleanup.policy"]]
        facts.check_complete(settings, beginnings, compacted)


def _size(topic: str, beginnings: Offsets, ends: Offsets) -> int:
    """Return the number of offsets that a topic holds; 0 if it does not exist."""
    return sum(end - beginnings[topic][number] for number, end in ends.get(topic, {}).items())
