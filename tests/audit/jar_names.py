"""Maven coordinates of jars: from what a jar says of itself, and else from a table."""

import re
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import ZipFile

_PROPERTIES: Final = re.compile(r"META-INF/maven/.*/pom\.properties")
_VERSION: Final = re.compile(r"(.+?)-(\d.*)\.jar")

_GROUPS: Final = {
    "RoaringBitmap": "org.roaringbitmap",
    "analyticsaccelerator-s3": "software.amazon.s3.analyticsaccelerator",
    "arpack_combined_all": "net.sourceforge.f2j",
    "derby": "org.apache.derby",
    "derbyshared": "org.apache.derby",
    "derbytools": "org.apache.derby",
    "eventstream": "software.amazon.eventstream",
    "hadoop-aws": "org.apache.hadoop",
    "hadoop-client-runtime": "org.apache.hadoop",
    "ivy": "org.apache.ivy",
    "jdo-api": "javax.jdo",
    "jsr305": "com.google.code.findbugs",
    "jta": "javax.transaction",
    "libfb303": "org.apache.thrift",
    "libthrift": "org.apache.thrift",
    "objenesis": "org.objenesis",
    "oro": "oro",
    "reactive-streams": "org.reactivestreams",
    "rocksdbjni": "org.rocksdb",
    "scala-compiler": "org.scala-lang",
    "scala-library": "org.scala-lang",
    "scala-reflect": "org.scala-lang",
    "stax-api": "stax",
    "tink": "com.google.crypto.tink",
    "transaction-api": "javax.transaction",
    "xz": "org.tukaani",
}
"""Groups of jars that say nothing of it, or something else than Maven's repository."""

_OF_FOLDER: Final = {"s3": "software.amazon.awssdk"}
"""Group of all other jars in a folder of the locked jars."""


class Coordinates(NamedTuple):
    """Group, name and version; the group is empty where it is not known."""

    group: str
    name: str
    version: str


def of_file(jar: Path) -> Coordinates:
    """Return the coordinates of a jar: those of its own `pom.properties`, the table's, or its manifest's."""
    _, name, version = split(jar.name)
    with ZipFile(jar) as archive:
        for entry in archive.namelist():
            if _PROPERTIES.fullmatch(entry):  # a jar may hold those of others as well
                said = _fields(archive.read(entry), "=")
                own = Coordinates(*(said.get(field, "") for field in ("groupId", "artifactId", "version")))
                if f"{own.name}-{own.version}.jar" == jar.name or own.name == name:
                    return own
        manifest = _fields(archive.read("META-INF/MANIFEST.MF"), ":")
    return Coordinates(_GROUPS.get(name) or manifest.get("Implementation-Vendor-Id", ""), name, version)


def of_name(file: str) -> Coordinates:
    """Return the coordinates of a locked jar, given as `folder/name`."""
    folder, _, jar = file.partition("/")
    _, name, version = split(jar)
    return Coordinates(_GROUPS.get(name) or _OF_FOLDER.get(folder, ""), name, version)


def split(jar: str) -> Coordinates:
    """Return name and version as the name of a file has them."""
    found = _VERSION.fullmatch(jar)
    return Coordinates("", found[1], found[2]) if found else Coordinates("", jar.removesuffix(".jar"), "")


def _fields(content: bytes, separator: str) -> dict[str, str]:
    text = content.decode("utf-8", "replace").replace("\r\n", "\n").replace("\n ", "")  # long lines are folded
    pairs = (line.partition(separator) for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
