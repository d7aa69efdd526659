"""Services of docker-compose.yml, and their health checks without containers."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

TEXT = (Path(__file__).parents[2] / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def is_healthy(service: str, old: str, new: str) -> bool:
    """Run the health check of a service on this machine, with another address or path, for at most five seconds."""
    words = [word.replace("$$", "$") for word in SERVICES[service]["healthcheck"]["test"][1:]]
    assert old in words[-1]
    command = ["timeout", "5", *words[:-1], words[-1].replace(old, new)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
