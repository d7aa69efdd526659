"""Alerts, dashboard, runbook and table of metrics agree with what the job exports."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from streaming.monitor.batch import LagMeter
from streaming.monitor.health import Condition, Health
from streaming.monitor.metrics import Metrics
from tests.support.prometheus import DASHBOARD as DASHBOARD_FILE
from tests.support.prometheus import MONITORING

ROOT = Path(__file__).parents[3]
ALERTS = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
NAMES = re.findall(r"- alert: (\w+)", ALERTS)
SITE = "https://github.com/reexpand/reexpand/blob/main"
"""Address of the repository's files, as in the README."""
PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads(DASHBOARD_FILE.read_text(encoding="utf-8"))


def families() -> Iterator[tuple[str, str, str]]:
    """Yield name, kind and text of each metric, under the name by which Prometheus knows it."""
    for family in Metrics(Health(1), LagMeter(), dict).registry.collect():
        yield family.name + ("_total" if family.type == "counter" else ""), family.type, family.documentation


@cache
def exported() -> set[str]:
    names = set()
    for name, kind, _ in families():
        names |= {f"{name}_{end}" for end in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


def used(text: str) -> set[str]:
    return set(re.findall(r"\breexpand_\w+", text))


def test_alerts_and_dashboard_ask_for_metrics_that_there_are() -> None:
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    assert all(map(used, expressions))
    assert used(ALERTS) | used("\n".join(expressions)) <= exported()


def test_the_dashboard_shows_every_metric() -> None:
    shown = used(json.dumps(DASHBOARD["panels"]))
    hidden = {name for name, _, _ in families()} - {name.removesuffix("_bucket").removesuffix("_sum") for name in shown}
    assert hidden == {"reexpand_micro_batch_number", "reexpand_micro_batch_timestamp_seconds"}


def test_every_panel_has_a_place_of_its_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_single_value_panel_has_thresholds() -> None:
    """Grafana's own rule is: from 80 on."""
    stats = [panel for panel in DASHBOARD["panels"] if panel["type"] == "stat"]
    assert all("thresholds" in panel["fieldConfig"]["defaults"] for panel in stats)
    (state,) = [panel for panel in stats if panel["title"] == "State"]
    colored = {each["matcher"]["options"] for each in state["fieldConfig"]["overrides"]}
    assert colored == set(Condition)


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_an_entry_in_the_runbook(name: str) -> None:
    """The alert links to it by an absolute URL; the entry has the cause and the remedy."""
    rule = ALERTS.partition(f"- alert: {name}\n")[2].partition("- alert:")[0]
    assert f"runbook_url: {SITE}/docs/operations.md#{name.lower()}\n" in rule
    entry = PAGE.partition(f"\n### {name}\n")[2].partition("\n##")[0]
    assert len(re.findall(r"^\*\*(?:Means|Do)\.\*\* ", entry, re.MULTILINE)) == 2, entry


def test_the_runbook_has_no_other_entries() -> None:
    assert re.findall(r"^### (Reexpand\w+)$", PAGE, re.MULTILINE) == NAMES


def test_the_table_of_metrics_is_that_of_the_job() -> None:
    """Name, kind and text; in its order."""
    rows = re.findall(r"^\| `(reexpand_\w+)`[^|]* \| (\w+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert rows == [(name, kind, text.removesuffix(".")) for name, kind, text in families()]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize(
    "words",
    [
        ["check", "config", "deploy/monitoring/prometheus.yml"],
        ["check", "rules", "deploy/monitoring/alerts.yml"],
        ["test", "rules", "tests/unit/deploy/alerts_test.yml"],
    ],
    ids=" ".join,
)
def test_prometheus_takes_the_configuration_and_the_alerts_fire(words: list[str]) -> None:
    """Each in its story, and none in that of a job that works."""
    done = subprocess.run(["promtool", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
