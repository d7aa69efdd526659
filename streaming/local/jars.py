"""Downloaded jars: Spark's Kafka connector, its S3 file system, the Kafka broker, and RocketMQ.

Ivy, which is part of PySpark, downloads them from Maven Central. `ivy.xml` contains the versions, and `jars.sha256` the
expected files with their checksums. Functions raise `JarsUnavailable` if the jars cannot be downloaded or stored, or
differ from the checksums.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import ssl
import struct
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from streaming.errors import JarsUnavailable
from streaming.local.java import FIRST_TIER, find_java
from streaming.local.process import cache_folder, locked, run_tool, storing, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.local.java import Java

    Progress = Callable[[int, int, str], None]
    """Callback that receives the number of completed steps, the number of all steps, and the current jar."""

_HERE = Path(__file__).parent

_TRUST_STORES = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))
"""Trust stores for Java in the CA certificate packages of Debian and Fedora."""

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""CA certificates in PEM, on Debian, Fedora, SUSE and macOS."""


@dataclass(frozen=True)
class JarSets:
    """Sets of jars that are defined by an Ivy file and stored in the cache.

    Attributes:
        ivy_file: file of the versions, with an Ivy configuration for each set.
        checksums: file of the expected jars, one per line: SHA-256 and `SET/FILE`.
    """

    ivy_file: Path
    checksums: Path
    names: tuple[str, ...]

    def jars(self, name: str) -> list[Path]:
        """Return the jars of a set. Download them if needed."""
        self.fetch([name])
        return [self.folder / name / jar for jar in self._expected(name)]

    def fetch(self, names: Sequence[str] = (), progress: Progress | None = None) -> None:
        """Download missing sets into the cache. No names select all sets.

        Sets are stored atomically, even if interrupted or with several processes.
        """
        wanted = names or self.names
        if all(self._is_complete(name) for name in wanted):
            return
        root = cache_folder() / "jars"
        with storing("The jars", root / "lock") as lock:
            for leftover in root.glob(".partial-*"):  # of a killed process
                shutil.rmtree(leftover)
            missing = [name for name in wanted if not self._is_complete(name)]
            if missing:
                self._download(missing, root, lock, progress)

    def write_checksums(self) -> None:
        """Rewrite the checksums after a change of the Ivy file. Review the differences before you commit them."""
        with locked(cache_folder() / "jars" / "lock") as lock, tempfile.TemporaryDirectory() as folder:
            self._run_ivy(self.names, Path(folder), lock, None)
            lines = [
                f"{_sha256(jar)}  {name}/{jar.name}"
                for name in self.names
                for jar in sorted((Path(folder, name)).iterdir())
            ]
        self.checksums.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def folder(self) -> Path:
        """Folder of the sets. Each combination of versions has a separate folder."""
        digest = hashlib.sha256(self.ivy_file.read_bytes() + self.checksums.read_bytes()).hexdigest()
        return cache_folder() / "jars" / digest[:16]

    def _expected(self, name: str) -> dict[str, str]:
        entries = (line.split("  ", 1) for line in self.checksums.read_text(encoding="utf-8").splitlines())
        return {path.removeprefix(f"{name}/"): digest for digest, path in entries if path.startswith(f"{name}/")}

    def _is_complete(self, name: str) -> bool:
        folder = self.folder / name
        return all((folder / jar).exists() for jar in self._expected(name))

    def _download(self, missing: Sequence[str], root: Path, lock: IO[str], progress: Progress | None) -> None:
        with tempfile.TemporaryDirectory(dir=root, prefix=".partial-") as partial:
            self._run_ivy(missing, Path(partial), lock, progress)
            for name in missing:
                found = {jar.name: _sha256(jar) for jar in Path(partial, name).iterdir()}
                wrong = sorted({jar for jar, _ in found.items() ^ self._expected(name).items()})
                if wrong:
                    raise JarsUnavailable(
                        f"The downloaded jars of {name} differ from those that reexpand was tested with: "
                        f"{', '.join(wrong)}. Remove {cache_folder() / 'ivy'} and try again. If the error remains, the "
                        "repository contains other files."
                    )
                target = self.folder / name
                shutil.rmtree(target, ignore_errors=True)  # it may be incomplete
                target.parent.mkdir(exist_ok=True)
                Path(partial, name).rename(target)

    def _run_ivy(self, names: Sequence[str], target: Path, lock: IO[str], progress: Progress | None) -> None:
        """Run Ivy, which puts the jars of each set into a subfolder of `target`."""
        java = find_java()
        ivy = next((jar for jar in pyspark() if jar.name.startswith("ivy-")), None)
        if ivy is None:
            raise JarsUnavailable("PySpark is not installed, or its folder of jars lacks Ivy. Run `make setup` again.")
        command = [
            str(java.executable),
            *network_options(java),
            FIRST_TIER,  # Ivy mostly waits for the network
            # Sources and documentation would cost three unnecessary requests per module.
            "-Divy.maven.lookup.sources=false",
            "-Divy.maven.lookup.javadoc=false",
            f"-Dreexpand.ivy.cache={cache_folder() / 'ivy'}",
            *("-jar", str(ivy)),
            *("-settings", str(_HERE / "ivysettings.xml"), "-ivy", str(self.ivy_file)),
            *("-confs", *names, "-types", "jar", "bundle"),
            *("-retrieve", f"{target}/[conf]/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        steps = 2 * sum(len(self._expected(name)) for name in names)  # each jar is resolved, then downloaded
        done = 0

        def on_line(line: str) -> None:
            nonlocal done
            step = re.search(r"(?:found |\[SUCCESSFUL \] )[^#]+#([^;]+);([^ !]+)", line)
            if step and progress:
                done = min(done + 1, steps)
                progress(done, steps, f"{step[1]} {step[2]}")

        failure = f"The jars of {' and '.join(names)} cannot be downloaded; this needs internet access once."
        run_tool(command, lock, failure, on_line)


LOCAL = JarSets(_HERE / "ivy.xml", _HERE / "jars.sha256", ("spark", "kafka"))
"""Jar sets of the service and of the embedded broker."""

ROCKETMQ = JarSets(_HERE / "ivy-rocketmq.xml", _HERE / "jars-rocketmq.sha256", ("rocketmq",))
"""Jar set of a local RocketMQ."""

S3 = JarSets(_HERE / "ivy-s3.xml", _HERE / "jars-s3.sha256", ("s3",))
"""Jar set of a checkpoint on S3-compatible storage."""


def spark() -> list[Path]:
    """Return the jars of Spark's Kafka connector. Download them if needed."""
    return LOCAL.jars("spark")


def kafka() -> list[Path]:
    """Return the jars of the broker. Download them if needed."""
    return LOCAL.jars("kafka")


def rocketmq() -> list[Path]:
    """Return the jars of RocketMQ. Download them if needed."""
    return ROCKETMQ.jars("rocketmq")


def s3() -> list[Path]:
    """Return the jars of Hadoop's S3 file system. Download them if needed."""
    return S3.jars("s3")


def fetch(progress: Progress | None = None) -> None:
    """Download the jars of Spark's Kafka connector and of the broker if needed."""
    LOCAL.fetch(progress=progress)


def write_checksums() -> None:
    """Rewrite `jars.sha256`."""
    LOCAL.write_checksums()


def pyspark() -> list[Path]:
    """Return the jars that are part of PySpark."""
    spec = find_spec("pyspark")  # located instead of imported, which takes long
    folders = spec.submodule_search_locations if spec else None
    return sorted(Path((folders or ["."])[0], "jars").glob("*.jar"))


def key_store(certificates: Sequence[bytes]) -> bytes:
    """Encode DER certificates as a Java key store of type JKS.

    Every Java reads such a trust store without a password. The format is defined by the JDK's
    `sun.security.provider.JavaKeyStore`.
    """

    def utf(text: str) -> bytes:
        return struct.pack(">H", len(text)) + text.encode("ascii")

    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + utf(f"ca-{number}") + struct.pack(">Q", 0)
        body += utf("X.509") + struct.pack(">I", len(certificate)) + certificate
    password = "changeit".encode("utf-16-be")  # the JDK's default
    return body + hashlib.sha1(password + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()


def network_options(java: Java) -> list[str]:
    """Return Java options for downloads: the environment's proxy and, for a bundled Java, a trust store.

    Java reads neither `https_proxy` nor `no_proxy`.
    """
    options, proxies = [], getproxies()
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    direct = [name.strip() for name in proxies.get("no", "").split(",") if name.strip()]
    if options and direct:
        names = "|".join(f"*{name}" if name.startswith(".") else name for name in direct)
        options.append(f"-Dhttp.nonProxyHosts={names}")
    store = _trust_store() if java.bundled else None
    return [*options, *([f"-Djavax.net.ssl.trustStore={store}"] if store else [])]


def _trust_store() -> Path | None:
    """Return a trust store with the machine's CA certificates; None to use Java's default.

    A bundle of PEM certificates is converted to a trust store in the cache.
    """
    existing = next((store for store in _TRUST_STORES if store.exists()), None)
    bundles = (os.environ.get("SSL_CERT_FILE", ""), *_BUNDLES)
    bundle = next((each for each in bundles if each and Path(each).exists()), None)
    if existing is not None or bundle is None:
        return existing
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(bundle)
        certificates = context.get_ca_certs(binary_form=True)
    except OSError:  # includes ssl.SSLError
        return None
    content = key_store(certificates)
    path = cache_folder() / "java" / f"cacerts-{hashlib.sha256(content).hexdigest()[:16]}"
    if not path.exists():
        write_whole(path, content)
    return path if certificates else None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
