"""Topic of answers at the start of the job, which can run without it."""

import logging

from streaming.config import Settings
from streaming.errors import KafkaUnavailable
from streaming.kafka.permissions import missing, writable
from streaming.kafka.specs import answers_spec
from streaming.spark import access
from streaming.spark.kafka_admin import KafkaAdmin

log = logging.getLogger("reexpand")


def provide(admin: KafkaAdmin, settings: Settings) -> bool:
    """Create the topic of answers if it is missing; return False if the job cannot write to it."""
    spec = answers_spec(settings)
    try:
        if spec.name not in admin.names() and admin.create(spec):
            admin.ids_of_new([spec.name])
        allowed = admin.allowed_on_topics([spec.name]).get(spec.name)
    except KafkaUnavailable as error:
        # A topic that may not be seen looks missing, and may not be created.
        problem = missing([writable(spec.name)]) if access.REFUSED in str(error) else str(error)
    else:
        if allowed is None or "WRITE" in allowed:
            return True
        problem = missing([writable(spec.name)])
    log.warning("`reexpand explain` and the like get no answers from this job: %s", problem.rstrip("."))
    return False
