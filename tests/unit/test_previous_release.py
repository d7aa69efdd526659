"""The features and rules of the previous release still exist."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import matcher
from streaming import client, errors
from streaming.cli import main
from streaming.config import Settings
from streaming.monitor.batch import LagMeter
from streaming.monitor.health import Health
from streaming.monitor.metrics import Metrics
from tests.support.rules import marks, rules

PREVIOUS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "previous-release.json").read_text(encoding="utf-8")
)
"""Features of the previous release: what `features` returned there."""

REMOVED: dict[str, str] = {
    "setting: pace_cpu default 0.5": "0.35 cores suffice for a p50 below 200 ms at 20 events per second.",
}
"""Features that were removed or changed on purpose, as `kind: name`, with the reason."""


def _verbs(command: click.Command, path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each verb with its arguments and options."""
    parameters = command.get_params(click.Context(command, **main.context_settings))
    yield path, sorted(name for each in parameters for name in (*each.opts, *each.secondary_opts))
    for name, verb in getattr(command, "commands", {}).items():
        yield from _verbs(verb, f"{path} {name}")


def _words(schema: Any, keyword: str) -> Iterator[str]:
    """Yield the values of a keyword anywhere in a JSON Schema."""
    if isinstance(schema, dict):
        yield from (word for word in schema.get(keyword, ()) if isinstance(word, str))
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _words(each, keyword)


def features() -> dict[str, dict[str, Any]]:
    """Return the features of this release, by kind and name."""
    schemas = json.loads(CliRunner().invoke(main, ["schema", "--json"]).output)
    records = {name: json.loads(CliRunner().invoke(main, ["schema", name]).output) for name in schemas}
    lag = LagMeter()
    lag.look({"lite-topic-events": {0: 1}}, {})
    metrics = Metrics(Health(1), lag, lambda: {"driver": 1})
    metrics.reached("ready", 1)
    metrics.shards.load(b'{"shards": [["orders", 0, 1, 1, 1]], "clients": []}')
    shown = {mark.rule for mark in marks()}
    return {
        "verb": dict(_verbs(main, "reexpand")),
        "setting": {
            name: [f"{key} {value}" for key, value in about.items() if key not in {"title", "description"}]
            for name, about in Settings.model_json_schema()["properties"].items()
        },
        "field": {name: sorted(set(_words(schema, "properties"))) for name, schema in records.items()},
        "value": {name: sorted(set(_words(schema, "enum"))) for name, schema in records.items()},
        "metric": {
            each.name: [each.type, *sorted({label for sample in each.samples for label in sample.labels})]
            for each in metrics.registry.collect()
        },
        "library": {
            "matcher": sorted(matcher.__all__),
            "streaming.client": sorted(client.__all__),
            "streaming.errors": sorted(name for name, kind in vars(errors).items() if isinstance(kind, type)),
        },
        "rule": {each.name: [*(["test"] if each.name in shown else []), *each.profiles] for each in rules()},
    }


def _names(found: dict[str, dict[str, Any]]) -> set[str]:
    return {
        f"{kind}: {name} {each}" for kind, names in found.items() for name, parts in names.items() for each in parts
    }


@pytest.mark.parametrize("kind", PREVIOUS)
def test_every_feature_of_the_previous_release_exists(kind: str) -> None:
    """Verbs with options, settings with defaults, record fields, metrics, and rules with their tests and histories."""
    missing = _names({kind: PREVIOUS[kind]}) - _names(features())
    assert missing == {feature for feature in REMOVED if feature.startswith(f"{kind}:")}
