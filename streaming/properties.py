"""File of options of a client: `key=value` a line, with secrets in other files or in the environment.

A part `${env:NAME}` of a value stands for an environment variable, and `${file:PATH}` for the content of a file without
the line feed at its end. A relative path counts from the folder of the options.
"""

import os
import re
from functools import partial
from pathlib import Path
from typing import Final

from streaming.errors import ConfigInvalid

_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")


def read(path: Path) -> dict[str, str]:
    """Return the options of a file, references resolved.

    Raises:
        ConfigInvalid: a line is not `key=value`, or what it refers to does not exist. The message repeats no value.
    """
    options: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise ConfigInvalid(f"{path}, line {number}: expected key=value")
        resolve = partial(_resolve, path=path, place=f"{path}, line {number}")
        options[key.strip()] = _REFERENCE.sub(resolve, value.strip())
    return options


def _resolve(found: re.Match[str], path: Path, place: str) -> str:
    """Return what a reference stands for."""
    kind, name = found.groups()
    if kind == "file":
        try:
            return _text(path.parent / name).removesuffix("\n").removesuffix("\r")
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{place}: {error}") from None
    try:
        return os.environ[name]
    except KeyError:
        raise ConfigInvalid(f"{place}: the environment variable {name} is not set") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"{path} cannot be read: {type(error).__name__}") from None
