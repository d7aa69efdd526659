"""Run a command, and end it with the parent of this process: `python guardian.py COMMAND [ARGUMENT...]`.

The first line of standard output is the process id of the command. Every byte on standard input is the number of a
signal to send to the command; the end of standard input kills it. The kernel closes standard input however the parent
dies. The output of the command goes to standard error. The exit code is the command's, or 128 plus the number of the
signal that ended it.

This module imports nothing of the project, so that it starts at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading


def guarded(command: list[str]) -> list[str]:
    """Return the command line of a guardian for `command`."""
    return [sys.executable, "-IS", __file__, *command]


def _prepare() -> None:
    """Ask Linux to kill the command when this guardian is killed; other systems have no call for it.

    SIGINT gets its default action back: a shell starts background jobs with SIGINT ignored, and the command would
    inherit that.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _forward_signals(command: subprocess.Popen[bytes]) -> None:
    while number := os.read(0, 1):
        command.send_signal(number[0])
    command.kill()


def main() -> int:
    """Run the command of `sys.argv` until it ends."""
    command = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        stdout=2,
        stderr=2,
        preexec_fn=_prepare,  # noqa: PLW1509 -- no thread has been started yet
    )
    os.write(1, b"%d\n" % command.pid)
    os.close(1)
    threading.Thread(target=_forward_signals, args=[command], daemon=True).start()
    code = command.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
