"""A RocketMQ that asks everybody for TLS and a login: the watcher, and a consumer of a pattern."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from streaming.rocketmq import admin
from streaming.rocketmq.remoting import load_access
from tests.support.lite_world import consume_command
from tests.support.processes import child, eventually
from tests.support.rocketmq import does, send
from tests.support.rocketmq_watcher import announced, watch_command, watching
from tests.support.running_job import Streams, running
from tests.support.secured import pem
from tests.support.split_rocketmq import Setup, SplitRocketMQ

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SEEN_SECONDS = 60
USER, PASSWORD = "keeper", "canary-keeper-password"
PROVIDERS = "org.apache.rocketmq.auth.authentication.provider."


class Secured(SplitRocketMQ):
    """Servers with TLS and a login, and the files with which a client reaches them."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        files = folder.with_name("access")
        files.mkdir()
        authority.cert_pem.write_to_path(files / "authority.pem")
        trustme.CA().cert_pem.write_to_path(files / "stranger.pem")
        # The proxy's clients check its address, those of the others the authority only.
        for name, address in (("server", "rocketmq.example"), ("proxy", "127.0.0.1")):
            key, chain = pem(authority.issue_cert(address))
            (files / f"{name}.key").write_text(key)
            (files / f"{name}.crt").write_text(chain)
        self.files = files
        login = {"accessKey": USER, "secretKey": PASSWORD}
        asked = {
            "authenticationEnabled": True,
            "authenticationProvider": f"{PROVIDERS}DefaultAuthenticationProvider",
            "innerClientAuthenticationCredentials": json.dumps(login),
        }
        broker = {
            **asked,
            "authenticationEnabled": "true",
            "authenticationMetadataProvider": f"{PROVIDERS}LocalAuthenticationMetadataProvider",
            "initAuthenticationUser": json.dumps({"username": USER, "password": PASSWORD}),
        }
        proxy = {
            **asked,
            "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
            "enableAclRpcHookForClusterMode": True,  # it signs its own requests
            "tlsTestModeEnable": False,
            "tlsKeyPath": str(files / "proxy.key"),
            "tlsCertPath": str(files / "proxy.crt"),
        }
        java_options = {
            "tls.server.mode": "enforcing",
            "tls.test.mode.enable": "false",
            "tls.server.keyPath": files / "server.key",
            "tls.server.certPath": files / "server.crt",
            "tls.enable": "true",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": files / "authority.pem",
            "tls.config.file": files / "none",
        }
        super().__init__(folder, Setup(broker, proxy, [f"-D{name}={value}" for name, value in java_options.items()]))

    def options(self, name: str, password: str = PASSWORD, authority: str = "authority.pem") -> Path:
        path = self.files / f"{name}.properties"
        path.write_text(f"accessKey={USER}\nsecretKey={password}\ntls.client.trustCertPath={authority}\n")
        return path


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("secured") / "rocketmq") as server:
        known = load_access(server.options("administrator"))
        does(server.broker, lambda link: admin.create_parent(link, "orders", minutes=60), known)
        does(server.broker, lambda link: admin.create_group(link, "billing", {"lite.bind.topic": "orders"}), known)
        yield server


def test_watcher_and_consumer_use_tls_and_a_login(rocketmq: Secured, streams: Streams, tmp_path: Path) -> None:
    options = rocketmq.options("watcher")
    known = load_access(options)
    with watching(rocketmq, streams, "--rocketmq-options", str(options)):
        does(rocketmq.broker, lambda link: send(link, "orders", "eu__acme", b"first"), known)
        assert eventually(
            lambda: [event["liteTopic"] for event in announced(streams)] == ["eu__acme"], SEEN_SECONDS, 0.1
        )
        with (
            running(streams, tmp_path / "job.log"),
            consuming(rocketmq, streams, tmp_path) as received,
        ):
            assert eventually(lambda: received.read_text() == "eu__acme first\n", SEEN_SECONDS, 0.1)
            does(rocketmq.broker, lambda link: send(link, "orders", "us__acme", b"second"), known)
            assert eventually(lambda: "us__acme second\n" in received.read_text(), SEEN_SECONDS, 0.1)


@contextmanager
def consuming(rocketmq: Secured, streams: Streams, folder: Path) -> Iterator[Path]:
    """A consumer of `*__acme` as a process; the context is the file of what it has received."""
    received = folder / "received.txt"
    environment = {
        **os.environ,
        "ROCKETMQ_LOGIN": f"{USER}:{PASSWORD}",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(rocketmq.files / "authority.pem"),
    }
    command = consume_command(rocketmq.endpoints, streams, "*__acme")
    with received.open("wb") as output, child(command, stdin=subprocess.PIPE, stdout=output, env=environment):
        yield received


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("another password", "code 16"),
        ("another authority", "certificate verify failed"),
        ("nothing", "has closed the connection"),
    ],
)
def test_who_is_not_let_in_is_told_why(rocketmq: Secured, streams: Streams, case: str, expected: str) -> None:
    files: dict[str, Callable[[], list[Path]]] = {
        "another password": lambda: [rocketmq.options("password", "canary-wrong")],
        "another authority": lambda: [rocketmq.options("stranger", authority="stranger.pem")],
        "nothing": list,
    }
    options = [text for path in files[case]() for text in ("--rocketmq-options", str(path))]
    command = watch_command(rocketmq.name_server, streams, *options)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert expected in ended.stderr
    assert "--rocketmq-options" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "canary" not in ended.stderr
