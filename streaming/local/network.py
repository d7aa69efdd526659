"""Lets the bundled Java download the way everything else on the machine does: same trust, same proxy."""

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

# Kept by Debian's and Fedora's packages of CA certificates for every Java of the machine.
_TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))

# Where Debian, Fedora, SUSE and macOS keep the same certificates for everyone else.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def network_options(java: Java) -> list[str]:
    """Options for a `java` that downloads: the proxy of the environment and, for the bundled one, whom to trust."""
    store = _trust_store() if java.bundled else None
    return [*_proxy_options(getproxies()), *([f"-Djavax.net.ssl.trustStore={store}"] if store else [])]


def _proxy_options(proxies: dict[str, str]) -> list[str]:
    """The system properties that say what `https_proxy` and `no_proxy` say; Java does not read those."""
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
    """A trust store with the certificates that the machine trusts, or None to leave Java its own."""
    for store in _TRUST_STORES:
        if store.exists():
            return store
    for bundle in (os.environ.get("SSL_CERT_FILE", ""), *_BUNDLES):
        if bundle and Path(bundle).exists():
            return _converted(Path(bundle))
    return None


def _converted(bundle: Path) -> Path | None:
    """A bundle of PEM certificates as a trust store in the cache, or None when it holds none that can be read."""
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
    """DER certificates as a Java key store of the JKS kind, which every Java reads without a password.

    The layout is that of the JDK's own `sun.security.provider.JavaKeyStore`.
    """

    def utf(text: str) -> bytes:
        return struct.pack(">H", len(text)) + text.encode("ascii")

    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + utf(f"ca-{number}") + struct.pack(">Q", 0)
        body += utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    password = "changeit".encode("utf-16-be")  # the JDK's own, for its own cacerts
    return body + hashlib.sha1(password + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
