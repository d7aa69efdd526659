"""The demo from the outside: what it prints when piped, its exit code, and that nothing outlives it."""

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from streaming.examples.scenario import SCENES
from tests.support.processes import MARK, eventually, marked

_PROGRAM = (
    "import sys, pathlib; from streaming.examples import demo, screen; "
    "home, where = pathlib.Path(sys.argv[1]), sys.argv[2]; "
    "sys.exit(demo.run(home, screen.Screen(), keep=False, on_cluster=where == 'cluster'))"
)
_TIMEOUT_SECONDS = 1_200


@pytest.mark.main
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("where", ["one process", "cluster"])
def test_the_demo_prints_plain_lines_and_leaves_nothing_behind(tmp_path: Path, where: str) -> None:
    mark = uuid.uuid4().hex
    demo = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path), where],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_SECONDS,
        env={**os.environ, MARK: mark, "COLUMNS": "80"},
        check=False,
    )
    output = demo.stdout
    assert demo.returncode == 0, output + demo.stderr
    assert "\x1b" not in output
    assert ("worker 1 is killed" in output) == (where == "cluster")
    job_log = (tmp_path / "demo" / "job.log").read_text(encoding="utf-8")
    assert ("Lost executor" in job_log) == (where == "cluster")
    for scene in SCENES:
        assert scene.title in output
        for step in scene.steps:
            assert f"> {step.says}\n" in output

    update = r"^ *[\d.]+ s    {} {} +{} +by {} +{} +[\d.]+ s( \(cold\))?$"
    for parts in [
        (r"\+", "acme-billing", "orders/eu__acme__order__created", r"\*__acme__\*\*", "lazy: topic created"),
        (r"\+", "globex-billing", "orders/us__globex__invoice__issued", r"\*__globex__\*\*", "eager: subscribed"),
        (r"\+", "courier-app", "orders/eu__acme__order__shipped", r"\*__\*__order__shipped", "eager: group changed"),
        ("-", "auditor", "orders/us__acme__order__created", "receiving everything", "lazy: topic deleted"),
        ("-", "acme-billing", "orders/eu__acme__invoice__issued", r"\*__acme__\*\*", "eager: unsubscribed"),
    ]:
        assert re.search(update.format(*parts), output, re.MULTILINE), parts
    assert re.search(r"^ *[\d.]+ s    ! not-json: the value is not JSON", output, re.MULTILINE)
    assert re.search(r"^ *[\d.]+ s    ! invalid-pattern: the request is refused", output, re.MULTILINE)
    assert re.search(r"^  dead letters +2 \(1 invalid-pattern, 1 not-json\)$", output, re.MULTILINE)
    assert re.search(r"^  latency p50 / p95 +[\d.]+ s / [\d.]+ s ", output, re.MULTILINE)
    assert re.search(r"^  check +passed: ", output, re.MULTILINE)

    assert eventually(lambda: not marked(mark)), marked(mark)
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["broker.log", "job.log"]
