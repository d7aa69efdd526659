"""The token that pages for browsers ask for."""

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
        ConfigInvalid: as `of_file` and `checked` say.
    """
    if file is not None:
        return of_file(file)
    token = os.environ.get(VARIABLE, "").strip()
    return checked(token, VARIABLE) if token else None


def of_file(file: Path) -> str:
    """Return the token of a file.

    Raises:
        ConfigInvalid: the file cannot be read, or as `checked` says.
    """
    try:
        token = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"the token cannot be read from {file}: {error}") from None
    return checked(token, file)


def checked(token: str, source: object) -> str:
    """Return a token without the blanks around it.

    Args:
        token: the token.
        source: file or variable that holds it.

    Raises:
        ConfigInvalid: it is too short to be a secret, or not ASCII; the message does not repeat it.
    """
    token = token.strip()
    if len(token) < _LEAST_LENGTH or not token.isascii():
        raise ConfigInvalid(
            f"the token of {source} has {len(token)} characters; at least {_LEAST_LENGTH} ASCII characters are needed. "
            "Make one with: openssl rand -hex 16"
        )
    return token
