"""Materials of the service: locked Python packages, and jars with their checksums."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from defusedxml import ElementTree
from packageurl import PackageURL

from tests.audit import jar_names

ROOT = Path(__file__).parents[2]
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Material:
    """A package or jar.

    Attributes:
        ecosystem: `pypi` or `maven`.
        group: its group, as Maven has it; empty where that is not known, and for Python packages.
        sha256: checksum of the file; empty for Python packages, which have one for each platform in the lock.
    """

    name: str
    version: str
    ecosystem: str
    group: str = ""
    sha256: str = ""

    @property
    def purl(self) -> PackageURL | None:
        """Name by which databases know it; None for a jar without a group."""
        if self.ecosystem == "maven" and not self.group:
            return None
        return PackageURL(self.ecosystem, self.group or None, self.name, self.version)


def packages(lock: Path) -> list[Material]:
    """Return the Python packages of a lock."""
    return [Material(name, version, "pypi") for name, version in _LOCKED.findall(lock.read_text(encoding="utf-8"))]


def locked_jars(reports: Path) -> Iterator[Material]:
    """Yield the jars of the connector, the broker and a local RocketMQ, from Ivy's reports."""
    known = {}
    for report in sorted(reports.glob("reexpand-*.xml")):
        for module in ElementTree.parse(report).iter("module"):
            for revision in module.iter("revision"):
                key = f"{module.get('name')}-{revision.get('name')}"
                known[key] = (module.get("organisation"), module.get("name"), revision.get("name"))
    lists = sorted((ROOT / "streaming/local").glob("jars*.sha256"))
    for line in (line for each in lists for line in each.read_text(encoding="utf-8").splitlines()):
        checksum, file = line.split()
        jar = file.partition("/")[2].removesuffix(".jar")
        # A native library has its platform behind the version.
        noted = known.get(jar) or next((known[each] for each in known if jar.startswith(f"{each}-")), None)
        group, name, version = noted or jar_names.of_name(file)
        yield Material(name, version, "maven", group, checksum)


def jars_of_spark(folder: Path) -> Iterator[Material]:
    """Yield the jars that a Python package brings; the lock has the checksum of the whole package."""
    for jar in sorted(folder.glob("*.jar")):
        group, name, version = jar_names.of_file(jar)
        yield Material(name, version, "maven", group, hashlib.sha256(jar.read_bytes()).hexdigest())
