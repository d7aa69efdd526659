"""The services of docker-compose.yml, brought up on the container engine of this machine."""

import importlib
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from streaming.local.server import free_port
from tests.support.engine import obstacle
from tests.support.processes import eventually
from tests.support.running_job import Streams

_ROOT = Path(__file__).parents[2]
_IMAGE = re.compile(r"\$\{(REEXPAND_\w+_IMAGE):-(.+)\}")
_UP_SECONDS = 1500
_HEALTHY_SECONDS = 180
_ANSWER_SECONDS = 60
_LOG_CHARACTERS_SHOWN = 6000


class Services:
    """The services under a project name and a port of their own, so that they meet no others.

    Args:
        compose: the command of Compose.
        engine: a client of the container engine.
    """

    def __init__(self, compose: list[str], engine: Any) -> None:
        self._name = f"reexpand-test-{secrets.token_hex(4)}"
        self._command = [*compose, "--project-name", self._name]
        self._engine = engine
        self._port = free_port()
        others = ("HTTP", "PROMETHEUS", "GRAFANA")
        self._ports = {f"REEXPAND_{name}_PORT": str(free_port()) for name in others}
        self._ports["REEXPAND_KAFKA_PORT"] = str(self._port)
        self._streams = Streams(f"127.0.0.1:{self._port}", Path())

    def compose(self, *arguments: str, timeout: float = _HEALTHY_SECONDS) -> str:
        """Run a command of Compose and return what it prints."""
        # Images may come from a mirror; other settings are for the user's own services.
        keep = re.compile(r"(?!REEXPAND_)|REEXPAND_\w+_IMAGE$")
        inherited = {name: value for name, value in os.environ.items() if keep.match(name)}
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=_ROOT,
            env={**inherited, **self._ports},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{' '.join(done.args)}: exit code {done.returncode}\n{done.stdout[-_LOG_CHARACTERS_SHOWN:]}")
        return done.stdout

    def state(self, service: str) -> dict[str, Any]:
        """What the engine knows about the container of a service, running or not."""
        labels = [f"com.docker.compose.project={self._name}", f"com.docker.compose.service={service}"]
        (container,) = self._engine.containers.list(all=True, filters={"label": labels})
        state: dict[str, Any] = container.attrs["State"]
        return state

    def until_healthy(self, service: str) -> None:
        """Wait until the service's own health check passes."""
        self._eventually(lambda: self.state(service)["Health"]["Status"] == "healthy", _HEALTHY_SECONDS)

    def until_updates(self, parent: str, wanted: list[tuple[str, str]]) -> None:
        """Wait until all updates of a parent, from the beginning, are the wanted ones."""
        found: list[tuple[str, str]] = []

        def arrived() -> bool:
            found[:] = self.updates(parent)
            return len(found) >= len(wanted)

        self._eventually(arrived, _ANSWER_SECONDS)
        assert found == wanted, self._read("lite-dead-letters")

    def send(self, topic: str, key: str, value: dict[str, Any]) -> None:
        """Send an event from outside, and wait until Kafka has it."""
        self._streams.write(topic, (key.encode(), json.dumps(value).encode()))

    def updates(self, parent: str) -> list[tuple[str, str]]:
        """The updates of a parent so far, as they are read from outside: operation and topic."""
        found = [update for update in self._read("lite-subscription-updates") if update.get("parentTopic") == parent]
        return [(update["op"], update["liteTopic"]) for update in found]

    def _read(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(message.value() or b"{}") for message in self._streams.read(topic)]

    def _eventually(self, holds: Callable[[], bool], seconds: float) -> None:
        if not eventually(holds, seconds, 0.5):
            pytest.fail(f"not within {seconds:.0f} s\n{self.compose('logs', '--no-color', '--tail=60')}")


@contextmanager
def running_services() -> Iterator[Services]:
    """The services, built, up and healthy; gone with their volumes afterwards, whatever happens."""
    obstacle = _obstacle()
    if obstacle:
        pytest.skip(obstacle)
    with closing(importlib.import_module("docker").from_env()) as engine:
        services = Services(_compose(), engine)
        try:
            services.compose("up", "--detach", "--build", timeout=_UP_SECONDS)
            services.until_healthy("reexpand")
            yield services
        finally:
            services.compose("down", "--volumes", "--remove-orphans")


@cache
def _obstacle() -> str | None:
    images = _IMAGE.findall((_ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    found = obstacle(os.environ.get(name, pinned) for name, pinned in images)
    if found is None and not _compose():
        return "there is a container engine, but neither `docker compose` nor `docker-compose`"
    return found


@cache
def _compose() -> list[str]:
    """The command of Compose: the one that REEXPAND_TEST_COMPOSE names, else version 2, else version 1."""
    given = os.environ.get("REEXPAND_TEST_COMPOSE", "").split()
    for command in [given] if given else [["docker", "compose"], ["docker-compose"]]:
        if (
            shutil.which(command[0])
            and not subprocess.run([*command, "version"], capture_output=True, check=False).returncode
        ):
            return command
    return []
