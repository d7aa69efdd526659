"""S3-compatible server on this machine: Versity's gateway, whose objects are files of a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from streaming.local.process import cache_folder
from streaming.local.server import free_port
from tests.support.processes import child, eventually

VERSION = "v1.8.0"
"""Version of github.com/versity/versitygw; `make test-s3` builds it."""
BUCKET = "reexpand"
_PROGRAM = cache_folder() / "versitygw" / VERSION / "versitygw"
_KEY, _SECRET = "user", "not-a-secret"


@dataclass(frozen=True)
class S3Server:
    """Server with a bucket in a folder, and the environment variables of its clients."""

    folder: Path
    variables: dict[str, str]


@contextmanager
def s3_server(home: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """Run a server with its data in a folder, on an address of this machine."""
    if not _PROGRAM.exists():
        pytest.skip(f"there is no {_PROGRAM}: `make test-s3` builds it, with Go")
    folder = home / "data" / BUCKET  # a folder below its own is a bucket
    folder.mkdir(parents=True)
    endpoint = f"{host}:{free_port()}"
    environment = {**os.environ, "ROOT_ACCESS_KEY": _KEY, "ROOT_SECRET_KEY": _SECRET}
    command = [str(_PROGRAM), "--port", endpoint, "posix", str(folder.parent)]
    given = {"AWS_ENDPOINT_URL": f"http://{endpoint}", "AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _SECRET}
    with (home / "s3.log").open("wb") as log, child(command, env=environment, stdout=log, stderr=log):
        assert eventually(lambda: _answers(f"http://{endpoint}"), 30), (home / "s3.log").read_text()
        yield S3Server(folder, given)


def _answers(url: str) -> bool:
    try:
        urlopen(url, timeout=5).close()  # noqa: S310 - an address of this machine
    except HTTPError:
        return True  # it requires credentials
    except (URLError, OSError):
        return False
    return True
