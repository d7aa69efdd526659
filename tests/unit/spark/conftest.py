"""A checkpoint and Kafka's markers without Spark."""

from pathlib import Path

import pytest

from streaming.spark import checkpoint, notes, quarantine


class Files:
    """Files of a checkpoint in a local folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def read(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def numbers(self, name: str) -> list[int]:
        return sorted(int(file.name) for file in (self._root / name).glob("[0-9]*"))

    def write(self, name: str, content: bytes) -> None:
        self._root.mkdir(exist_ok=True)
        (self._root / name).write_bytes(content)

    def create(self, name: str, content: bytes) -> None:
        self._root.mkdir(exist_ok=True)
        with (self._root / name).open("xb") as file:
            file.write(content)


class Markers:
    """Kafka with the number of micro-batches that each state partition has written, once nobody writes any more."""

    def __init__(self, *counts: int) -> None:
        self._counts = counts
        self.ended: list[str] = []

    def end_transactions(self, producers: list[str]) -> None:
        self.ended += producers

    def markers(self, groups: list[str]) -> dict[str, int]:
        assert self.ended == groups
        return dict(zip(groups, self._counts, strict=True))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a new checkpoint, whatever its settings say."""
    made = tmp_path / "checkpoint"
    for module in (checkpoint, notes, quarantine):
        monkeypatch.setattr(module, "CheckpointFiles", lambda *_: Files(made))
    return made
