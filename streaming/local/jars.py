"""The jars that Python packages do not bring: Spark's Kafka connector and local files, and the broker.

Ivy fetches them from Maven Central; its jar ships inside PySpark, so no build tool is needed. `ivy.xml` names the
versions and `jars.sha256` what must come of it, file by file.
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
    """Called with the steps done, all steps, and what the last one was about."""

_HERE = Path(__file__).parent
_LOG_LINES_SHOWN = 15


@dataclass(frozen=True)
class JarSets:
    """Sets of jars as an Ivy file names them, kept in the cache.

    Attributes:
        ivy_file: names the versions, with a configuration of Ivy for each set.
        checksums: what must come of it: a line a jar, its SHA-256 and `SET/FILE`.
        names: the sets.
    """

    ivy_file: Path
    checksums: Path
    names: tuple[str, ...]

    def jars(self, name: str) -> list[Path]:
        """The jars of one set, fetched when they are not there yet.

        Raises:
            JarsUnavailable: as for `fetch`.
        """
        self.fetch([name])
        return [self.folder / name / jar for jar in self._expected(name)]

    def fetch(self, names: Sequence[str] = (), progress: Progress | None = None) -> None:
        """Fetch the sets (all, when none is named) that are not in the cache; what is there costs nothing.

        A set appears whole or not at all, whatever interrupts this and however many processes do it at once.

        Raises:
            JarsUnavailable: they cannot be downloaded or stored, or are not what the checksums say.
        """
        wanted = names or self.names
        if all(self._is_complete(name) for name in wanted):
            return
        root = cache_folder() / "jars"
        try:
            with locked(root / "lock") as lock:
                for leftover in root.glob(".partial-*"):  # of a process that was killed
                    shutil.rmtree(leftover)
                missing = [name for name in wanted if not self._is_complete(name)]
                if missing:
                    self._fetch(missing, root, lock, progress)
        except OSError as error:
            raise JarsUnavailable(
                f"The jars cannot be stored in {root}: {error.strerror}. "
                "Make room there, or set XDG_CACHE_HOME to a folder that can be written."
            ) from error

    def write_checksums(self) -> None:
        """Write the checksums anew, after a change of the Ivy file; look at the differences before keeping them."""
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
        """Where the sets are: another folder for other versions."""
        digest = hashlib.sha256(self.ivy_file.read_bytes() + self.checksums.read_bytes()).hexdigest()
        return cache_folder() / "jars" / digest[:16]

    def _expected(self, name: str) -> dict[str, str]:
        """The file names of one set, each with its checksum."""
        entries = (line.split("  ", 1) for line in self.checksums.read_text(encoding="utf-8").splitlines())
        return {path.removeprefix(f"{name}/"): digest for digest, path in entries if path.startswith(f"{name}/")}

    def _is_complete(self, name: str) -> bool:
        folder = self.folder / name
        return all((folder / jar).exists() for jar in self._expected(name))

    def _fetch(self, missing: Sequence[str], root: Path, lock: IO[str], progress: Progress | None) -> None:
        with tempfile.TemporaryDirectory(dir=root, prefix=".partial-") as partial:
            self._run_ivy(missing, Path(partial), lock, progress)
            for name in missing:
                self._check(name, Path(partial, name))
                target = self.folder / name
                shutil.rmtree(target, ignore_errors=True)  # someone removed a part of it
                target.parent.mkdir(exist_ok=True)
                Path(partial, name).rename(target)

    def _check(self, name: str, folder: Path) -> None:
        found = {jar.name: _sha256(jar) for jar in folder.iterdir()}
        wrong = sorted({jar for jar, _ in found.items() ^ self._expected(name).items()})
        if wrong:
            raise JarsUnavailable(
                f"What was downloaded for {name} is not what reexpand was tested with: {', '.join(wrong)}. "
                f"Remove {_ivy_cache()} and try again; if that does not help, the repository serves other files."
            )

    def _run_ivy(self, names: Sequence[str], target: Path, lock: IO[str], progress: Progress | None) -> None:
        """Let Ivy put the jars of each set into its folder under `target`."""
        java = find_java()
        ivy = _ivy_jar()
        command = [
            str(java.executable),
            *network_options(java),
            FIRST_TIER,  # it waits for the network
            # It would ask for sources and documentation of everything, three requests a module that nobody needs.
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
                "The end of what Ivy says:\n" + "\n".join(f"    {line}" for line in log)
            )


LOCAL = JarSets(_HERE / "ivy.xml", _HERE / "jars.sha256", ("spark", "kafka"))
"""What the service and its own broker need."""


def spark() -> list[Path]:
    """The jars that Spark lacks, fetched when they are not there yet."""
    return LOCAL.jars("spark")


def kafka() -> list[Path]:
    """The jars of the broker, fetched when they are not there yet."""
    return LOCAL.jars("kafka")


def fetch(progress: Progress | None = None) -> None:
    """Fetch both; what is in the cache is left alone and costs nothing.

    Raises:
        JarsUnavailable: they cannot be downloaded or stored, or are not what `jars.sha256` says.
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
    # Found rather than imported: PySpark takes longer to import than all of this takes when nothing is missing.
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    for jar in Path((folders or ["."])[0], "jars").glob("ivy-*.jar"):
        return jar
    raise JarsUnavailable("PySpark is not installed, or has no Ivy in its jars folder. Run `make setup` again.")
