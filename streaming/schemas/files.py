"""The files of the schemas in the package, and how they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson

FOLDER: Final = Path(__file__).parent
ASYNCAPI: Final = "asyncapi"
"""Name of the AsyncAPI document."""

SUFFIXES: Final = {"json": ".json", "avro": ".avsc"}
"""Suffixes of the files, by format."""


def names() -> list[str]:
    """Return the names of all schemas, and of the AsyncAPI document."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def stored(name: str, form: str = "json") -> bytes:
    """Return the content of a file.

    Raises:
        FileNotFoundError: there is none.
    """
    return (FOLDER / f"{name}{SUFFIXES[form]}").read_bytes()


def made() -> dict[str, bytes]:
    """Return all files as the models of this release make them, by name with suffix."""
    from streaming.schemas.asyncapi import asyncapi  # noqa: PLC0415 - pydantic's schemas take a while
    from streaming.schemas.avro import avro_schemas  # noqa: PLC0415
    from streaming.schemas.json_schema import json_schemas  # noqa: PLC0415

    found = {f"{name}.json": schema for name, schema in json_schemas().items()}
    found |= {f"{name}.avsc": schema for name, schema in avro_schemas().items()}
    found[f"{ASYNCAPI}.json"] = asyncapi()
    return {name: text(value) for name, value in found.items()}


def text(value: Any) -> bytes:
    """Return a document as it is stored."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    for _name, _content in made().items():
        (FOLDER / _name).write_bytes(_content)
