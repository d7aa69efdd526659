"""Metrics and health of a job, and a real Prometheus that scrapes jobs with the configuration of deploy/."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from streaming.local.server import free_port

MONITORING = Path(__file__).parents[2] / "deploy/monitoring"
DASHBOARD = MONITORING / "grafana/dashboards/reexpand.json"


def is_installed() -> bool:
    """Return True if Prometheus is installed (Debian: prometheus)."""
    return shutil.which("prometheus") is not None


@contextmanager
def scraping(*addresses: str) -> Iterator[str]:
    """Scrape jobs at these addresses each second, and yield the address of Prometheus."""
    with TemporaryDirectory() as folder:
        targets = ", ".join(json.dumps(address.removeprefix("http://")) for address in addresses)
        text = (MONITORING / "prometheus.yml").read_text().replace('"reexpand:9464"', targets).replace("15s", "1s")
        Path(folder, "prometheus.yml").write_text(text)
        shutil.copy(MONITORING / "alerts.yml", folder)
        port = free_port()
        options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        with subprocess.Popen(
            ["prometheus", *options, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL
        ) as process:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                process.terminate()


def probe(address: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(address, timeout=60) as answer:  # noqa: S310 - of the job
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)


def sample(address: str, name: str, **labels: str) -> float:
    """Return the value of a job's metric; 0 if it has none yet."""
    with urlopen(f"{address}/metrics", timeout=60) as answer:  # noqa: S310 - as above
        families = text_string_to_metric_families(answer.read().decode())
    found = [each for family in families for each in family.samples if (each.name, each.labels) == (name, labels)]
    return float(found[0].value) if found else 0.0
