"""Missing permissions of the job's user, reported at the start and when a request was refused."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from streaming.config import Settings
from streaming.errors import KafkaUnavailable, ReexpandError, TopicReplaced
from streaming.kafka.permissions import Grant, grants, missing
from streaming.spark.kafka_admin import KafkaAdmin

log = logging.getLogger("reexpand")

REFUSED = "AuthorizationException"
"""Suffix of the names of Java's exceptions for forbidden requests."""

_TRANSACTIONS_REFUSED = f"TransactionalId{REFUSED}"


def lacking(admin: KafkaAdmin, settings: Settings, group: str) -> list[Grant]:
    """Return the job user's missing permissions for topics and groups, if the broker reports them.

    Args:
        admin: Kafka, with all of the job's client options.
        settings: settings of the job.
        group: consumer group of the checkpoint.

    Raises:
        KafkaUnavailable: no broker answers.
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


def warn(admin: KafkaAdmin, settings: Settings, group: str) -> None:
    """Warn of missing permissions that only a later record may need."""
    try:
        found = lacking(admin, settings, group)
    except KafkaUnavailable:  # the next request to Kafka reports it
        return
    if found:
        log.warning("%s; the job ends when it needs that", missing(found))


@contextmanager
def explaining(admin: KafkaAdmin, settings: Settings, group: str) -> Iterator[None]:
    """Name the missing permissions in errors of the block that are refusals of the broker."""
    try:
        yield
    except ReexpandError as error:
        raise _explained(error, admin, settings, group) from error


def _explained(error: ReexpandError, admin: KafkaAdmin, settings: Settings, group: str) -> ReexpandError:
    text = str(error)
    if REFUSED not in text and not isinstance(error, TopicReplaced):  # a topic that may not be seen looks deleted
        return error
    try:
        found = lacking(admin, settings, group)
    except KafkaUnavailable:
        return error
    if _TRANSACTIONS_REFUSED in text:
        found += [grant for grant in grants("job", settings) if grant.kind == "TRANSACTIONAL_ID"]
    return KafkaUnavailable(f"{missing(found)}.") if found else error
