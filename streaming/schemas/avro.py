"""Avro schemas, made of the JSON Schemas: the same content for those who convert records."""

from __future__ import annotations

import re
from typing import Any, Final

from streaming.schemas.json_schema import json_schema, json_schemas

_NAMESPACE: Final = "reexpand"
_SYMBOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Final = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean", "null": "null"}


def avro_schemas() -> dict[str, Any]:
    """Return the schemas by their names."""
    return {name: avro_schema(name) for name in json_schemas()}


def avro_schema(name: str) -> Any:
    """Return the schema of this name."""
    schema = json_schema(name)
    return _Converter(schema.get("$defs", {})).convert(schema, schema["title"])


class _Converter:
    """Converter of one JSON Schema; Avro names each record and enumeration once."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._named: set[str] = set()

    def convert(self, schema: dict[str, Any], title: str) -> Any:
        """Return a schema of Avro; `title` names it where it needs a name."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            definition = self._definitions[name]
            return self.convert(definition, definition["title"])
        if "anyOf" in schema and "properties" not in schema:
            return self._union([self.convert(each, title) for each in schema["anyOf"]])
        kind = schema["type"]
        if isinstance(kind, list):
            return self._union([self.convert({"type": each}, title) for each in kind])
        if "enum" in schema:
            return self._enumeration(schema, title)
        compound = {"array": self._array, "object": self._object}.get(kind)
        return compound(schema, title) if compound else _PRIMITIVES[kind]

    def _object(self, schema: dict[str, Any], title: str) -> Any:
        """Return a record, or a map where fields have any names."""
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            return {"type": "map", "values": self.convert(values, title)}
        name = _avro_name(title)
        if name in self._named:
            return f"{_NAMESPACE}.{name}"
        self._named.add(name)
        required = schema.get("required", ())
        fields = [self._field(*field, required=field[0] in required) for field in schema["properties"].items()]
        doc = schema["description"]
        return {"type": "record", "name": name, "namespace": _NAMESPACE, "doc": doc, "fields": fields}

    def _field(self, name: str, schema: dict[str, Any], *, required: bool) -> dict[str, Any]:
        kind = self.convert(schema, name)
        field = {"name": name, "type": kind if required else self._union([kind, "null"])}
        if "description" in schema:
            field["doc"] = schema["description"]
        return field if required else {**field, "default": None}

    def _array(self, schema: dict[str, Any], title: str) -> Any:
        items = schema.get("prefixItems") or [schema["items"]]
        return {"type": "array", "items": self._union([self.convert(each, title) for each in items])}

    def _enumeration(self, schema: dict[str, Any], title: str) -> Any:
        """Return an enumeration, or text where a word is no name in Avro."""
        if not all(_SYMBOL.fullmatch(word) for word in schema["enum"]):
            return "string"
        name = _avro_name(title)
        if name in self._named:
            return f"{_NAMESPACE}.{name}"
        self._named.add(name)
        return {"type": "enum", "name": name, "namespace": _NAMESPACE, "symbols": schema["enum"]}

    def _union(self, kinds: list[Any]) -> Any:
        """Return a union without repetitions, null first, as its default asks."""
        flat: list[Any] = []
        for kind in kinds:
            flat += [each for each in (kind if isinstance(kind, list) else [kind]) if each not in flat]
        flat.sort(key=lambda kind: kind != "null")
        return flat[0] if len(flat) == 1 else flat


def _avro_name(title: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"\W+", title))
