"""Metrics and health of the real job, as Prometheus and probes ask for them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from streaming.events.model import Stream
from streaming.kafka.permissions import lag_group
from tests.support.processes import eventually
from tests.support.running_job import SETTLE_SECONDS, Job, Streams, running

if TYPE_CHECKING:
    from pathlib import Path

GROUP = {"group": "g", "attributes": {"lite.bind.topic": "p", "lite.sub.wildcard": "true"}}
REQUEST = {"action": "COMPLETE_ADD", "clientId": "c", "group": "g", "topic": "p", "liteTopicSet": ["t*"]}
TOPICS = 30


def test_metrics_health_and_offsets_of_a_job_that_works(streams: Streams, tmp_path: Path) -> None:
    with running(streams, tmp_path / "log", "--http", "127.0.0.1:0") as job:
        address = url(job)
        send(streams)
        assert eventually(lambda: sample(address, "reexpand_updates_total", op="add", cause="TOPIC_CREATED") >= TOPICS)
        assert sample(address, "reexpand_dead_letters_total", reason="not-json") == 1
        assert sample(address, "reexpand_ignored_total", reason="topic-exists") == 1
        assert sample(address, "reexpand_latency_seconds_count") >= TOPICS
        assert sample(address, "reexpand_latency_seconds_sum") / sample(address, "reexpand_latency_seconds_count") > 0
        assert sample(address, "reexpand_topics") == TOPICS
        assert sample(address, "reexpand_shard_topics", parent="p", shard="0") == TOPICS
        assert sample(address, "reexpand_clients") == 1
        assert sample(address, "reexpand_micro_batch_seconds_count", phase="work") >= 1
        assert all(
            sample(address, "reexpand_memory_bytes", process=each) > 1e7 for each in ("driver", "jvm", "workers")
        )
        assert eventually(lambda: probe(f"{address}/readyz")[0] == 200, SETTLE_SECONDS)
        assert probe(f"{address}/healthz")[1]["state"] == "ready"
        assert sample(address, "reexpand_input_lag_records", input=streams.settings.topic_events) == 0
        ends = streams.ends(streams.settings.topic_events, committed=False)
        assert eventually(lambda: committed(streams) == ends, 20)


def send(streams: Streams) -> None:
    """Write topics that a pattern asks for, one of them twice, and a record that is no event."""
    with_names = [{"event": "CREATED", "parentTopic": "p", "liteTopic": f"t{number}"} for number in range(TOPICS)]
    feed = streams.producer()
    feed.send(Stream.GROUPS, GROUP, "g")
    feed.send(Stream.SUBSCRIPTIONS, {"subscriptionSet": [REQUEST]}, "g")
    feed.flush()
    assert eventually(streams.are_read, SETTLE_SECONDS)
    for event in [*with_names, with_names[0]]:
        feed.send(Stream.TOPICS, event, "p")
    feed.send(Stream.TOPICS, b"?", "p")
    feed.flush()


def url(job: Job) -> str:
    """Return the address of the job's server, which its log names."""
    (found,) = re.findall(r"metrics and health: (\S+)/metrics", job.said())
    return str(found)


def probe(address: str) -> tuple[int, dict[str, Any]]:
    """Return status code and body of an answer."""
    try:
        with urlopen(address, timeout=10) as answer:  # noqa: S310 - of the job
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def sample(address: str, name: str, **labels: str) -> float:
    """Return the value of a metric."""
    with urlopen(f"{address}/metrics", timeout=10) as answer:  # noqa: S310 - as above
        families = text_string_to_metric_families(answer.read().decode())
    (value,) = [
        each.value for family in families for each in family.samples if (each.name, each.labels) == (name, labels)
    ]
    return float(value)


def committed(streams: Streams) -> dict[int, int]:
    """Return the offsets of the topic events that lag monitors see."""
    topic = streams.settings.topic_events
    consumer = Consumer(
        {"bootstrap.servers": streams.bootstrap_servers, "group.id": lag_group(streams.settings.updates)}
    )
    try:
        asked = [TopicPartition(topic, number) for number in streams.ends(topic)]
        return {each.partition: max(0, each.offset) for each in consumer.committed(asked, timeout=10)}
    finally:
        consumer.close()
