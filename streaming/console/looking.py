"""Threads of the console that look into Kafka topics at intervals."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, Self

from streaming.kafka.reader import TopicReader

_LOOK_SECONDS: Final = 2.0


class Looking(ABC):
    """Thread that looks into topics every two seconds, as a context manager.

    Args:
        bootstrap_servers: addresses of brokers.
        options: additional librdkafka options.
        name: name of the thread.
    """

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str], name: str) -> None:
        self._servers = bootstrap_servers
        self._options = options
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with TopicReader(self._servers, self._options) as reader:
            while not self._stop.is_set():
                self._look(reader)
                self._stop.wait(_LOOK_SECONDS)

    @abstractmethod
    def _look(self, reader: TopicReader) -> None:
        """Read what is new; called by the thread only."""
