"""What the job of a rebuild writes: only what it says to itself."""

from collections.abc import Generator
from typing import Any

import pytest

from streaming.config import load
from streaming.errors import UpdatesUnknown
from streaming.kafka import facts
from streaming.kafka.facts import NotedTopic
from streaming.records.model import Stream
from streaming.records.writing import KafkaRecord
from streaming.spark import checkpoint, provision, sinks
from streaming.spark.checkpoint import Agreement, QueryProgress
from streaming.spark.expand import _output_frames
from streaming.worker.rows import Output, OutputKind

SETTINGS = load({"bootstrap_servers": "b:1", "checkpoint": "/c"})
INPUTS = {SETTINGS.clock, SETTINGS.group_events, SETTINGS.subscription_events}


def outputs() -> Generator[Output, None, str]:
    """The output of a key."""
    output = Output()
    output.add_dead_letter("not-json", KafkaRecord(b"d", b"letter"))
    output.add(OutputKind.UPDATES, KafkaRecord(b"u", b"update"))
    for stream in (Stream.CLOCK, Stream.GROUPS, Stream.SUBSCRIPTIONS):
        output.add(OutputKind.INPUT + stream, KafkaRecord(b"i", b"record"))
    yield output
    return "state"


@pytest.mark.parametrize("silent", [False, True])
def test_updates_dead_letters_and_counts_are_dropped(silent: bool) -> None:  # noqa: FBT001
    frames = _output_frames(outputs(), sinks.topics(SETTINGS, silent=silent))
    (frame,) = frames
    found = set(frame["topic"])
    assert found == (INPUTS if silent else {*INPUTS, SETTINGS.updates, SETTINGS.dead_letters, None})


class _Admin:
    """Kafka that has all topics, with ten records in each."""

    def names(self) -> set[str]:
        """All topics."""
        return set(facts.names(SETTINGS).values())

    def ids(self, names: list[str]) -> dict[str, str]:
        """An id for each."""
        return dict.fromkeys(names, "id")

    def configurations(self, *_: object) -> dict[str, dict[str, str]]:
        """None of interest."""
        return {}

    def spans(self, names: list[str]) -> tuple[Any, Any]:
        """Offsets of the first record, and behind the last one."""
        return {name: {0: 0} for name in names}, {name: {0: 10} for name in names}

    def last_sources(self, _: str) -> set[facts.EntryPlace]:
        """An update because of the last record."""
        return {facts.EntryPlace(SETTINGS.topic_events, 0, 9)}

    def markers(self, _: list[str]) -> dict[str, int]:
        """No micro-batch is marked as written."""
        return {}


@pytest.mark.parametrize("begun", [False, True])
def test_it_takes_the_updates_topic_as_it_is(begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    """Updates of another checkpoint, and updates because of records that it has not read."""
    offsets = {SETTINGS.topic_events: {0: 5}}
    progress = QueryProgress(begun, offsets, offsets)
    monkeypatch.setattr(checkpoint, "progress", lambda *_: progress)
    nothing: Any = None
    admin: Any = _Admin()
    provided = provision.provide(nothing, SETTINGS, admin, Agreement("id", 1), progress, rebuilding=True)
    assert provided["updates"] == NotedTopic(SETTINGS.updates, "id")
    with pytest.raises(UpdatesUnknown, match="`reexpand rebuild`"):
        provision.provide(nothing, SETTINGS, admin, Agreement("id", 1), progress)
