"""Corrections of rows as normal records of the updates topic."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from streaming.expansion.compare import Announcer
from streaming.expansion.micro_batch import apply_events
from streaming.operations.verify.findings import Difference, Fault
from streaming.operations.verify.replay import Key, Rules
from streaming.operations.verify.witnesses import ShardPair
from streaming.records.model import Source
from streaming.records.subscribers import SubscriberKey
from streaming.records.updates import Cause, Op
from streaming.records.writing import UpdateWriter, update_key
from streaming.state import ShardState
from streaming.state.holdings import holdings
from streaming.tuning import DEFAULT_TUNING

_NONE: Final = -1
"""Partition and offset of a record that does not exist."""


class Correction(NamedTuple):
    """Records that correct a row: an ADD, or a REMOVE and its tombstone.

    Attributes:
        partition: partition of the row's previous records; None if unknown.
    """

    key: bytes
    values: tuple[bytes | None, ...]
    partition: int | None


def corrections(rules: Rules, updates: str, pair: ShardPair, differences: Iterable[Difference]) -> Iterator[Correction]:
    """Yield corrections of the differences of one shard that its state still requires.

    Args:
        rules: settings of the job.
        updates: name of the updates topic.
        pair: state of the shard.
        differences: differences of its rows.
    """
    wanted = {difference.key: difference for difference in differences}
    topics = {difference.row.lite_topic for difference in wanted.values()}
    held = dict(_held(pair.key, pair.state, rules, topics))
    coming = held if pair.after is pair.state else dict(_held(pair.key, pair.after, rules, topics))
    announcer = Announcer(apply_events(pair.state, (), rules.shard(*pair.key), DEFAULT_TUNING))
    writer = UpdateWriter(pair.key[0])
    for key, difference in wanted.items():
        holds = key in held
        is_right = holds == difference.updates and difference.fault is not Fault.WRONG_VALUE
        if is_right or holds != (key in coming):  # corrected meanwhile, or changing
            continue
        row, record = difference.row, difference.record
        source = Source(updates, _NONE, _NONE, 0, 0)
        patterns = held.get(key, [])
        if record is not None:
            source = Source(updates, record.partition, record.offset, 0, record.timestamp)
            if not holds and record.update is not None:
                patterns = _texts(record.update.get("patterns"))
        update = announcer.update(
            Op.ADD if holds else Op.REMOVE,
            SubscriberKey(row.group, row.client_id, row.part),
            row.lite_topic,
            patterns,
            cause=Cause.REPAIRED,
            source=source,
        )
        if announcer.needs_bitmaps:
            update = announcer.with_bitmap(update)
        value = writer.record(update).value
        yield Correction(key, (value,) if holds else (value, None), record.partition if record is not None else None)


def _texts(patterns: Any) -> list[str]:
    """Return the patterns of an update, or an empty list if they are invalid."""
    return [str(each) for each in patterns] if isinstance(patterns, list) else []


def _held(key: Key, state: ShardState, rules: Rules, topics: set[str]) -> Iterator[tuple[bytes, list[str]]]:
    """Yield the rows of a shard on some topics, each with the matching entries."""
    for topic, found in holdings(state, rules.shard(*key)):
        if topic in topics:
            for (group, client_id, part), texts in found.items():
                yield update_key(key[0], group, client_id, topic, part), texts
