"""Real Prometheus that scrapes jobs, with the configuration of deploy/."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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
