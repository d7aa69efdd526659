"""File of client options: one `key=value` per line, secrets in other files or the environment.

In a value, `${env:NAME}` is replaced by an environment variable, and `${file:PATH}` by the content of a file without
its final line feed. A relative path starts at the folder of the options.
"""

import os
import re
from functools import partial
from pathlib import Path
from typing import Final

from streaming.errors import ConfigInvalid

_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")


def read(path: Path) -> dict[str, str]:
    """Read the options of a file, and resolve references.

    Raises:
        ConfigInvalid: a line is not `key=value`, or its reference does not exist. The message contains no value.
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
    """Return the value of a reference."""
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
