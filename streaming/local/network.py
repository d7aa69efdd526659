"""Proxy and trusted authorities of the machine, as options of the bundled Java."""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from streaming.local.cache import cache_folder, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.local.java import Java

_TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))
"""Trust stores of Debian's and Fedora's packages of CA certificates, for every Java of the machine."""

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""The same certificates for all other programs, on Debian, Fedora, SUSE and macOS."""


def network_options(java: Java) -> list[str]:
    """Return options of Java for downloads: the environment's proxy and, if it is bundled, a trust store."""
    store = _trust_store() if java.bundled else None
    return [*_proxy_options(getproxies()), *([f"-Djavax.net.ssl.trustStore={store}"] if store else [])]


def _proxy_options(proxies: dict[str, str]) -> list[str]:
    """Return `https_proxy` and `no_proxy` as system properties, since Java does not read these variables."""
    options = []
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    direct = [name.strip() for name in proxies.get("no", "").split(",") if name.strip()]
    if options and direct:
        names = "|".join(f"*{name}" if name.startswith(".") else name for name in direct)
        options.append(f"-Dhttp.nonProxyHosts={names}")
    return options


def _trust_store() -> Path | None:
    """Return a trust store with the machine's trusted certificates, or None to leave Java its own."""
    for store in _TRUST_STORES:
        if store.exists():
            return store
    for bundle in (os.environ.get("SSL_CERT_FILE", ""), *_BUNDLES):
        if bundle and Path(bundle).exists():
            return _convert(Path(bundle))
    return None


def _convert(bundle: Path) -> Path | None:
    """Convert a bundle of PEM certificates to a trust store in the cache; return None for one without any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(bundle)
        certificates = context.get_ca_certs(binary_form=True)
    except OSError:  # ssl.SSLError is one
        return None
    content = key_store(certificates)
    path = cache_folder() / "java" / f"cacerts-{hashlib.sha256(content).hexdigest()[:16]}"
    if not path.exists():
        write_whole(path, content)
    return path if certificates else None


def key_store(certificates: Sequence[bytes]) -> bytes:
    """Return DER certificates as a Java key store of type JKS.

    Every Java reads such a trust store without a password. The layout is that of the JDK's own
    `sun.security.provider.JavaKeyStore`.
    """

    def utf(text: str) -> bytes:
        return struct.pack(">H", len(text)) + text.encode("ascii")

    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + utf(f"ca-{number}") + struct.pack(">Q", 0)
        body += utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    password = "changeit".encode("utf-16-be")  # the JDK's own, for its own cacerts
    return body + hashlib.sha1(password + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
