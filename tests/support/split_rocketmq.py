"""RocketMQ whose name server, broker and proxy are separate processes that can be killed."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Self

from streaming.errors import BrokerFailed
from streaming.local import jars
from streaming.local.java import find_java
from streaming.local.server import Server, free_port
from streaming.rocketmq.server import JAVA_OPTIONS, Ports, configuration, load_ports

_START_SECONDS = 180
_AT = "org.apache.rocketmq."
_BROKER = (f"{_AT}broker.BrokerStartup", "-c", "broker.properties")


@dataclass(frozen=True)
class Setup:
    """Settings and Java options that differ from those of the usual servers."""

    broker: Mapping[str, object] = field(default_factory=dict)
    proxy: Mapping[str, object] = field(default_factory=dict)
    java_options: Sequence[str] = ()


_USUAL = Setup()


class Part(Server):
    """Server of RocketMQ. It answers once its log contains the text `ready`."""

    def __init__(self, folder: Path, ports: Ports, setup: Setup, command: Sequence[str], ready: str) -> None:
        super().__init__(folder, "server.log", _START_SECONDS)
        self._ports, self._setup, self._command, self._ready = ports, setup, command, ready

    def _begin(self, lock: IO[str]) -> None:
        java = find_java()
        configuration(self.folder, self._ports, {})
        with (self.folder / "broker.properties").open("a") as settings:  # the last value of a name wins
            settings.writelines(f"{name}={value}\n" for name, value in self._setup.broker.items())
        proxy = self.folder / "proxy.json"
        proxy.write_text(json.dumps({**json.loads(proxy.read_text()), **self._setup.proxy}))
        options = [*JAVA_OPTIONS, *self._setup.java_options, "-cp", os.pathsep.join(map(str, jars.rocketmq()))]
        command = [str(java.executable), *options, *self._command]
        if not self._spawned(java, command, lock, lambda: self._ready in self._log()):
            raise self._failed()


class SplitRocketMQ:
    """Servers of RocketMQ at fixed addresses."""

    def __init__(self, folder: Path, setup: Setup = _USUAL) -> None:
        folder.mkdir(parents=True)
        self._folder, self._ports = folder, load_ports(folder)
        ports = self._ports
        names = [f"{_AT}namesrv.NamesrvStartup", "-c", "names.properties"]
        proxy = [f"{_AT}proxy.ProxyStartup", "-pm", "cluster", "-pc", "proxy.json"]
        self.name_server_part = Part(folder / "names", ports, setup, names, "boot success")
        self.broker_part = Part(folder / "broker", ports, setup, _BROKER, "boot success")
        self.proxy_part = Part(folder / "proxy", ports, setup, proxy, "successfully")
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

    def another_broker(self, name: str) -> tuple[Part, str]:
        """Return another broker of the cluster, not yet started, and its address."""
        ports = replace(self._ports, broker=free_port(), replication=free_port())
        part = Part(self._folder / name, ports, Setup({"brokerName": name}), _BROKER, "boot success")
        return part, f"127.0.0.1:{ports.broker}"

    def _start_proxy(self) -> None:
        """Start the proxy, which exits if no broker is registered yet."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.proxy_part.start()
            except BrokerFailed:
                if time.monotonic() > deadline:
                    raise
            else:
                return
