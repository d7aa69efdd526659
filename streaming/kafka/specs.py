"""Specifications of the job's Kafka topics, and differences between them and the existing topics."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from streaming.config import Settings
from streaming.kafka.topics import TopicSpec

COMPACTION: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "86400000",
}
"""Configuration of the updates topic: compaction, with a day in which every reader can see a removal."""

INPUT: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
}
"""Configuration of the input topics: no expiry, since a new checkpoint builds the relation from them, and the broker's
time, so that leases and TTLs do not depend on the clocks of producers."""

ANSWERS: Final = {"cleanup.policy": "delete", "retention.ms": "3600000"}
"""Configuration of the answers, which are unused after a minute."""

_CONSEQUENCES: Final = {
    "cleanup.policy": "compaction removes events that still count",
    "retention.ms": "records disappear with age, and a new checkpoint cannot build the relation any more",
    "retention.bytes": "the oldest records disappear, and a new checkpoint cannot build the relation any more",
    "message.timestamp.type": "leases and TTLs depend on the clocks of the producers",
}
"""Consequences of another value in the configuration of an input topic."""

_LOST_TICKS: Final = "ticks and alarms may disappear before a job that was stopped has read them"
_WITHOUT_COMPACTION: Final = "it grows without end, or loses current updates"


class Flaw(NamedTuple):
    """An unsuitable value in the configuration of a topic that exists."""

    topic: str
    option: str
    found: str
    wanted: str
    consequence: str

    def __str__(self) -> str:
        return f"the topic {self.topic} has {self.option}={self.found} instead of {self.wanted}: {self.consequence}"


def specs(settings: Settings, partitions: int = 1) -> list[TopicSpec]:
    """Return the specifications of the six required topics."""
    return [
        *(TopicSpec(name, partitions, INPUT) for name in settings.inputs),
        TopicSpec(settings.updates, partitions, COMPACTION),
        TopicSpec(settings.dead_letters, partitions, {}),
    ]


def answers_spec(settings: Settings) -> TopicSpec:
    """Return the specification of the topic of answers, which is optional."""
    return TopicSpec(settings.answers, 1, ANSWERS)


def flaws(settings: Settings, topic: str, found: Mapping[str, str]) -> list[Flaw]:
    """Return the faults in the configuration of an existing topic of the job."""
    if topic in settings.inputs:
        return list(_flaws_of_input(topic, found, clock=topic == settings.clock))
    policy = found.get("cleanup.policy", "compact")
    if topic == settings.updates and policy != "compact":
        return [Flaw(topic, "cleanup.policy", policy, "compact", _WITHOUT_COMPACTION)]
    return []


def _flaws_of_input(topic: str, found: Mapping[str, str], *, clock: bool) -> Iterator[Flaw]:
    policies = found.get("cleanup.policy", "delete").split(",")
    for option, wanted in INPUT.items():
        value = found.get(option, wanted)
        if option.startswith("retention") and "delete" not in policies:
            continue  # it has no effect
        if value != wanted:
            is_lost = clock and option != "message.timestamp.type"
            yield Flaw(topic, option, value, wanted, _LOST_TICKS if is_lost else _CONSEQUENCES[option])
