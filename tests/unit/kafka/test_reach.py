"""First contact with Kafka: an address at which nothing listens is told at once, and waited for aloud."""

import logging
import socket
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import NoReturn

import pytest

from streaming.errors import ConfigInvalid, KafkaUnavailable, WatchFailed
from streaming.kafka import reach
from streaming.kafka.reach import wait_for_broker


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_one_of_several_addresses_is_enough(listener: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    """A process that is to stop waits for none."""
    with caplog.at_level(logging.INFO):
        wait_for_broker(f"127.0.0.1:1, PLAINTEXT://{address(listener)}", seconds=0)
        wait_for_broker("127.0.0.1:1", is_over=lambda: True)
    assert caplog.messages == []


def test_a_wrong_port_is_told_with_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And how long it is waited for."""
    pauses: list[float] = []
    played = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(reach, "time", played)
    with (
        caplog.at_level(logging.INFO, logger="reexpand"),
        pytest.raises(
            KafkaUnavailable, match=r"^no Kafka broker answers at 127\.0\.0\.1:1 within 1 s: 127\.0\.0\.1:1: connection"
        ),
    ):
        wait_for_broker("127.0.0.1:1", seconds=1)
    assert caplog.messages == ["connecting to 127.0.0.1:1: 127.0.0.1:1: connection refused; 1 s left"]


def test_a_name_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an IPv6 address without a broker."""

    def resolve(*_: object) -> NoReturn:
        raise socket.gaierror

    with pytest.raises(KafkaUnavailable, match=r"at \[::1\]:1 within 0 s: ::1:1: "):
        wait_for_broker("[::1]:1", seconds=0)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(WatchFailed, match=r"the name no-such-host\.invalid is not known"):
        wait_for_broker("no-such-host.invalid:9092", seconds=0, failure=WatchFailed)


def test_a_broker_that_comes_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as late:
        late.bind(("127.0.0.1", 0))
        monkeypatch.setattr(reach, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: late.listen()))
        wait_for_broker(address(late), seconds=10)


@pytest.mark.parametrize("servers", ["broker", "broker:", "broker:0", "broker:65536", "broker:9092,other"])
def test_what_is_no_address_is_refused(servers: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"^bootstrap_servers must be host:port"):
        wait_for_broker(servers, seconds=0)
