"""docker-compose.yml: confined services, pinned images, health checks, and generated secrets."""

import os
import re
import subprocess
import sys
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from streaming.monitor.server import token_of_file
from tests.support.compose import COMPOSE, SERVICES, TEXT, is_healthy

ROOT = Path(__file__).parents[3]
ONE_SHOT = {"topics", "token"}
"""Services that end. Others start after their exit code 0."""
PINNED = r"[\w/]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}"


def default(value: str) -> str:
    """Return the default of `${NAME:-DEFAULT}`."""
    found = re.fullmatch(r"\$\{REEXPAND_\w+:-(.*)\}", value)
    assert found, value
    return found[1]


def run_script(service: str, folder: Path, run: Path | None = None, **variables: str) -> str:
    """Run the shell script of a service in a folder, with `run` in place of `/run.sh`, and return its output."""
    (script,) = SERVICES[service]["command"]
    script = script.replace("$$", "$").replace("/run.sh", str(run))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [*SERVICES[service]["entrypoint"], script]
    environment = {"PATH": path, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONE_SHOT))
def test_each_service_that_keeps_running_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    assert SERVICES[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(ONE_SHOT))
def test_the_exit_code_of_a_service_that_ends_is_checked(name: str) -> None:
    assert SERVICES["reexpand"]["depends_on"][name] == {"condition": "service_completed_successfully"}


def test_kafka_is_unhealthy_without_a_response() -> None:
    """Although its port accepts connections. `test_broker.py` checks a real broker."""

    class Silent(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(14)

    with ThreadingTCPServer(("127.0.0.1", 0), Silent) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            assert not is_healthy("kafka", "/9092", f"/{server.server_address[1]}")
        finally:
            server.shutdown()
            thread.join()


def test_traffic_is_unhealthy_without_a_recent_acknowledgement(tmp_path: Path) -> None:
    (path,) = re.findall(r"find (\S+)", SERVICES["traffic"]["healthcheck"]["test"][-1])
    assert SERVICES["traffic"]["command"] == ["--heartbeat-file", path]
    file = tmp_path / "heartbeat"
    assert not is_healthy("traffic", path, str(file))
    file.touch()
    assert is_healthy("traffic", path, str(file))
    an_old_time = file.stat().st_mtime - 60
    os.utime(file, (an_old_time, an_old_time))
    assert not is_healthy("traffic", path, str(file))


def test_each_image_is_pinned_by_digest() -> None:
    """Those of other projects. The base of the job's own image has a full version."""
    images = [service["image"] for service in SERVICES.values()]
    others = [default(image) for image in images if image != "reexpand:local"]
    assert len(others) == 3
    base = default(COMPOSE["x-job"]["build"]["args"]["PYTHON_IMAGE"])
    assert all(re.fullmatch(PINNED, image) for image in others)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim", base)
    assert (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8").count(f"ARG PYTHON_IMAGE={base}\n") == 1


def test_mounted_files_exist() -> None:
    mounted = re.findall(r"- \./(deploy/[^:]+):", TEXT)
    assert len(mounted) == 4
    assert [path for path in mounted if not (ROOT / path).exists()] == []


def test_ports_are_published_on_the_loopback_interface() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:${REEXPAND_") for port in ports)


def test_no_secret_has_a_default() -> None:
    assert re.findall(r"\$\{REEXPAND_\w+_(?:PASSWORD|TOKEN):-([^}]*)\}", TEXT) == ["", ""]


def test_the_job_reads_the_token_that_is_generated() -> None:
    """From the volume that both services share, after the file is there."""
    job, token = SERVICES["reexpand"], SERVICES["token"]
    (volume,) = token["volumes"]
    assert job["volumes"] == [volume]
    assert job["environment"]["REEXPAND_HTTP_TOKEN_FILE"] == f"{volume.partition(':')[2]}/console.token"
    assert job["depends_on"]["token"] == {"condition": "service_completed_successfully"}


def test_the_token_is_random_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "console.token"
    run_script("token", tmp_path, REEXPAND_HTTP_TOKEN="")
    first = token_of_file(file)
    assert file.stat().st_mode & 0o777 == 0o600
    run_script("token", tmp_path, REEXPAND_HTTP_TOKEN="")
    assert token_of_file(file) == first
    file.unlink()
    run_script("token", tmp_path, REEXPAND_HTTP_TOKEN="")
    assert token_of_file(file) != first


def test_your_own_token_replaces_the_generated_one(tmp_path: Path) -> None:
    run_script("token", tmp_path, REEXPAND_HTTP_TOKEN="")
    own = "o w n;'$(id)\" of 16 and more"
    run_script("token", tmp_path, REEXPAND_HTTP_TOKEN=own)
    assert token_of_file(tmp_path / "console.token") == own


def test_the_password_of_grafana_is_yours_or_random(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.write_text("#!/bin/sh\nprintenv GF_SECURITY_ADMIN_PASSWORD\n", encoding="utf-8")
    run.chmod(0o755)
    found = {run_script("grafana", tmp_path, run, GF_SECURITY_ADMIN_PASSWORD="") for _ in range(3)}
    assert len(found) == 3
    assert min(map(len, found)) > 30
    own = {"GF_SECURITY_ADMIN_PASSWORD": "your own"}
    assert run_script("grafana", tmp_path, run, **own) == "your own\n"
