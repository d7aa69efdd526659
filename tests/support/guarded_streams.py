"""Six topics of a test on a broker that requires security, and the job and verbs that use them."""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import KafkaError, Producer

from streaming.kafka.options import client_options
from streaming.kafka.permissions import Grant, grants
from tests.support.processes import eventually
from tests.support.running_job import POLL_SECONDS, REEXPAND, TOPIC_SETTINGS, Job, Streams
from tests.support.secured import SecuredBroker

PARENT = "orders"
GROUP = {"group": "billing", "attributes": {"lite.bind.topic": PARENT, "lite.sub.wildcard": "true"}}
REQUEST = {"action": "COMPLETE_ADD", "clientId": "c1", "group": "billing", "topic": PARENT, "liteTopicSet": ["eu__*"]}
TOPIC = {"event": "CREATED", "parentTopic": PARENT, "liteTopic": "eu__1"}
PATIENCE_SECONDS = 300


class GuardedStreams:
    """Topics created by the broker's administrator, and their users."""

    def __init__(self, secured: SecuredBroker, folder: Path) -> None:
        self._secured = secured
        self._folder = folder
        self.streams = Streams(secured.broker.bootstrap_servers, folder / "checkpoint")
        self._logs = self._users = 0

    def user(self, *roles: str, without: Grant | None = None) -> Path:
        """Return the client options of a new user with a password and all but one grant of its roles."""
        self._users += 1
        name = f"{self.streams.prefix}-{self._users}"
        self._secured.allow(name, self.needed(*roles, without=without))
        return self._secured.with_password(name)

    def administrator(self) -> Producer:
        """Return a producer that may write to all topics."""
        return Producer({"bootstrap.servers": self.streams.bootstrap_servers, "log_level": 0})

    def needed(self, *roles: str, without: Grant | None = None) -> list[Grant]:
        parent = self.parent
        found = [grant for role in roles for grant in grants(role, self.streams.settings, parent)]
        return [grant for grant in found if grant != without]

    @property
    def parent(self) -> str:
        return f"{self.streams.prefix}-{PARENT}"

    @property
    def secrets(self) -> list[bytes]:
        return [secret.encode() for found in self._secured.secrets.values() for secret in found]

    def know(self, secret: str) -> None:
        self._secured.secrets.setdefault("", []).append(secret)

    def job(self, options: Path, *more: str, certificate: bool = False) -> Job:
        address = self._secured.certificates if certificate else self._secured.scram
        own = Streams(address, self.streams.checkpoint, self.streams.prefix)
        return Job(own, self._log(), "--kafka-options", str(options), "--tick-interval-ms", "1000", *more)

    def send(
        self, options: Path, setting: str, value: bytes | Mapping[str, Any], key: str = PARENT
    ) -> KafkaError | None:
        """Write a record as a user, and return the error of its delivery."""
        errors: list[KafkaError | None] = []
        given = {"bootstrap.servers": self._secured.scram, "log_level": 0, **client_options(options)}
        producer = Producer(given)
        data = value if isinstance(value, bytes) else orjson.dumps(value)
        topic = getattr(self.streams.settings, setting, setting)
        producer.produce(topic, data, key, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        return errors[0]

    def verb(self, *words: str, options: Path, certificate: bool = False) -> subprocess.CompletedProcess[str]:
        address = self._secured.certificates if certificate else self._secured.scram
        command = [REEXPAND, *words, "--bootstrap-servers", address, "--kafka-options", str(options)]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )

    @property
    def environment(self) -> dict[str, str]:
        settings = self.streams.settings
        return {**os.environ, **{f"REEXPAND_{name.upper()}": getattr(settings, name) for name in TOPIC_SETTINGS}}

    @property
    def address(self) -> str:
        """Address of the listener that requires name and password."""
        return self._secured.scram

    def _log(self) -> Path:
        self._logs += 1
        return self._folder / f"job-{self._logs}.log"


def texts(folders: Iterable[Path]) -> dict[str, bytes]:
    files = [file for folder in folders for file in [folder, *folder.rglob("*")] if file.is_file()]
    return {str(file): file.read_bytes() for file in files}


def command_lines(session: int) -> bytes:
    """Return the command lines of all processes of a session; requires /proc."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) == session:
                found.append((process / "cmdline").read_bytes())
        except OSError:  # it has just ended
            continue
    return b"\n".join(found)


def wait_for(job: Job, text: str) -> str:
    """Wait until a job has logged a text or has ended, and return its log."""
    eventually(lambda: text in job.said() or job.process.poll() is not None, PATIENCE_SECONDS, POLL_SECONDS)
    return job.said()
