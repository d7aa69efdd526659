"""The watchdog of a worker ends a process that makes no progress, whatever it does."""

import os
import resource
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from streaming.worker.process import NO_WATCHDOG, Watchdog

SECONDS = 0.2


def ended(action: Callable[[], Any]) -> int:
    """Return how a child ends that does something: 0, or the negative number of a signal."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a plug-in of pytest may handle it
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        try:
            action()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def watched(action: Callable[[Watchdog], Any]) -> int:
    """Return how a child ends whose watchdog is armed."""
    watchdog = Watchdog(SECONDS)

    def act() -> None:
        watchdog.arm()
        action(watchdog)

    return ended(act)


@pytest.mark.parametrize(
    "action", [lambda _: time.sleep(60), lambda _: sum(range(10**11))], ids=["a wait", "a loop in C"]
)
def test_a_process_without_progress_ends(action: Callable[[Watchdog], Any]) -> None:
    """Also one that never lets another thread or a handler run."""
    assert watched(action) == -signal.SIGALRM


def test_time_that_is_stopped_does_not_count() -> None:
    watchdog = Watchdog(3_600)
    watchdog.arm()
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    watchdog.disarm()
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_many_entries_are_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred of them restart the timer, and lose none."""
    started = []
    monkeypatch.setattr(signal, "setitimer", lambda *timer: started.append(timer))
    assert list(Watchdog(SECONDS).follow(iter(range(1_024)), 1_024)) == list(range(1_024))
    assert started == 4 * [(signal.ITIMER_REAL, SECONDS)]


def test_few_entries_cost_nothing() -> None:
    entries = iter(range(3))
    assert Watchdog(SECONDS).follow(entries, 256) is entries
    assert NO_WATCHDOG.follow(entries, 1_000_000) is entries


def test_without_a_limit_no_time_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "setitimer")
    NO_WATCHDOG.arm()
    NO_WATCHDOG.disarm()
