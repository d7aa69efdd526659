"""The driver ends, stops, or is not alone."""

import os
import signal
import time

from tests.chaos.model import Proof, Struck, StruckIdleError, fault
from tests.chaos.stage import LOOK_SECONDS, SETTLE_SECONDS, WORK_SECONDS, Stage, shortened
from tests.support.processes import eventually, gone
from tests.support.running_job import POLL_SECONDS, START_SECONDS, OpenTransactions

PAUSE_SECONDS = 70
BURST = 4_000
ALONE_SECONDS = 30
"""Time in seconds in which the JVM of a driver that was replaced is awake, and its command is not."""

REFUSALS = ("reexpand.Refused", "ProducerFencedException")
"""Words of the log of a JVM whose writes the broker refuses."""

FLAPS = 4


@fault("driver-killed", "SIGKILL to driver, Spark and workers in a micro-batch; events go on", survivable=True)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    stage.start()
    return Struck(proof, "next start repeats or reads on")


@fault(
    "commit-removed",
    "SIGKILL, and the last commit is taken from the checkpoint: the batch is repeated",
    survivable=True,
)
def _(stage: Stage) -> Struck:
    proof = _leave_a_written_batch(stage)
    stage.start()
    return Struck(proof, "next start repeats the batch, and skips what is written")


@fault("jvm-killed", "SIGKILL to Spark's JVM alone", "start the job", survivable=True)
def _(stage: Stage) -> Struck:
    job = stage.running
    proof = stage.strikes(lambda: os.kill(job.jvm(), signal.SIGKILL))
    sentence = stage.ends_with(job, 1)
    stage.start()
    return Struck(proof, f"exit 1: {shortened(sentence)}")


@fault("command-killed", "SIGKILL to the command alone; another one is started at once", survivable=True)
def _(stage: Stage) -> Struck:
    job = stage.running
    jvm = job.jvm()
    proof = stage.strikes(lambda: os.kill(job.process.pid, signal.SIGKILL))
    job.process.wait(30)
    with stage.successor() as second:
        assert gone(jvm), "the JVM of a killed command lives on"
        second.wait_ready()
    return Struck(proof, "its JVM ends by itself; the next start goes on")


@fault("sigterm", "SIGTERM in a micro-batch", "start the job", survivable=True)
def _(stage: Stage) -> Struck:
    begun = time.monotonic()
    proof = stage.strikes(stage.running.process.terminate)
    assert stage.running.process.wait(60) == 0, stage.running.said()
    seconds = time.monotonic() - begun
    assert not stage.running.is_within_a_batch(), "a micro-batch is left to be repeated"
    stage.start()
    return Struck(proof, f"exit 0 after {seconds:.1f} s, nothing to repeat")


@fault("flapping", f"SIGKILL {FLAPS} times, 2 to 30 s after each start", survivable=True)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.kill)
    for _ in range(FLAPS - 1):
        stage.replace_job(stage.launch())
        time.sleep(stage.random.uniform(2, 30))
        stage.running.kill()
    stage.start()
    return Struck(proof, "the last start goes on")


@fault("driver-paused", "SIGSTOP to driver and Spark for 60 s, nobody takes over", survivable=True)
def _(stage: Stage) -> Struck:
    proof = stage.strikes(stage.running.pause, stage.running.resume)
    time.sleep(60)
    stage.running.resume()
    return Struck(proof, "goes on")


@fault("driver-replaced", f"SIGSTOP in a transaction for {PAUSE_SECONDS} s, a second driver starts, the first wakes up")
def _(stage: Stage) -> Struck:
    first = stage.running
    proof = _pause_in_transaction(stage)
    time.sleep(PAUSE_SECONDS)
    with stage.successor() as second:
        second.wait_ready()
        first.resume_spark()
        refused = eventually(lambda: any(word in first.said() for word in REFUSALS), ALONE_SECONDS, POLL_SECONDS)
        first.resume()
        sentence = stage.ends_with(first, 1, f"process {second.process.pid} on", in_a_task=True)
    how = "the broker refuses its writes" if refused else "it writes nothing more"
    return Struck(proof, f"{how}; exit 1: {shortened(sentence)}")


def _pause_in_transaction(stage: Stage) -> Proof:
    """Stop the driver while it writes many updates in a transaction."""
    with OpenTransactions(stage.streams) as transactions:

        def blow() -> None:
            stage.burst(BURST)
            eventually(transactions.exist, WORK_SECONDS, LOOK_SECONDS)
            stage.running.pause()

        def undo() -> None:
            stage.running.resume()
            eventually(stage.streams.are_read, WORK_SECONDS, POLL_SECONDS)

        return stage.strikes(blow, undo, in_transaction=True)


@fault("second-start", "a second `reexpand run` on the checkpoint of a running job", "nothing; or `--take-over`")
def _(stage: Stage) -> Struck:
    proof = stage.proof()
    with stage.launch() as job:
        sentence = stage.ends_with(job, 1, f"is in use by process {stage.running.process.pid}", "--take-over")
    return Struck(proof, f"refused, exit 1: {shortened(sentence)}")


@fault("take-over", "a second `reexpand run --take-over` on the checkpoint of a running job")
def _(stage: Stage) -> Struck:
    first = stage.running
    with stage.successor("--take-over") as second:
        assert eventually(lambda: first.process.poll() is not None, START_SECONDS, LOOK_SECONDS), "the first goes on"
        proof = stage.proof()
        sentence = stage.ends_with(first, 1, f"process {second.process.pid} on")
        second.wait_ready()
    return Struck(proof, f"first one ends, exit 1: {shortened(sentence)}")


@fault("both-at-once", "two starts at the same time on a batch that is to be repeated")
def _(stage: Stage) -> Struck:
    proof = _leave_a_written_batch(stage)
    jobs = [stage.launch(), stage.launch()]
    try:
        assert eventually(lambda: any(job.process.poll() is not None for job in jobs), START_SECONDS, POLL_SECONDS), (
            "both of them work"
        )
        loser, winner = sorted(jobs, key=lambda job: job.process.poll() is None)
        sentence = stage.ends_with(loser, 1)
        winner.wait_ready()
    except BaseException:
        for job in jobs:
            job.close()
        raise
    loser.close()
    stage.replace_job(winner)
    return Struck(proof, f"one of them is refused, exit 1: {shortened(sentence)}")


def _leave_a_written_batch(stage: Stage) -> Proof:
    """Kill the job behind a micro-batch of updates, and take its commit away, so that the next start repeats it."""
    stage.quiet()
    job, name = stage.running, stage.streams.settings.topic_events

    def has_read_topics() -> bool:
        last = job.last_commit()
        return bool(stage.planned(last)[name] != stage.planned(last - 1)[name])

    stage.burst(500)
    assert eventually(has_read_topics, SETTLE_SECONDS, LOOK_SECONDS), "the job does not read"
    job.kill()
    if job.is_within_a_batch() or not has_read_topics():
        raise StruckIdleError  # another micro-batch has come in between
    job.forget_last_commit()
    stage.load.go()
    return stage.proof()
