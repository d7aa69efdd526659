"""The jars that Python packages do not bring: Spark's Kafka connector, and the broker.

Ivy fetches them from Maven Central; its jar ships inside PySpark, so no build tool is needed. `ivy.xml` names the
versions and `jars.sha256` what must come of it, file by file.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections import deque
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING

from streaming.local.cache import cache_folder, locked
from streaming.local.errors import JarsError
from streaming.local.java import find_java
from streaming.local.network import network_options
from streaming.local.process import run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Progress = Callable[[int, int, str], None]
    """Called with the steps done, all steps, and what the last one was about."""

_HERE = Path(__file__).parent
_IVY_FILE = _HERE / "ivy.xml"
_CHECKSUMS = _HERE / "jars.sha256"
_SETS = ("spark", "kafka")
_LOG_LINES_SHOWN = 15


def spark() -> list[Path]:
    """The jars of Spark's Kafka connector, fetched when they are not there yet."""
    return _jars("spark")


def kafka() -> list[Path]:
    """The jars of the broker, fetched when they are not there yet."""
    return _jars("kafka")


def fetch(sets: Sequence[str] = _SETS, progress: Progress | None = None) -> None:
    """Fetch the sets of jars that are not in the cache; what is there is left alone and costs nothing.

    A set appears whole or not at all, whatever interrupts this and however many processes do it at once.

    Raises:
        JarsError: they cannot be downloaded or stored, or are not what `jars.sha256` says.
    """
    if all(_is_complete(name) for name in sets):
        return
    root = cache_folder() / "jars"
    try:
        with locked(root / "lock") as lock:
            for leftover in root.glob(".partial-*"):  # of a process that was killed
                shutil.rmtree(leftover)
            missing = [name for name in sets if not _is_complete(name)]
            if missing:
                _fetch(missing, root, lock, progress)
    except OSError as error:
        raise JarsError(
            f"The jars cannot be stored in {root}: {error.strerror}. "
            "Make room there, or set XDG_CACHE_HOME to a folder that can be written."
        ) from error


def write_checksums() -> None:
    """Write `jars.sha256` anew, after a change of `ivy.xml`; the differences deserve a look before they are kept."""
    with locked(cache_folder() / "jars" / "lock") as lock, tempfile.TemporaryDirectory() as folder:
        _run_ivy(_SETS, Path(folder), lock, None)
        lines = [
            f"{_sha256(jar)}  {name}/{jar.name}" for name in _SETS for jar in sorted((Path(folder, name)).iterdir())
        ]
    _CHECKSUMS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _jars(name: str) -> list[Path]:
    fetch([name])
    return [_folder() / name / jar for jar in _expected(name)]


@cache
def _folder_name() -> str:
    return hashlib.sha256(_IVY_FILE.read_bytes() + _CHECKSUMS.read_bytes()).hexdigest()[:16]


def _folder() -> Path:
    return cache_folder() / "jars" / _folder_name()


@cache
def _expected(name: str) -> dict[str, str]:
    """The file names of one set, each with its checksum."""
    entries = (line.split("  ", 1) for line in _CHECKSUMS.read_text(encoding="utf-8").splitlines())
    return {path.removeprefix(f"{name}/"): digest for digest, path in entries if path.startswith(f"{name}/")}


def _is_complete(name: str) -> bool:
    folder = _folder() / name
    return all((folder / jar).exists() for jar in _expected(name))


def _fetch(missing: Sequence[str], root: Path, lock: IO[str], progress: Progress | None) -> None:
    with tempfile.TemporaryDirectory(dir=root, prefix=".partial-") as partial:
        _run_ivy(missing, Path(partial), lock, progress)
        for name in missing:
            _check(name, Path(partial, name))
            target = _folder() / name
            shutil.rmtree(target, ignore_errors=True)  # someone removed a part of it
            target.parent.mkdir(exist_ok=True)
            Path(partial, name).rename(target)


def _check(name: str, folder: Path) -> None:
    found = {jar.name: _sha256(jar) for jar in folder.iterdir()}
    wrong = sorted({jar for jar, _ in found.items() ^ _expected(name).items()})
    if wrong:
        raise JarsError(
            f"What was downloaded for {name} is not what reexpand was tested with: {', '.join(wrong)}. "
            f"Remove {_ivy_cache()} and try again; if that does not help, the repository serves other files."
        )


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
    raise JarsError("PySpark is not installed, or has no Ivy in its jars folder. Run `make setup` again.")


def _run_ivy(sets: Sequence[str], target: Path, lock: IO[str], progress: Progress | None) -> None:
    """Let Ivy put the jars of each set into its folder under `target`."""
    java = find_java()
    ivy = _ivy_jar()
    command = [
        str(java.executable),
        *network_options(java),
        "-XX:TieredStopAtLevel=1",  # it waits for the network, so the better compiler only costs
        # It would ask for sources and documentation of everything, three requests a module that nobody needs.
        "-Divy.maven.lookup.sources=false",
        "-Divy.maven.lookup.javadoc=false",
        f"-Dreexpand.ivy.cache={_ivy_cache()}",
        *("-jar", str(ivy)),
        *("-settings", str(_HERE / "ivysettings.xml"), "-ivy", str(_IVY_FILE)),
        *("-confs", *sets, "-types", "jar", "bundle"),
        *("-retrieve", f"{target}/[conf]/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    log: deque[str] = deque(maxlen=_LOG_LINES_SHOWN)
    steps = 2 * sum(len(_expected(name)) for name in sets)  # each jar is looked up, then downloaded
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
        raise JarsError(
            f"The jars of {' and '.join(sets)} cannot be downloaded; the network is needed once. "
            "The end of what Ivy says:\n" + "\n".join(f"    {line}" for line in log)
        )
