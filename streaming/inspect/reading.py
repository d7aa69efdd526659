"""Parsing of unsent records as in the job."""

from __future__ import annotations

import json
import secrets
import time
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from streaming.coordinator import COORDINATOR
from streaming.errors import Rejected
from streaming.records.model import MAX_AHEAD_MS, Reason, Stream
from streaming.records.routing import Placed, Routing, placed
from streaming.worker.bounds import Bounds
from streaming.worker.inquiry.planning import PLANNED_OFFSET, PlannedProblem
from streaming.worker.reading import KeyReader
from streaming.worker.rows import STREAMS, InputRow, InputRows
from streaming.worker.signature import Signer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.config import Settings

_SIGNED: Final = "signed-by-another-job"
"""Reason to ignore a record with fields reserved for the job and another job's signature."""


class PlannedRecord(NamedTuple):
    """Result of parsing a record as in the job.

    Attributes:
        record: the applied entries; None if there are none.
        problems: dead letters.
        ignored: reasons why other entries have no effect.
    """

    record: dict[str, Any] | None
    problems: tuple[PlannedProblem, ...] = ()
    ignored: tuple[str, ...] = ()


def text_of(record: Mapping[str, Any]) -> bytes:
    """Encode a record as JSON, even if it is invalid."""
    return json.dumps(record).encode()


def bounds_of(settings: Settings) -> Bounds:
    """Return the bounds of records from the settings."""
    return Bounds(
        settings.max_value_bytes, settings.max_requests, settings.max_entries, settings.max_name_bytes, MAX_AHEAD_MS
    )


def read(stream: Stream, text: bytes, bounds: Bounds) -> PlannedRecord:
    """Parse a record as in the job.

    Args:
        stream: its input stream.
        text: its value.
        bounds: bounds of records.
    """
    problem = _beyond(stream, text, bounds)
    if problem is not None:
        return PlannedRecord(None, (problem,))
    applied: list[dict[str, Any]] = []
    problems: list[PlannedProblem] = []
    ignored: list[str] = []
    for each in _reporters(stream, placed(stream, text, Routing())):
        reader = KeyReader(
            each.parent, each.shard, _NAMES, inf, bounds=bounds, signer=Signer(secrets.token_bytes()),
        )  # fmt: skip
        row = InputRow(STREAMS.index(stream), 0, PLANNED_OFFSET, each.entry, _now(), each.payload)
        found = reader.read(InputRows.of([row]))
        problems += (PlannedProblem(str(each.reason), each.message) for each in found.rejected)
        if found.events or stream is Stream.CLOCK:
            applied.append(orjson.loads(each.payload or b""))
        elif not found.rejected:
            ignored.append(_SIGNED)
    if not applied:
        return PlannedRecord(None, tuple(problems), tuple(dict.fromkeys(ignored)))
    is_set = stream is Stream.SUBSCRIPTIONS and applied[0] != orjson.loads(text)
    record = {"subscriptionSet": applied} if is_set else applied[0]
    return PlannedRecord(record, tuple(problems), tuple(dict.fromkeys(ignored)))


_NAMES: Final = (str(STREAMS[0]), str(STREAMS[1]), str(STREAMS[2]), str(STREAMS[3]))
"""Placeholders for the names of the Kafka topics."""


def _now() -> int:
    return time.time_ns() // 1_000_000


def _beyond(stream: Stream, text: bytes, bounds: Bounds) -> PlannedProblem | None:
    """Return the reason to reject a whole record, regardless of its entries, or None."""
    if len(text) > bounds.value_bytes:
        message = f"the value has {len(text):,} bytes; at most {bounds.value_bytes:,} are allowed (max_value_bytes)"
        return PlannedProblem(str(Reason.VALUE_TOO_LARGE), message)
    try:
        rejected = bounds.explain_set(text) if stream is Stream.SUBSCRIPTIONS else None
    except Rejected as error:
        rejected = error
    return None if rejected is None else PlannedProblem(str(rejected.reason), str(rejected))


def _reporters(stream: Stream, found: list[Placed]) -> list[Placed]:
    """Return one place per entry: the key that reports the entry if it is invalid."""
    return found if stream is Stream.TOPICS else [each for each in found if each.parent == COORDINATOR]
