"""Names of the jars in the bill of materials, by which databases of vulnerabilities know them."""

from pathlib import Path
from zipfile import ZipFile

import pyspark

from tests.audit import jar_names

ROOT = Path(__file__).parents[3]


def jar(folder: Path, name: str, **entries: str) -> Path:
    with ZipFile(folder / name, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", entries.pop("manifest", ""))
        for group, properties in entries.items():
            archive.writestr(f"META-INF/maven/{group}/pom.properties", properties)
    return folder / name


def test_a_jar_is_named_by_itself(tmp_path: Path) -> None:
    """Not by what it holds of others."""
    other = "groupId=org.other\nartifactId=other\nversion=1\n"
    own = "groupId=org.own\r\nartifactId=own-2\r\nversion=3.4\r\n"
    assert jar_names.of_file(jar(tmp_path, "own-2-3.4.jar", a=other, b=own)) == ("org.own", "own-2", "3.4")
    manifest = "Implementation-Vendor-Id: org.ve\r\n ry.long\r\n"
    assert jar_names.of_file(jar(tmp_path, "x-1.jar", manifest=manifest, a=other)) == ("org.very.long", "x", "1")
    assert jar_names.of_file(jar(tmp_path, "y-1.jar")) == ("", "y", "1")


def test_each_jar_of_spark_has_a_name() -> None:
    jars = list((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    assert len(jars) > 200
    assert [each.name for each in jars if not jar_names.of_file(each).group] == []


def test_each_locked_jar_that_has_no_report_of_ivy_has_a_name() -> None:
    lines = (ROOT / "streaming" / "local" / "jars-s3.sha256").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not jar_names.of_name(line.split()[1]).group] == []
