"""Events that happen to the oracle or to a simulated job."""

from collections import Counter
from typing import Self

from streaming.oracle import Oracle
from streaming.records.model import Stream
from tests.support.events import Event, encoded, stream_of
from tests.support.histories import feed
from tests.support.simulator import Record, Simulation


class World:
    """The oracle or a job, to which micro-batches of events happen."""

    def __init__(self, told: Oracle | Simulation, *events: Event) -> None:
        self.told = told
        self._offsets = Counter[Stream]()
        self.batch(*events)

    def records(self, *events: Event, at: int = 0) -> list[Record]:
        """Return records with the next offsets of their streams, and the timestamp `at`."""
        found = []
        for event in events:
            stream = stream_of(event)
            self._offsets[stream] += 1
            found.append(Record(stream, encoded(event), 0, self._offsets[stream], at))
        return found

    def batch(self, *events: Event, at: int = 0) -> Self:
        """Apply a micro-batch of records with the timestamp `at`; a job also reads what it writes to its inputs."""
        records = self.records(*events, at=at)
        if isinstance(self.told, Oracle):
            feed(self.told, records)
        else:
            self.told.now = at
            self.told.run(records)
        return self

    @property
    def rows(self) -> set[str]:
        """The relation as texts of client, topic and part, and of parent and group unless these are `p` and `g`."""
        return {
            f"{row.client_id} {row.lite_topic} {row.part}".strip()
            + (f" on {row.parent}" if row.parent != "p" else "")
            + (f" of {row.group}" if row.group != "g" else "")
            for row in (self.told.relation() if isinstance(self.told, Oracle) else self.told.relation)
        }
