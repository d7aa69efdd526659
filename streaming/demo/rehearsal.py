"""A short run of the job that records the Java classes for the archive."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer

from streaming.config import Settings
from streaming.demo.process import Job
from streaming.demo.scenario import SCENES
from streaming.demo.verdict import Follower
from streaming.errors import DemoFailed
from streaming.kafka import specs as topics
from streaming.kafka.topics import create_topics
from streaming.local import classes
from streaming.local.broker import Broker
from streaming.records.model import Stream

_SECONDS = 180.0
"""Timeout of the first update."""

_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.2


def rehearse(archive: Path) -> None:
    """Run the job on a dedicated broker until its first update, and archive the classes that it has loaded.

    Args:
        archive: path of the archive, from `classes.archive_file`.

    Raises:
        DemoFailed: the job does not start, or writes no update.
        JarsUnavailable: the archive cannot be created or stored.
        BrokerFailed: the broker does not start.
    """
    with TemporaryDirectory(prefix="reexpand-") as name:
        folder = Path(name)
        loaded, log = folder / "classes", folder / "job.log"
        with Broker(folder / "kafka") as broker:
            settings = Settings.model_construct(
                bootstrap_servers=broker.bootstrap_servers, checkpoint=str(folder / "checkpoint")
            )
            create_topics(broker.bootstrap_servers, topics.specs(settings))
            _send_all(settings)
            with Job(settings, log, folder / "spark", classes.recording_options(loaded)) as job:
                _wait_for_update(settings, job)
                if job.stop(_STOP_SECONDS) != 0:
                    raise job.failure("did not stop cleanly")
        classes.make_archive(archive, loaded, log.read_text(encoding="utf-8", errors="replace"))


def _send_all(settings: Settings) -> None:
    names = dict(zip(Stream, settings.inputs, strict=True))
    producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "log_level": 0})
    for scene in SCENES:
        for step in scene.steps:
            producer.produce(names[step.stream], step.value, step.key)
    if producer.flush(_STOP_SECONDS):
        raise DemoFailed("The broker does not accept the events of the rehearsal.")


def _wait_for_update(settings: Settings, job: Job) -> None:
    deadline = time.monotonic() + _SECONDS
    with Follower(settings) as follower:
        while not follower.relation:
            job.check()
            for _ in follower.poll(_POLL_SECONDS):
                pass
            if time.monotonic() > deadline:
                raise job.failure(f"has written no update after {_SECONDS:.0f} s")
