"""When a driver has surely ended, so that the next one need not wait for its lease."""

import os
import subprocess
import sys
from unittest.mock import MagicMock, patch

import pytest
from py4j.protocol import Py4JError

from streaming.config import load
from streaming.spark.kafka_clients import kafka_class
from streaming.spark.lease import Holder, Lease


def test_the_broker_keeps_all_of_a_holder() -> None:
    """The text of a later release has more."""
    holder = Holder.of_this_process(7)
    assert Holder.parse(holder.text()) == holder
    assert Holder.parse('{"later": 1,' + holder._replace(released=True).text()[1:]).released
    holder = Holder(1, "east", 41, "2026-01-02 03:04:05+00:00", "")
    assert str(holder) == "process 41 on east, since 2026-01-02 03:04:05+00:00"


def elsewhere(number: int) -> Holder:
    """Return a process of another machine or boot (0) or container (1). No process here has its number."""
    mine = Holder.of_this_process(1)
    words = mine.process.split() or [""] * 2
    words[number] = "other"
    return mine._replace(pid=2**22 + 1, process=" ".join(words))


@pytest.mark.parametrize(
    ("holder", "has_ended"),
    [
        (Holder.of_this_process(1), False),
        (Holder.of_this_process(1)._replace(released=True), True),
        (Holder.of_this_process(1)._replace(process=""), False),
        (elsewhere(0), False),
        (elsewhere(1), False),
    ],
    ids=["lives", "released", "no /proc", "another boot or machine", "another container"],
)
def test_a_driver_has_ended_only_if_that_is_sure(holder: Holder, has_ended: bool) -> None:  # noqa: FBT001 - a case
    assert holder.has_ended() == has_ended


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_process_of_this_machine_that_is_gone_has_ended() -> None:
    """Also when another process has its number by now."""
    script = "from streaming.spark.lease import Holder; print(Holder.of_this_process(1).text())"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    gone = Holder.parse(found.stdout)
    assert gone.has_ended()
    assert gone._replace(pid=os.getpid()).has_ended()


@pytest.mark.parametrize("error", [Py4JError("no answer"), ConnectionRefusedError()], ids=["while", "after"])
def test_a_lease_bears_the_end_of_the_jvm(error: Exception) -> None:
    """While a call is under way, and before a call."""
    spark = MagicMock()
    lease = Lease(spark, load({"bootstrap_servers": "b:1", "checkpoint": "/c"}), "id")
    admin, producer = (kafka_class(spark, f"clients.{name}") for name in ("admin.Admin", "producer.KafkaProducer"))
    admin.create.return_value.listConsumerGroupOffsets.side_effect = error
    producer.side_effect = error
    lease._stop = MagicMock()
    lease._stop.wait.side_effect = [False, False, True]
    lease._mine = Holder.of_this_process(7)
    with patch.object(lease, "_producer") as former:
        former.beginTransaction.side_effect = error
        lease._keep()
        assert lease._stop.wait.call_count == 3
        assert lease.find_successor() is None
        lease.__exit__()
