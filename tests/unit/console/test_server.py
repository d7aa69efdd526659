"""The console on an address of its own."""

import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner
from starlette.applications import Starlette

from streaming.cli import main
from streaming.config import Address, Settings
from streaming.console import server
from streaming.console.server import access_token, address, serve
from streaming.errors import AddressUnusable, ConfigInvalid
from tests.support.processes import eventually
from tests.support.simulated import TOPIC, Simulated
from tests.support.update_records import add

TOKEN = "a-token-of-some-length"  # noqa: S105 - of this test
REEXPAND = str(Path(__file__).parents[3] / ".venv/bin/reexpand")


def test_an_address_is_parsed_or_named() -> None:
    assert address("[::1]:80") == Address("::1", 80)
    for text in ("off", "localhost"):
        with pytest.raises(ConfigInvalid, match=re.escape(f"--http {text!r} is not an address")):
            address(text)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *((host, False) for host in ("::", "10.0.0.1", "localhost.example", "fe80::1")),
    ],
)
def test_only_a_loopback_address_needs_no_token(host: str, is_loopback: bool) -> None:  # noqa: FBT001
    where = Address(host, 1)
    if is_loopback:
        assert access_token(where, None, None) is None
    else:
        with pytest.raises(ConfigInvalid, match="needs a token"):
            access_token(where, None, None)
    assert access_token(where, f" {TOKEN}\n", None) == TOKEN


def test_the_token_of_the_file_goes_before_and_the_file_must_be_readable(tmp_path: Path) -> None:
    where, file = Address("10.0.0.1", 1), tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert access_token(where, "another-token-of-length", file) == TOKEN
    file.write_bytes(b"\xff\xfe")
    for unreadable in (tmp_path / "missing", file):
        with pytest.raises(ConfigInvalid, match="cannot be read from"):
            access_token(where, None, unreadable)


@pytest.mark.parametrize("token", ["", "short", " " * 30, "é" * 20])
def test_a_weak_token_is_refused(token: str, tmp_path: Path) -> None:
    """On a loopback address too: whoever gives one relies on it."""
    file = tmp_path / "token"
    file.write_text(token)
    for given in ((token, None), (None, file)):
        with pytest.raises(ConfigInvalid, match="at least 16 ASCII characters"):
            access_token(Address("127.0.0.1", 1), *given)


def test_an_address_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(AddressUnusable, match=f"cannot listen on 127.0.0.1:{where.port}: Address already in use"):
            serve(Starlette(), where, lambda _: None)


@pytest.mark.parametrize(
    ("options", "names"), [((), ("lite-clock", "lite-answers")), (("--clock", "c", "--answers", "a"), ("c", "a"))]
)
def test_the_verb_has_the_topics_of_questions(
    options: tuple[str, ...], names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the verbs that ask the job."""
    opened: list[Settings] = []

    def open_sources(_: object, settings: Settings, *__: object, **___: object) -> None:
        opened.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr(server, "open_sources", open_sources)
    former = signal.getsignal(signal.SIGTERM)
    result = CliRunner().invoke(main, ["console", "--bootstrap-servers", "b:1", *options])
    signal.signal(signal.SIGTERM, former)
    assert (result.exit_code, [(each.clock, each.answers) for each in opened]) == (0, [names])


def test_the_verb_serves_until_sigterm(broker: Simulated, tmp_path: Path) -> None:
    """With an open stream, which does not hold it up."""
    broker.write(add("eu__1", parent="orders"), partition=0)
    broker.write((b"[]", b"{}"), topic="letters")
    words = [REEXPAND, "console", "--bootstrap-servers", broker.address, "--http", "127.0.0.1:0"]
    words += ["--updates", TOPIC, "--dead-letters", "letters"]
    (tmp_path / "token").write_text(TOKEN)
    process = subprocess.Popen(
        [*words, "--token-file", str(tmp_path / "token")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert found is not None
        url = found[0]

        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
            assert httpx2.get(f"{url}api/state").status_code == 401
            assert eventually(lambda: client.get("api/state").json()["topics"] == 1)
            with client.stream("GET", "api/stream") as stream:
                assert next(stream.iter_lines()) == "retry: 2000"
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
