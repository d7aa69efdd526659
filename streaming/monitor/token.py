"""The token that pages of the job's server ask for."""

import os
from pathlib import Path
from typing import Final

from streaming.errors import ConfigInvalid

VARIABLE: Final = "REEXPAND_HTTP_TOKEN"
"""Environment variable of the token, where no file names it."""

_LEAST_LENGTH: Final = 16
"""Least number of characters of a token."""


def read(file: Path | None) -> str | None:
    """Return the token of a file, else that of the environment; None if there is none.

    Raises:
        ConfigInvalid: it is too short to be a secret; the message does not repeat it.
    """
    token = (file.read_text(encoding="utf-8") if file else os.environ.get(VARIABLE, "")).strip()
    if not token and file is None:
        return None
    if len(token) < _LEAST_LENGTH:
        raise ConfigInvalid(
            f"the token of {file or VARIABLE} has {len(token)} characters; at least {_LEAST_LENGTH} are needed. "
            "Make one with: openssl rand -hex 16"
        )
    return token
