"""When a driver has surely ended, so that the next one need not wait for its lease."""

import os
import subprocess
import sys
from unittest.mock import MagicMock, patch

import pytest
from py4j.protocol import Py4JError

from streaming.config import load
from streaming.spark.lease import Holder, Lease

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def test_the_broker_keeps_all_of_it() -> None:
    holder = Holder.of_this_process(7)
    assert Holder.parse(holder.text()) == holder
    assert Holder.parse(holder._replace(released=True).text()).released


def test_it_is_named_by_process_machine_and_start() -> None:
    holder = Holder(1, "east", 41, "2026-01-02 03:04:05+00:00", "")
    assert str(holder) == "process 41 on east, since 2026-01-02 03:04:05+00:00"


def test_a_process_that_lives_has_not_ended() -> None:
    assert not Holder.of_this_process(1).has_ended()


def test_one_that_has_released_it_has_ended() -> None:
    assert Holder.of_this_process(1)._replace(released=True).has_ended()


@linux
def test_a_process_of_this_machine_that_is_gone_has_ended() -> None:
    """Also when another process has its number by now."""
    script = "from streaming.spark.lease import Holder; print(Holder.of_this_process(1).text())"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    gone = Holder.parse(found.stdout)
    assert gone.has_ended()
    assert gone._replace(pid=os.getpid()).has_ended()


@linux
@pytest.mark.parametrize("number", [0, 1], ids=["another boot or machine", "another container"])
def test_nothing_is_known_of_a_process_elsewhere(number: int) -> None:
    """Its number says nothing here, although no process has it."""
    mine = Holder.of_this_process(1)
    words = mine.process.split()
    words[number] = "other"
    assert not mine._replace(pid=2**22 + 1, process=" ".join(words)).has_ended()


def test_nothing_is_known_where_processes_cannot_be_looked_at() -> None:
    assert not Holder.of_this_process(1)._replace(process="").has_ended()


@pytest.mark.parametrize("error", [Py4JError("no answer"), ConnectionRefusedError()], ids=["while", "after"])
def test_a_lease_bears_the_end_of_the_jvm(error: Exception) -> None:
    """While a call is under way, and before a call."""
    spark = MagicMock()
    lease = Lease(spark, load({"bootstrap_servers": "b:1", "checkpoint": "/c"}), "id")
    clients = spark._jvm.org.apache.kafka.clients
    clients.admin.Admin.create.return_value.listConsumerGroupOffsets.side_effect = error
    clients.producer.KafkaProducer.side_effect = error
    lease._stop = MagicMock()
    lease._stop.wait.side_effect = [False, False, True]
    lease._mine = Holder.of_this_process(7)
    with patch.object(lease, "_producer") as producer:
        producer.beginTransaction.side_effect = error
        lease._keep()
        assert lease._stop.wait.call_count == 3
        assert lease.find_successor() is None
        lease.__exit__()
