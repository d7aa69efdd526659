"""The folder of a local RocketMQ: its ports, its configuration and its disk; the integration tests start it."""

import json
import shutil
import socket
from dataclasses import astuple
from pathlib import Path

import pytest

from streaming.errors import BrokerFailed
from streaming.local.server import HOST
from streaming.rocketmq.server import RocketMQ, configuration, load_ports, warn_of_full_disk


def test_ports_are_kept_and_all_differ(tmp_path: Path) -> None:
    ports = load_ports(tmp_path)
    assert load_ports(tmp_path) == ports
    assert len({*astuple(ports), ports.broker - 2}) == 6


@pytest.mark.parametrize("which", ["proxy", "the fast port of the broker"])
def test_ports_that_others_use_are_replaced(tmp_path: Path, which: str, caplog: pytest.LogCaptureFixture) -> None:
    ports = load_ports(tmp_path)
    with socket.create_server((HOST, ports.proxy if which == "proxy" else ports.broker - 2)):
        assert load_ports(tmp_path) != ports
    assert "a port of RocketMQ is in use" in caplog.text


def test_ports_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """A server that was never started has no address."""
    with pytest.raises(BrokerFailed, match="is not started"):
        _ = RocketMQ(tmp_path).endpoints
    (tmp_path / "ports.json").write_text("{}")
    with pytest.raises(BrokerFailed, match=r"ports\.json cannot be read .* Remove .* to start with an empty RocketMQ"):
        load_ports(tmp_path)


@pytest.mark.parametrize(("used", "warnings"), [(90, 0), (91, 1)])
def test_a_nearly_full_disk_is_told(
    tmp_path: Path, used: int, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The space that is reserved for the administrator counts as neither used nor free."""
    usage = type(shutil.disk_usage(tmp_path))(total=105, used=used, free=100 - used)
    monkeypatch.setattr("shutil.disk_usage", {tmp_path: usage}.__getitem__)
    warn_of_full_disk(tmp_path)
    assert caplog.text.count(f"is {used} % full: RocketMQ refuses messages above 90 %") == warnings


def test_own_settings_win_but_not_over_the_addresses(tmp_path: Path) -> None:
    ports = load_ports(tmp_path)
    configuration(tmp_path, ports, {"minLiteTTl": "20000", "enableLmq": "false", "listenPort": "1"})
    lines = (tmp_path / "broker.properties").read_text().splitlines()
    assert {"minLiteTTl=20000", "enableLmq=false", f"listenPort={ports.broker}"} <= set(lines)
    assert len(lines) == len({line.partition("=")[0] for line in lines})
    proxy = json.loads((tmp_path / "proxy.json").read_text())
    assert proxy["defaultInvisibleTimeMills"] == 20_000
    assert (proxy["grpcServerPort"], proxy["namesrvAddr"]) == (ports.proxy, f"{HOST}:{ports.name_server}")
