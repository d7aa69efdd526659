"""`make audit`: a bill of materials, and the known vulnerabilities of what it lists."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import requests
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6

from streaming.local.process import cache_folder
from tests.audit.materials import ROOT, Material, jars_of_spark, locked_jars, packages

BILL = ROOT / ".reexpand" / "audit" / "bom.json"
DATABASE = "https://api.osv.dev/v1/querybatch"
VULNERABLE, NOT_COMPARED = 1, 2
_SECONDS = 60


def write_bill(materials: Sequence[Material], file: Path) -> None:
    """Write the bill of materials in the form of CycloneDX."""
    bom = Bom()
    service = bom.metadata.component = Component(name="reexpand", type=ComponentType.APPLICATION)
    for each in materials:
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=each.sha256)] if each.sha256 else []
        purl = each.purl
        bom.components.add(
            Component(
                name=each.name,
                version=each.version,
                group=each.group or None,
                type=ComponentType.LIBRARY,
                purl=purl,
                bom_ref=f"{purl or f'{each.name}@{each.version}'}#{each.sha256[:12]}",
                hashes=hashes,
            )
        )
    bom.register_dependency(service, bom.components)
    file.parent.mkdir(parents=True, exist_ok=True)
    JsonV1Dot6(bom).output_to_file(str(file), allow_overwrite=True, indent=2)


def vulnerable(materials: Sequence[Material]) -> dict[str, list[str]]:
    """Return the ids of known vulnerabilities by package URL.

    Raises:
        RequestException: the database does not answer.
    """
    purls = [str(purl) for each in materials if (purl := each.purl)]
    queries = [{"package": {"purl": purl}} for purl in purls]
    answer = requests.post(DATABASE, json={"queries": queries}, timeout=_SECONDS)
    answer.raise_for_status()
    results = answer.json()["results"]
    found = {
        purl: [each["id"] for each in result.get("vulns", [])] for purl, result in zip(purls, results, strict=True)
    }
    return {purl: ids for purl, ids in found.items() if ids}


def main() -> int:
    """Write the bill, compare, print what is found, and return the exit code."""
    spark = find_spec("pyspark")
    folders = [Path(each) / "jars" for each in (spark.submodule_search_locations or [] if spark else [])]
    jars = [*locked_jars(cache_folder() / "ivy"), *(jar for folder in folders for jar in jars_of_spark(folder))]
    bill = sorted({*packages(ROOT / "deploy/requirements.lock"), *jars})
    write_bill(bill, BILL)
    nameless = sorted({f"{jar.name} {jar.version} (SHA-256 {jar.sha256})" for jar in jars if jar.purl is None})
    print(f"{BILL.relative_to(ROOT)} lists {len(bill)} packages and jars")
    for each in nameless:
        print(f"not compared, as its group is not known: {each}", file=sys.stderr)
    try:
        found = vulnerable(jars)
    except requests.RequestException as error:
        print(
            f"Error: NOTHING WAS COMPARED: {DATABASE} cannot be reached ({type(error).__name__}). Unknown are the "
            f"vulnerabilities of all {len(bill)} packages and jars of {BILL.relative_to(ROOT)}, and of the packages "
            "of requirements.lock. Repeat this where the database can be reached, or give a scanner the bill.",
            file=sys.stderr,
        )
        return NOT_COMPARED
    for purl, ids in found.items():
        print(f"{purl}: {', '.join(ids)}")
    print(f"{len(found)} of {sum(jar.purl is not None for jar in jars)} jars have known vulnerabilities")
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", "osv", "--disable-pip", "--require-hashes"]
    packages_safe = subprocess.run([*command, "-r", str(ROOT / "requirements.lock")], check=False).returncode == 0
    if found or not packages_safe:
        return VULNERABLE
    return NOT_COMPARED if nameless else 0


if __name__ == "__main__":
    sys.exit(main())
