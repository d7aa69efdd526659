"""Runs a command that must not outlive the process that asked for it: `python guardian.py COMMAND [ARGUMENT...]`.

Writes the command's process id as the first line of standard output. Every byte on standard input is the number of a
signal to send it; the end of standard input, which the kernel sees to however the asking process dies, kills it. What
the command prints goes to standard error. The exit code is the command's, or 128 and the signal that ended it.

It imports nothing of the project, so that it starts at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading


def guarded(command: list[str]) -> list[str]:
    """The command that runs `command` under a guardian."""
    return [sys.executable, "-IS", __file__, *command]


def _prepare() -> None:
    """Ask Linux to kill the command should this guardian itself be killed; elsewhere there is no such call.

    A shell starts its background jobs with SIGINT ignored, which would be passed on to the command.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _obey(command: subprocess.Popen[bytes]) -> None:
    while order := os.read(0, 1):
        command.send_signal(order[0])
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
    threading.Thread(target=_obey, args=[command], daemon=True).start()
    code = command.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
