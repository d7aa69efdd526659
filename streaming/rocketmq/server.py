"""A local RocketMQ with lite topics: name server, broker and proxy in one child process."""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from streaming.errors import BrokerFailed
from streaming.local import classes, jars
from streaming.local.java import FIRST_TIER, find_java
from streaming.local.process import write_whole
from streaming.local.server import HOST, Server, free_port, is_free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger("reexpand")

CLUSTER = "reexpand"
"""Name of the cluster and of its broker."""

JAVA_OPTIONS = (
    "-Xmx128m",
    "-XX:MaxDirectMemorySize=160m",
    FIRST_TIER,
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    # The broker maps and unmaps files with internal classes of the JDK.
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "-Drocketmq.home.dir=.",
    "-Duser.home=.",  # for its logs
)
"""Java options of each server."""

_BROKER_SETTINGS = {
    "enableLmq": "true",  # without it lite messages are accepted but never delivered
    "storeType": "defaultRocksDB",
    "enablePropertyFilter": "true",  # lets the watcher select births
    "autoCreateTopicEnable": "false",  # a misspelt topic is an error
    "autoCreateSubscriptionGroup": "false",
    "mappedFileSizeCommitLog": "16777216",
    "storePathRootDir": "store",
    "storePathCommitLog": "store/commitlog",
}
"""Default settings of the broker. Paths are relative, so the folder can be moved."""

_START_SECONDS = 300

_MOST_USED = 0.9
"""Part of a disk above which RocketMQ 5.5 refuses messages; `diskSpaceWarningLevelRatio` can only lower it."""

_INVISIBLE_MS = 20_000
"""Time in milliseconds after which a message of a killed client is redelivered to another client.

The proxy extends it for live clients. Its default of one minute would block the topic for that long.
"""


@dataclass(frozen=True)
class Ports:
    """Ports of the servers, stored in their folder.

    Attributes:
        broker: port of the broker. Its second port is lower by two.
        replication: port for replicas of the broker (there are none).
        proxy: port of the proxy for gRPC clients.
        proxy_remoting: port of the proxy for remoting clients.
    """

    name_server: int
    broker: int
    replication: int
    proxy: int
    proxy_remoting: int


class RocketMQ(Server):
    """A RocketMQ 5.5 of one node. Data and addresses survive restarts.

    | Usage | Effect |
    |---|---|
    | `with RocketMQ() as server:` | data in `.reexpand/rocketmq`, stopped at the end |
    | `RocketMQ(folder, settings={"minLiteTTl": "20000"})` | any setting of the broker |

    Name server and broker listen on the loopback interface. The proxy listens on all interfaces, because it has no
    setting for the interface.

    Args:
        folder: data folder, created if needed. It is locked while the server runs.
        plugins: additional jars, such as a hook.
    """

    def __init__(
        self,
        folder: Path | str = Path(".reexpand/rocketmq"),
        *,
        settings: Mapping[str, str] | None = None,
        plugins: Sequence[Path] = (),
        java_options: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, "rocketmq.log", _START_SECONDS)
        self._plugins, self._java_options = plugins, java_options
        self._settings = dict(settings or {})
        self._ports: Ports | None = None

    @property
    def name_server(self) -> str:
        """Address of the name server, for tools and remoting clients."""
        return f"{HOST}:{self._started().name_server}"

    @property
    def broker(self) -> str:
        """Address of the broker."""
        return f"{HOST}:{self._started().broker}"

    @property
    def endpoints(self) -> str:
        """Address of the proxy, for gRPC clients."""
        return f"{HOST}:{self._started().proxy}"

    def _started(self) -> Ports:
        if self._ports is None:
            raise BrokerFailed(f"The RocketMQ in {self.folder} is not started.")
        return self._ports

    def _begin(self, lock: IO[str]) -> None:
        java = find_java()
        warn_of_full_disk(self.folder)
        classpath = os.pathsep.join(map(str, [*jars.rocketmq(), classes.rocketmq(), *self._plugins]))
        self._ports = ports = load_ports(self.folder)
        files = configuration(self.folder, ports, self._settings)
        options = [*JAVA_OPTIONS, *self._java_options, "-cp", classpath]
        command = [str(java.executable), *options, "reexpand.local.RocketMQ", *files]
        if not self._spawned(java, command, lock, lambda: "\nready\n" in self._log()):
            raise self._failed()


def warn_of_full_disk(folder: Path) -> None:
    """Warn if RocketMQ will refuse messages because the disk of its folder is nearly full."""
    disk = shutil.disk_usage(folder)
    usable = disk.used + disk.free
    if disk.used > _MOST_USED * usable:
        text = "the disk of %s is %d %% full: RocketMQ refuses messages above %d %%. Free some space there"
        log.warning(text, folder, 100 * disk.used / usable, 100 * _MOST_USED)


def configuration(folder: Path, ports: Ports, settings: Mapping[str, str]) -> list[str]:
    """Write the configuration files of name server, broker and proxy; return their names.

    The settings override the defaults of the broker.
    """
    address = f"{HOST}:{ports.name_server}"
    names = {"listenPort": ports.name_server, "bindAddress": HOST, "kvConfigPath": "names/kv.json"}
    broker = {
        **_BROKER_SETTINGS,
        **settings,
        "brokerClusterName": CLUSTER,
        "brokerName": CLUSTER,
        "brokerId": 0,
        "brokerIP1": HOST,
        "bindAddress": HOST,
        "listenPort": ports.broker,
        "haListenPort": ports.replication,
        "namesrvAddr": address,
    }
    proxy = {
        "rocketMQClusterName": CLUSTER,
        "proxyName": CLUSTER,
        "proxyMode": "CLUSTER",  # local mode does not support lite subscriptions
        "namesrvAddr": address,
        "grpcServerPort": ports.proxy,
        "remotingListenPort": ports.proxy_remoting,
        "defaultInvisibleTimeMills": _INVISIBLE_MS,
    }
    files = {
        "names.properties": _properties(names),
        "broker.properties": _properties(broker),
        "proxy.json": json.dumps(proxy),
    }
    for name, text in files.items():
        write_whole(folder / name, text.encode())
    return list(files)


def load_ports(folder: Path) -> Ports:
    """Load the ports of a folder. Choose new ports for a new folder, or if a port is in use."""
    path = folder / "ports.json"
    try:
        former = Ports(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        former = None
    except (ValueError, TypeError) as error:
        raise BrokerFailed(
            f"{path} cannot be read ({error}). Remove {folder} to start with an empty RocketMQ."
        ) from error
    if former is not None and all(map(is_free, (*asdict(former).values(), former.broker - 2))):
        return former
    chosen: set[int] = set()
    while len(chosen) < len(Ports.__dataclass_fields__):
        port = free_port()
        if not {port - 2, port, port + 2} & chosen and is_free(port - 2):
            chosen.add(port)
    ports = Ports(*chosen)
    if former is not None:
        log.warning("a port of RocketMQ is in use: its addresses change")
    write_whole(path, json.dumps(asdict(ports)).encode())
    return ports


def _properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())
