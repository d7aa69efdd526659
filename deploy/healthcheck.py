# ruff: noqa: INP001 - a script of the image, no package
"""Ask the job of this container for its health: exit code 0 when it works, 1 and a line with the fault if it does not.

    healthcheck.py [PATH]

PATH is /readyz by default: the job does its work, or stands by. /healthz asks only that no micro-batch hangs. The job
is asked at the port of REEXPAND_HTTP, which has the meaning that it has for `reexpand run`.
"""

import json
import os
import sys
from http.client import HTTPConnection, HTTPException

_DEFAULT = "127.0.0.1:9464"
_ANY_HOST = ("0.0.0.0", "[::]", "::")  # noqa: S104 - names of all interfaces, of which the loopback one is asked
_TIMEOUT_SECONDS = 4
_OK = 200


def find_fault(address: str, path: str) -> str | None:
    """Return the fault in words, None when the job works."""
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in _ANY_HOST else host.strip("[]")
    connection = HTTPConnection(host, int(port), timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (OSError, HTTPException, ValueError) as error:
        return f"the job does not answer at {host}:{port}: {error}"
    finally:
        connection.close()
    return None if answer.status == _OK else f"{body['state']}: {body['reason']}"


if __name__ == "__main__":
    sys.exit(find_fault(os.environ.get("REEXPAND_HTTP") or _DEFAULT, *(sys.argv[1:2] or ["/readyz"])))
