"""One broker works on a folder at a time."""

from __future__ import annotations

import fcntl
import threading
from typing import TYPE_CHECKING

import pytest

from streaming.errors import BrokerFailed, FolderInUse
from streaming.local import jars
from streaming.local import server as module
from streaming.local.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def without_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    """No jars: what comes after the lock fails at once."""
    monkeypatch.setattr(jars, "kafka", list)


def test_a_locked_folder_is_refused_with_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.1)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        with pytest.raises(FolderInUse, match=rf"started by process 4711 uses {tmp_path}\. Stop it, or choose"):
            Broker(tmp_path).start()


def test_a_lock_that_is_about_to_go_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of an owner that was just killed needs a moment to disappear."""
    monkeypatch.setattr(module, "_LOCK_SECONDS", 60)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = threading.Timer(0.3, fcntl.flock, [lock, fcntl.LOCK_UN])
        release.start()
        with pytest.raises(BrokerFailed, match="cannot be formatted"):
            Broker(tmp_path).start()
        release.join()


@pytest.mark.parametrize(
    ("folder", "said"),
    [("kafka", "cannot be formatted"), ("file/kafka", r"cannot work in .*file/kafka: .*Not a directory")],
)
def test_a_failed_start_is_told_and_frees_the_folder(tmp_path: Path, folder: str, said: str) -> None:
    (tmp_path / "file").touch()
    broker = Broker(tmp_path / folder)
    broker.stop()
    for _ in range(2):
        with pytest.raises(BrokerFailed, match=said):
            broker.start()
        assert not broker.running


def test_a_broker_that_was_never_started_has_no_address(tmp_path: Path) -> None:
    with pytest.raises(BrokerFailed, match="is not started"):
        _ = Broker(tmp_path).bootstrap_servers
