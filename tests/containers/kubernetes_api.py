"""A real API of Kubernetes on this machine: its server with etcd, and neither controllers nor nodes."""

import json
import secrets
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from streaming.local.process import cache_folder
from streaming.local.server import free_port
from tests.support.processes import eventually

_FOLDER: Final = cache_folder() / "kubernetes"
"""Where `make test-executors` builds both, of the versions in `apiserver/go.mod`."""
_ETCD, _SERVER = _FOLDER / "etcd", _FOLDER / "kube-apiserver"


class KubernetesApi:
    """An API, for its administrator.

    Args:
        url: its address.
        certificate: file of the certificate that it shows.
        token: token of the administrator.
    """

    def __init__(self, url: str, certificate: Path, token: str) -> None:
        self.url = url
        self.certificate = certificate
        self._token = token

    def call(self, path: str, method: str = "GET", body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            HTTPError: it is refused.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = Request(  # noqa: S310 - an address of this machine
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind},
        )
        context = ssl.create_default_context(cafile=str(self.certificate))
        with urlopen(request, context=context, timeout=30) as answer:  # noqa: S310
            return dict(json.load(answer))

    def kubeconfig(self, file: Path) -> None:
        """Write a file for kubectl."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        content = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": self._token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }  # fmt: skip
        file.write_text(json.dumps(content))


@contextmanager
def kubernetes_api(folder: Path) -> Iterator[KubernetesApi]:
    """Run an API, with its data and logs in a folder."""
    if not (_ETCD.exists() and _SERVER.exists()):
        pytest.skip(f"{_FOLDER} lacks etcd or the server: `make test-executors` builds both, with Go")
    port, store, peers, token = free_port(), free_port(), free_port(), secrets.token_hex(16)
    key, tokens, certificates = folder / "accounts.key", folder / "tokens.csv", folder / "certificates"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens.write_text(f"{token},admin,1,system:masters\n")
    commands = {
        "etcd": [
            str(_ETCD), "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync",
            *(f"--{name}-client-urls=http://127.0.0.1:{store}" for name in ("listen", "advertise")),
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
        ],
        "server": [
            str(_SERVER), f"--etcd-servers=http://127.0.0.1:{store}",
            f"--secure-port={port}", "--bind-address=127.0.0.1",
            f"--cert-dir={certificates}", "--authorization-mode=RBAC", f"--token-auth-file={tokens}",
            "--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}", f"--service-account-key-file={key}",
        ],
    }  # fmt: skip
    processes = []
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder))
        api = KubernetesApi(f"https://127.0.0.1:{port}", certificates / "apiserver.crt", token)
        assert eventually(lambda: _is_ready(api), 120, 0.5), (folder / "server.log").read_text()[-4_000:]
        yield api
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(30)


def _is_ready(api: KubernetesApi) -> bool:
    try:
        api.call("/api/v1/namespaces/default")
    except (URLError, OSError):
        return False
    return True
