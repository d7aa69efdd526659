"""A RocketMQ whose name server, broker and proxy are processes of their own, each of which can be killed alone."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Self

from streaming.errors import BrokerFailed
from streaming.local import jars
from streaming.local.java import find_java
from streaming.local.rocketmq import JAVA_OPTIONS, Ports, configuration, load_ports
from streaming.local.server import POLL_SECONDS, Server

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_START_SECONDS = 180


class Part(Server):
    """One server of RocketMQ.

    Args:
        folder: its folder.
        ports: ports of all servers.
        command: main class and arguments.
        ready: text in its log that tells that it answers.
    """

    def __init__(self, folder: Path, ports: Ports, command: Sequence[str], ready: str) -> None:
        super().__init__(folder, "server.log", _START_SECONDS)
        self._ports, self._command, self._ready = ports, command, ready

    def _begin(self, lock: IO[str]) -> None:
        java = find_java()
        configuration(self.folder, self._ports, {})
        classpath = os.pathsep.join(map(str, jars.rocketmq()))
        self._spawn(java, [str(java.executable), *JAVA_OPTIONS, "-cp", classpath, *self._command], lock)
        deadline = time.monotonic() + self._timeout
        while self._ready not in self._log():
            if not self.running or time.monotonic() > deadline:
                raise self._failed()
            time.sleep(POLL_SECONDS)


class SplitRocketMQ:
    """The servers, at addresses that they keep."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        ports = load_ports(folder)
        at = "org.apache.rocketmq."
        self.name_server_part = Part(
            folder / "names", ports, [f"{at}namesrv.NamesrvStartup", "-c", "names.properties"], "boot success"
        )
        self.broker_part = Part(
            folder / "broker", ports, [f"{at}broker.BrokerStartup", "-c", "broker.properties"], "boot success"
        )
        self.proxy_part = Part(
            folder / "proxy", ports, [f"{at}proxy.ProxyStartup", "-pm", "cluster", "-pc", "proxy.json"], "successfully"
        )
        self.name_server = f"127.0.0.1:{ports.name_server}"
        self.broker = f"127.0.0.1:{ports.broker}"
        self.endpoints = f"127.0.0.1:{ports.proxy}"
        self.parts = {"name server": self.name_server_part, "broker": self.broker_part, "proxy": self.proxy_part}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.name_server_part)
            stack.enter_context(self.broker_part)
            self._start_proxy()
            stack.callback(self.proxy_part.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start_proxy(self) -> None:
        """Start the proxy, which ends where no broker is registered yet."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.proxy_part.start()
            except BrokerFailed:
                if time.monotonic() > deadline:
                    raise
            else:
                return
