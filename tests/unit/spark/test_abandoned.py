"""Whose transactions a start on a new checkpoint ends."""

from collections.abc import Collection
from typing import Any, ClassVar, Self

import pytest

from streaming.config import load
from streaming.kafka.permissions import partition_names
from streaming.spark import provision

GONE, ALIVE, UNKNOWN = (f"{number}0000000-0000-4000-8000-000000000000" for number in "123")


class Kafka:
    """Has open transactions, and notes which ones are ended."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = set(names)
        self.ended: list[str] = []

    def open_transactions(self) -> set[str]:
        """All of them."""
        return self.names

    def end_transactions(self, producers: Collection[str]) -> None:
        """Notes them."""
        self.ended.extend(producers)


class Lease:
    """The lease of a checkpoint; one driver is gone."""

    asked: ClassVar[list[str]] = []

    def __init__(self, _spark: object, _settings: object, checkpoint_id: str) -> None:
        self._id = checkpoint_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def is_abandoned(self) -> bool:
        """Of that driver alone."""
        self.asked.append(self._id)
        return self._id == GONE


@pytest.mark.rule("abandoned-transactions")
def test_only_those_of_drivers_that_are_gone_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "Lease", Lease)
    monkeypatch.setattr(Lease, "asked", [])
    others = ["reexpand-accept-orders-1", f"reexpand-{GONE}", f"other-{GONE}-1", f"reexpand-{GONE}-x", "accounts"]
    kafka: Any = Kafka([*partition_names(GONE, 2), *partition_names(ALIVE, 1), *partition_names(UNKNOWN, 1), *others])
    spark: Any = None
    provision.end_abandoned(spark, load({"bootstrap_servers": "b:1", "checkpoint": "/c"}), kafka)
    assert kafka.ended == partition_names(GONE, 2)
    assert sorted(Lease.asked) == [GONE, ALIVE, UNKNOWN]
