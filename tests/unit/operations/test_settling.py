"""When a rebuild has read what was there, and all that followed from it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from streaming.kafka.facts import Offsets
from streaming.operations.rebuild import ROUNDS, Followed, followed, settling
from streaming.spark.query import InputProgress
from streaming.worker.signature import Signer
from tests.support.builders import request_value

NOTHING = Followed(own=False, steps=False)
OWN = Followed(own=True, steps=False)
STEP = Followed(own=True, steps=True)


class Query:
    """A query over one input; `end` is where it ends, `at` is how far it was read."""

    def __init__(self, followed: Iterable[Followed] = ()) -> None:
        self.end, self.at, self.told = 10, 0, False
        self.looks: list[tuple[int, int]] = []
        self.progress: list[tuple[str, int, int | None]] = []
        self._followed = iter(followed)
        reading = InputProgress(lambda: {"t": {0: self.end}}, lambda: {"t": {0: self.at}}, lambda: self.told)
        self.may_end = settling(reading, self._look, lambda *each: self.progress.append(each))

    def _look(self, start: Offsets, end: Offsets, /) -> Followed:
        self.looks.append((start["t"][0], end["t"][0]))
        return next(self._followed, NOTHING)

    def reads_all(self) -> bool:
        """Read up to the end, and ask."""
        self.at = self.end
        return self.may_end()

    def has_told(self) -> "Query":
        """Read all that was there, the tick included, so that the next call looks for the first time."""
        assert not self.reads_all()
        self.told = True
        assert not self.reads_all()
        assert not self.reads_all()
        return self


def test_it_waits_for_what_was_there_at_the_start() -> None:
    query = Query()
    query.end, query.at, query.told = 20, 9, True
    assert not query.may_end()
    assert not query.looks
    assert query.progress == [("inputs", 9, 10)]


def test_it_waits_for_a_tick_and_for_what_follows_from_it() -> None:
    """The tick stands behind what was there, and what follows from it behind the tick."""
    query = Query()
    for _ in range(3):
        assert not query.reads_all()
    query.told = True
    query.end = 11  # the tick
    assert not query.reads_all()
    query.at = 10
    assert not query.may_end()
    query.at, query.end = 11, 13  # what follows from the tick
    assert not query.may_end()
    query.at, query.end = 12, 15
    assert not query.may_end()
    assert query.looks == []
    assert query.reads_all()
    assert query.looks == [(11, 13)]


def test_it_goes_on_as_long_as_the_job_writes_to_itself() -> None:
    query = Query([OWN, OWN, NOTHING]).has_told()
    ends = []
    for end in (12, 14, 16):
        ends.append(query.reads_all())
        query.end = end
    assert ends == [False, False, True]
    assert query.looks == [(10, 10), (10, 10), (10, 12)]


def test_beside_producers_to_whom_the_job_answers_some_rounds_are_enough() -> None:
    query = Query([OWN] * 100).has_told()
    assert [query.reads_all() for _ in range(ROUNDS)] == [False] * (ROUNDS - 1) + [True]


def test_a_wide_change_is_carried_out_first() -> None:
    query = Query([STEP] * 30 + [OWN]).has_told()
    assert [query.reads_all() for _ in range(31)] == [False] * 30 + [True]


class _Message:
    def __init__(self, topic: str, value: bytes | None) -> None:
        self._topic, self._value = topic, value

    def topic(self) -> str:
        return self._topic

    def value(self) -> bytes | None:
        return self._value

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 5


SIGNER = Signer(b"secret")
REQUEST = str(request_value()).replace("'", '"').encode()


@pytest.mark.parametrize(
    ("topic", "value", "wanted"),
    [
        ("clock", b'{"tick":7}', NOTHING),
        ("clock", b'{"alarm":7,"parentTopic":"p","shard":0}', OWN),
        ("clock", b'{"wake":7,"parentTopic":"p","shard":0}', OWN),
        ("clock", b'{"wake":0,"parentTopic":"p","shard":0}', STEP),
        ("requests", REQUEST, NOTHING),
        ("requests", None, NOTHING),
        ("requests", SIGNER.sign(REQUEST), OWN),
        ("requests", Signer(b"other").sign(REQUEST), NOTHING),
    ],
)
def test_records_of_the_job_are_told_from_those_of_others(topic: str, value: bytes | None, wanted: Followed) -> None:
    class Reader:
        def read(self, spans: Mapping[Any, Any]) -> Iterator[list[_Message]]:
            assert {(where.topic, *span) for where, span in spans.items()} == {("clock", 2, 9), ("requests", 0, 3)}
            yield [_Message(topic, value)]

    reader: Any = Reader()
    end = {"clock": {0: 9}, "requests": {0: 3}, "topics": {0: 4}}
    assert followed(reader, ("clock", {"requests"}), lambda: SIGNER, {"clock": {0: 2}}, end) == wanted
