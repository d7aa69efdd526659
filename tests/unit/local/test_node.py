"""What a broker's folder remembers."""

from __future__ import annotations

import json
import socket
import uuid
from typing import IO, TYPE_CHECKING

import pytest

from streaming.errors import BrokerFailed
from streaming.local.broker import Node, format_storage, load_node, new_cluster_id, write_configuration
from streaming.local.server import HOST, free_port, is_free

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[IO[str]]:
    with (tmp_path / "lock").open("w") as file:
        yield file


def test_ports_and_identity_are_kept(tmp_path: Path) -> None:
    """A folder's broker keeps its address from start to start; two folders have brokers of their own."""
    node = load_node(tmp_path / "new")
    assert load_node(tmp_path / "new") == node
    assert node.port != node.controller_port
    assert load_node(tmp_path / "other").cluster_id != node.cluster_id


def test_no_cluster_id_looks_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's tools would not take it for one."""
    for byte in range(256):
        monkeypatch.setattr(uuid, "uuid4", lambda byte=byte: uuid.UUID(bytes=bytes([byte] * 16)))
        cluster_id = new_cluster_id()
        assert cluster_id[0].isalpha()
        assert len(cluster_id) == 22


@pytest.mark.parametrize("which", ["port", "controller_port"])
def test_a_taken_port_is_replaced_for_good(tmp_path: Path, caplog: pytest.LogCaptureFixture, which: str) -> None:
    """The broker gets new ports, stays who it is, and keeps the new ports once the old ones are free.

    The first address of a folder is no change.
    """
    node = load_node(tmp_path)
    assert caplog.messages == []
    with socket.create_server((HOST, getattr(node, which))):
        moved = load_node(tmp_path)
    assert getattr(moved, which) != getattr(node, which)
    assert moved.cluster_id == node.cluster_id
    assert load_node(tmp_path) == moved
    assert caplog.messages == [
        f"a port of the broker is in use: its address changes from {node.address} to {moved.address}"
    ]


def test_a_port_is_free_although_the_kernel_remembers_its_connections() -> None:
    """As with the port of a broker that was just stopped."""
    with socket.create_server((HOST, 0)) as server:
        address = server.getsockname()
        assert not is_free(address[1])
        client = socket.create_connection(address)
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first is the one that is remembered
        client.close()
    assert is_free(address[1])


def test_ports_are_none_that_the_kernel_hands_out() -> None:
    """A client that retries could otherwise connect to itself from its broker's port, and keep it.

    The kernel hands out those from 32,768 on, unless it is set up otherwise.
    """
    ports = {free_port() for _ in range(50)}
    assert max(ports) < 32_768
    assert len(ports) > 40


@pytest.mark.parametrize("content", ["", "{", "[]", '{"port": 1}', '{"cluster_id": "x", "port": 1, "other": 2}'])
def test_a_damaged_file_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "node.json").write_text(content)
    with pytest.raises(BrokerFailed, match=r"node\.json cannot be read .* Remove .* to start with an empty broker"):
        load_node(tmp_path)


def test_settings_win_but_not_over_the_address(tmp_path: Path) -> None:
    """A caller can set anything except what makes clients find the broker; listeners are added to those.

    Neither file of a folder names the folder, which can be moved.
    """
    load_node(tmp_path)
    node = Node("id", 20_001, 20_002)
    write_configuration(tmp_path, node, {"num.partitions": "7", "node.id": "5", "listeners": "SSL://:1"})
    text = (tmp_path / "server.properties").read_text()
    lines = text.splitlines()
    assert {"num.partitions=7", "node.id=5"} <= set(lines)
    assert "listeners=PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002,SSL://:1" in lines
    assert len({line.split("=")[0] for line in lines}) == len(lines)
    assert str(tmp_path) not in text + (tmp_path / "node.json").read_text()


def test_storage_is_formatted_once(tmp_path: Path, lock: IO[str]) -> None:
    """A failed attempt shows what was said, and leaves nothing that looks like storage."""
    node = load_node(tmp_path)
    for _ in range(2):
        with pytest.raises(BrokerFailed, match=r"(?s)cannot be formatted in .*kafka\.tools\.StorageTool format"):
            format_storage(tmp_path, node, ["sh", "-c", 'echo "$0 $1"; mkdir unformatted; exit 1'], lock)
        assert not (tmp_path / "data").exists()
    format_storage(tmp_path, node, ["sh", "-c", "mkdir unformatted"], lock)
    assert json.loads((tmp_path / "node.json").read_text())["cluster_id"] == node.cluster_id
    format_storage(tmp_path, node, ["false"], lock)
    assert (tmp_path / "data").is_dir()
