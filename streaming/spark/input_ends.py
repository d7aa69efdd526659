"""Ends of the inputs, requested without waiting, and the job's positions for lag monitors."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from streaming.errors import KafkaUnavailable
from streaming.kafka.facts import Offsets
from streaming.spark.kafka_admin import KafkaAdmin, root_cause

_END = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)=ListOffsetsResultInfo\(offset=(\d+)")
"""Partition and offset in Java's text of an answer: asking for the fields one by one takes a call each."""


class InputEnds:
    """Asynchronous request for the ends of the inputs."""

    def __init__(self, admin: KafkaAdmin, inputs: Collection[str]) -> None:
        self._admin = admin
        self._numbers = {topic: set(offsets) for topic, offsets in admin.ends(inputs).items()}
        self._request = admin.ends_request(self._numbers)
        self._future: Any = None

    @property
    def is_asked(self) -> bool:
        """True while an answer is awaited."""
        return self._future is not None

    def ask(self, known: Offsets) -> None:
        """Ask for the ends; `known` has the partitions that the query reads."""
        grown = {topic: numbers | set(known.get(topic, ())) for topic, numbers in self._numbers.items()}
        if grown != self._numbers:
            self._numbers = grown
            self._request = self._admin.ends_request(grown)
        self._future = self._admin.asked_ends(self._request)

    def answer(self) -> Offsets | None:
        """Return the ends; None as long as there is no answer.

        Raises:
            KafkaUnavailable: Kafka did not answer.
        """
        if self._future is None or not self._future.isDone():
            return None
        future, self._future = self._future, None
        try:
            text = str(future.get().toString())
        except Py4JJavaError as error:
            raise KafkaUnavailable(root_cause(error)) from None
        found: dict[str, dict[int, int]] = {}
        for topic, number, offset in _END.findall(text):
            found.setdefault(topic, {})[int(number)] = int(offset)
        return found


class CommittedPositions:
    """Positions of the job, committed as offsets of a consumer group, so that lag monitors see them."""

    def __init__(self, admin: KafkaAdmin, group: str) -> None:
        self._admin = admin
        self._group = group
        self._committed: dict[tuple[str, int], int] = {}
        self._sent: Mapping[tuple[str, int], int] = {}
        self._future: Any = None

    def commit(self, read: Offsets, *, again: bool = False) -> None:
        """Commit changed positions without waiting, unless a commit is in flight.

        Args:
            read: positions up to which micro-batches have read.
            again: commit those as well that have not changed: Kafka forgets them after some days.

        Raises:
            KafkaUnavailable: the last commit failed.
        """
        if self._future is not None and not self._take_answer():
            return
        positions = {(topic, number): offset for topic, offsets in read.items() for number, offset in offsets.items()}
        changed = {place: offset for place, offset in positions.items() if self._committed.get(place) != offset}
        self._sent = positions if again else changed
        if self._sent:
            self._future = self._admin.asked_to_commit(self._group, self._sent)

    def _take_answer(self) -> bool:
        if not self._future.isDone():
            return False
        future, self._future = self._future, None
        try:
            future.get()
        except Py4JJavaError as error:
            raise KafkaUnavailable(root_cause(error)) from None
        self._committed.update(self._sent)
        return True
