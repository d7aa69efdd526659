"""`reexpand advise` on a real broker: it reads what the job would, and writes nothing."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from streaming.records.model import Stream
from tests.support.running_job import Streams
from tests.support.scene import Scene
from tests.support.verbs import reexpand

TOPICS = 120_000


def advise(bootstrap_servers: str, names: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    environment = {f"REEXPAND_{name.upper()}": value for name, value in names.items()}
    words = ("advise", "--bootstrap-servers", bootstrap_servers, *options)
    return reexpand(*words, codes=range(3), env={**os.environ, **environment})


def test_the_advice_is_of_what_the_inputs_amount_to(streams: Streams) -> None:
    settings = streams.settings
    address = streams.bootstrap_servers
    names = {name: getattr(settings, name) for name in ("topic_events", "subscription_events", "group_events")}
    scene = Scene(streams)
    scene.group("g", "orders")
    scene.asks("c1", "g", "orders", "eu__tenant1__*", "*__created", "a*")
    scene.asks("c1", "g", "orders", "*__created", action="PARTIAL_REMOVE")
    scene.asks("c2", "g", "orders", "*__tenant2__**")
    scene.asks("gone", "g", "orders", "eu__**")
    scene.asks("gone", "g", "", action="COMPLETE_REMOVE")
    scene.born("orders", *(f"eu__tenant{number}__created" for number in range(TOPICS)))
    scene.gone("orders", "eu__tenant0__created")
    scene.born("orders", "eu__tenant1__created")
    scene.born("sensors", "s1")
    scene.send(Stream.TOPICS, b"{", "orders")
    scene.sent()
    ends = {name: len(streams.read(name)) for name in names.values()}

    done = advise(address, names, "--json", "--cores", "4")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["flags"] == ["--shards", "orders=2", "--route-depth", "2", "--shuffle-partitions", "4"]
    assert [(each["parent"], each["topics"], each["patterns"]) for each in found["parents"]] == [
        ("orders", TOPICS - 1, 2),
        ("sensors", 1, 0),
    ]
    assert found["parents"][0]["replicas"] == 1.5  # one of the two patterns goes to both shards
    assert found["warnings"][0].startswith("2 entries are invalid and left out (subscriptions, ")

    shown = advise(address, names)
    assert shown.returncode == 0, shown.stderr
    assert "--shards orders=2" in shown.stdout.splitlines()
    assert {name: len(streams.read(name)) for name in names.values()} == ends

    missing = advise(address, {**names, "group_events": f"{streams.prefix}-none"})
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith(f"Error: {address} has no topic {streams.prefix}-none; `reexpand")


def test_what_is_wrong_with_kafka_is_a_sentence(tmp_path: Path) -> None:
    away = advise("127.0.0.1:1", {})
    assert (away.returncode, away.stdout) == (1, "")
    assert "Error: no Kafka broker answers at 127.0.0.1:1 within 10 s: 127.0.0.1:1: connection refused" in away.stderr
    options = tmp_path / "client.properties"
    options.write_text("no.such.option=1\n")
    wrong = advise("127.0.0.1:1", {}, "--kafka-options", str(options))
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no.such.option" in wrong.stderr
