"""Jars beyond the Python packages: Spark's Kafka connector, its file system for local files, and the broker.

Ivy downloads them from Maven Central; its jar is a part of PySpark, so no build tool is needed. `ivy.xml` names the
versions, and `jars.sha256` the expected files and their checksums.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections import deque
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from streaming.errors import JarsUnavailable
from streaming.local.cache import cache_folder, locked
from streaming.local.java import FIRST_TIER, find_java
from streaming.local.network import network_options
from streaming.local.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Progress = Callable[[int, int, str], None]
    """Callback that gets the number of steps done, the number of all steps, and the jar of the last step."""

_HERE = Path(__file__).parent
_LOG_LINES_SHOWN = 15
"""Number of lines of Ivy's log in an error message."""


@dataclass(frozen=True)
class JarSets:
    """Sets of jars, named by an Ivy file and kept in the cache.

    Attributes:
        ivy_file: file of the versions, with a configuration of Ivy for each set.
        checksums: file of the expected jars, one a line: SHA-256 and `SET/FILE`.
        names: names of the sets.
    """

    ivy_file: Path
    checksums: Path
    names: tuple[str, ...]

    def jars(self, name: str) -> list[Path]:
        """Return the jars of one set; download them when they are not in the cache.

        Raises:
            JarsUnavailable: as for `fetch`.
        """
        self.fetch([name])
        return [self.folder / name / jar for jar in self._expected(name)]

    def fetch(self, names: Sequence[str] = (), progress: Progress | None = None) -> None:
        """Download the sets (all, when none is named) into the cache; a set in the cache costs nothing.

        A set appears whole or not at all, also after an interruption, and with several processes at once.

        Raises:
            JarsUnavailable: the jars cannot be downloaded or stored, or differ from the checksums.
        """
        wanted = names or self.names
        if all(self._is_complete(name) for name in wanted):
            return
        root = cache_folder() / "jars"
        try:
            with locked(root / "lock") as lock:
                for leftover in root.glob(".partial-*"):  # of a killed process
                    shutil.rmtree(leftover)
                missing = [name for name in wanted if not self._is_complete(name)]
                if missing:
                    self._download(missing, root, lock, progress)
        except OSError as error:
            raise JarsUnavailable(
                f"The jars cannot be stored in {root}: {error.strerror}. "
                "Make room there, or set XDG_CACHE_HOME to a folder that can be written."
            ) from error

    def write_checksums(self) -> None:
        """Write the checksums anew after a change of the Ivy file; review the differences before you keep them."""
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
        """Folder of the sets; other versions have another one."""
        digest = hashlib.sha256(self.ivy_file.read_bytes() + self.checksums.read_bytes()).hexdigest()
        return cache_folder() / "jars" / digest[:16]

    def _expected(self, name: str) -> dict[str, str]:
        """Return the file names of one set, each with its checksum."""
        entries = (line.split("  ", 1) for line in self.checksums.read_text(encoding="utf-8").splitlines())
        return {path.removeprefix(f"{name}/"): digest for digest, path in entries if path.startswith(f"{name}/")}

    def _is_complete(self, name: str) -> bool:
        folder = self.folder / name
        return all((folder / jar).exists() for jar in self._expected(name))

    def _download(self, missing: Sequence[str], root: Path, lock: IO[str], progress: Progress | None) -> None:
        with tempfile.TemporaryDirectory(dir=root, prefix=".partial-") as partial:
            self._run_ivy(missing, Path(partial), lock, progress)
            for name in missing:
                self._check(name, Path(partial, name))
                target = self.folder / name
                shutil.rmtree(target, ignore_errors=True)  # a part of it was removed
                target.parent.mkdir(exist_ok=True)
                Path(partial, name).rename(target)

    def _check(self, name: str, folder: Path) -> None:
        found = {jar.name: _sha256(jar) for jar in folder.iterdir()}
        wrong = sorted({jar for jar, _ in found.items() ^ self._expected(name).items()})
        if wrong:
            raise JarsUnavailable(
                f"The downloaded jars of {name} differ from those that reexpand was tested with: {', '.join(wrong)}. "
                f"Remove {_ivy_cache()} and try again; if that does not help, the repository serves other files."
            )

    def _run_ivy(self, names: Sequence[str], target: Path, lock: IO[str], progress: Progress | None) -> None:
        """Let Ivy put the jars of each set into a folder of its own under `target`."""
        java = find_java()
        ivy = _ivy_jar()
        command = [
            str(java.executable),
            *network_options(java),
            FIRST_TIER,  # Ivy mostly waits for the network
            # Sources and documentation would cost three needless requests for each module.
            "-Divy.maven.lookup.sources=false",
            "-Divy.maven.lookup.javadoc=false",
            f"-Dreexpand.ivy.cache={_ivy_cache()}",
            *("-jar", str(ivy)),
            *("-settings", str(_HERE / "ivysettings.xml"), "-ivy", str(self.ivy_file)),
            *("-confs", *names, "-types", "jar", "bundle"),
            *("-retrieve", f"{target}/[conf]/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        log: deque[str] = deque(maxlen=_LOG_LINES_SHOWN)
        steps = 2 * sum(len(self._expected(name)) for name in names)  # each jar is looked up, then downloaded
        done = 0

        def on_line(line: str) -> None:
            nonlocal done
            if line.strip(" .\t\n"):
                log.append(line.rstrip())
            step = re.search(r"(?:found |\[SUCCESSFUL \] )[^#]+#([^;]+);([^ !]+)", line)
            if step and progress:
                done = min(done + 1, steps)
                progress(done, steps, f"{step[1]} {step[2]}")

        if run(command, lock, on_line):
            raise JarsUnavailable(
                f"The jars of {' and '.join(names)} cannot be downloaded; the network is needed once. "
                "The end of Ivy's log:\n" + "\n".join(f"    {line}" for line in log)
            )


LOCAL = JarSets(_HERE / "ivy.xml", _HERE / "jars.sha256", ("spark", "kafka"))
"""Jar sets of the service and of the embedded broker."""

ROCKETMQ = JarSets(_HERE / "ivy-rocketmq.xml", _HERE / "jars-rocketmq.sha256", ("rocketmq",))
"""Jar set of a local RocketMQ, which only those who start one need."""

S3 = JarSets(_HERE / "ivy-s3.xml", _HERE / "jars-s3.sha256", ("s3",))
"""Jar set of a checkpoint on S3-compatible storage."""


def spark() -> list[Path]:
    """Return the jars of Spark's Kafka connector; download them when they are not in the cache."""
    return LOCAL.jars("spark")


def kafka() -> list[Path]:
    """Return the jars of the broker; download them when they are not in the cache."""
    return LOCAL.jars("kafka")


def rocketmq() -> list[Path]:
    """Return the jars of RocketMQ; download them when they are not in the cache."""
    return ROCKETMQ.jars("rocketmq")


def s3() -> list[Path]:
    """Return the jars of Hadoop's file system of S3; download them when they are not in the cache."""
    return S3.jars("s3")


def fetch(progress: Progress | None = None) -> None:
    """Download Spark's Kafka connector and the broker's jars; jars in the cache cost nothing.

    Raises:
        JarsUnavailable: the jars cannot be downloaded or stored, or differ from `jars.sha256`.
    """
    LOCAL.fetch(progress=progress)


def write_checksums() -> None:
    """Write `jars.sha256` anew."""
    LOCAL.write_checksums()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _ivy_cache() -> Path:
    return cache_folder() / "ivy"


def _ivy_jar() -> Path:
    # Located, not imported: the import of PySpark takes longer than all of this when no jar is missing.
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for jar in Path((folders or ["."])[0], "jars").glob("ivy-*.jar"):
        return jar
    raise JarsUnavailable("PySpark is not installed, or its folder of jars lacks Ivy. Run `make setup` again.")
