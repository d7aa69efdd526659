"""Run a command that ends with the parent of this process: `python guardian.py COMMAND [ARGUMENT...]`.

The first line of standard output is the process id of the command. Every byte on standard input is the number of a
signal to send to the command, and the end of standard input kills it. The kernel closes standard input when the parent
ends for any reason. The output of the command goes to standard error. The exit code is the command's, or 128 plus the
number of the signal that ended it.

This module imports no other module of the project, so it starts quickly.
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
    """Make Linux kill the command when this guardian is killed. Other systems have no such call.

    Restore the default action of SIGINT: a shell starts background jobs with SIGINT ignored, and the command would
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
        preexec_fn=_prepare,  # noqa: PLW1509 - no thread has been started yet
    )
    os.write(1, b"%d\n" % command.pid)
    os.close(1)
    threading.Thread(target=_forward_signals, args=[command], daemon=True).start()
    code = command.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
