"""`reexpand watch-rocketmq` as a process, and its announced events."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streaming.rocketmq.server import RocketMQ
from tests.support.processes import child
from tests.support.running_job import REEXPAND, Streams
from tests.support.split_rocketmq import SplitRocketMQ


def watch_command(name_server: str, streams: Streams, *options: str, parent: str = "orders") -> list[str]:
    return [
        *(REEXPAND, "watch-rocketmq", "--namesrv", name_server, "--parent", parent),
        *("--bootstrap-servers", streams.bootstrap_servers, "--topic-events", streams.settings.topic_events),
        *options,
    ]


@contextmanager
def watching(
    server: RocketMQ | SplitRocketMQ, streams: Streams, *options: str, parent: str = "orders"
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the watcher, and kill it at the end."""
    command = watch_command(server.name_server, streams, *options, parent=parent)
    with child(command, stdout=subprocess.DEVNULL) as process:
        yield process


def announced(streams: Streams) -> list[dict[str, Any]]:
    """Return all announced events, without times and ids."""
    values = (json.loads(message.value() or b"") for message in streams.read(streams.settings.topic_events))
    left_out = {"timestamp", "topicId", "parentTopic"}
    return [{key: value for key, value in event.items() if key not in left_out} for event in values]
