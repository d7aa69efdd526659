"""Generator of the schemas: JSON Schema (draft 2020-12) of each model, Avro from these, and one AsyncAPI document."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import orjson
from pydantic.json_schema import GenerateJsonSchema

from streaming.config import Settings
from streaming.records.schema_models import MODELS

ASYNCAPI: Final = "asyncapi"
"""Name of the AsyncAPI document."""

SUFFIXES: Final = {"json": ".json", "avro": ".avsc"}
"""Suffixes of files, by format."""

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_BINDING: Final = "0.5.0"
"""Version of AsyncAPI's binding for Kafka."""

_NAMESPACE: Final = "reexpand"
_SYMBOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Final = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean", "null": "null"}


def names(form: str = "json") -> list[str]:
    """Return the names of all schemas; in JSON, the AsyncAPI document is one of them."""
    return sorted([*MODELS, ASYNCAPI] if form == "json" else MODELS)


def files() -> dict[str, bytes]:
    """Return the content of all files, by name with suffix."""
    return {f"{name}{suffix}": content(name, form) for form, suffix in SUFFIXES.items() for name in names(form)}


@cache
def content(name: str, form: str = "json") -> bytes:
    """Return a schema as text; raise `KeyError` for an unknown name or format."""
    make = avro_schema if form == "avro" else json_schema
    value = asyncapi() if (name, form) == (ASYNCAPI, "json") else make(name)
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def json_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of this name."""
    schema = MODELS[name].model_json_schema(by_alias=True, schema_generator=_Generator)
    head = {"$schema": _DRAFT, "$id": f"urn:reexpand:{name}", "title": schema.pop("title")}
    return {**head, "description": schema.pop("description"), **schema}


class _Generator(GenerateJsonSchema):
    """Generator without titles of fields, which repeat their names, and without defaults of null."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - part of the interface
        return False

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])


def avro_schema(name: str) -> Any:
    """Return the Avro schema of this name."""
    schema = json_schema(name)
    return _AvroConverter(schema.get("$defs", {})).convert(schema, schema["title"])


class _AvroConverter:
    """Converter of one JSON Schema; Avro defines each record and enumeration once, and refers to it by name."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions
        self._named: set[str] = set()

    def convert(self, schema: dict[str, Any], title: str) -> Any:
        """Return the Avro schema; records and enumerations get their names from `title`."""
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
        if kind == "array":
            items = schema.get("prefixItems") or [schema["items"]]
            return {"type": "array", "items": self._union([self.convert(each, title) for each in items])}
        return self._object(schema, title) if kind == "object" else _PRIMITIVES[kind]

    def _object(self, schema: dict[str, Any], title: str) -> Any:
        """Return a record, or a map if fields may have any name."""
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            return {"type": "map", "values": self.convert(values, title)}
        name = _avro_name(title)
        if name in self._named:
            return f"{_NAMESPACE}.{name}"
        self._named.add(name)
        fields = []
        for field, own in schema["properties"].items():
            kind, required = self.convert(own, field), field in schema.get("required", ())
            found = {"name": field, "type": kind if required else self._union([kind, "null"])}
            found |= {"doc": own["description"]} if "description" in own else {}
            fields.append(found if required else {**found, "default": None})
        doc = schema["description"]
        return {"type": "record", "name": name, "namespace": _NAMESPACE, "doc": doc, "fields": fields}

    def _enumeration(self, schema: dict[str, Any], title: str) -> Any:
        """Return an enumeration, or a string if a value is no symbol of Avro."""
        if not all(_SYMBOL.fullmatch(word) for word in schema["enum"]):
            return "string"
        name = _avro_name(title)
        if name in self._named:
            return f"{_NAMESPACE}.{name}"
        self._named.add(name)
        return {"type": "enum", "name": name, "namespace": _NAMESPACE, "symbols": schema["enum"]}

    def _union(self, kinds: list[Any]) -> Any:
        """Return a union without repetitions; null comes first, because it is the default."""
        flat: list[Any] = []
        for kind in kinds:
            flat += [each for each in (kind if isinstance(kind, list) else [kind]) if each not in flat]
        flat.sort(key=lambda kind: kind != "null")
        return flat[0] if len(flat) == 1 else flat


def _avro_name(title: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"\W+", title))


_CHANNELS: Final[tuple[tuple[str, str, str, Any], ...]] = (
    ("topic_events", "receive", "topic-event", {"type": "string", "description": "The parent."}),
    ("subscription_events", "receive", "subscription-event", {"type": "string", "description": "The group."}),
    ("group_events", "receive", "group-event", {"type": "string", "description": "The group."}),
    ("clock", "send", "clock-record", {"type": "string", "description": "The parent, or `tick`."}),
    ("updates", "send", "update", "update-key"),
    ("dead_letters", "send", "dead-letter", "dead-letter-key"),
)
"""Setting of each Kafka topic, what the job does, and the schemas of values and keys: a name, or JSON Schema."""


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI document: topics under their default names, messages, and the action of the job."""
    schemas: dict[str, Any] = {}
    for name in MODELS:
        schema = json_schema(name)
        schemas |= schema.pop("$defs", {})
        schemas[name] = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    channels, operations, messages = {}, {}, {}
    for setting, action, message, key in _CHANNELS:
        field, schema = Settings.model_fields[setting], schemas[message]
        channels[setting] = {
            "address": str(field.default),
            "description": field.description,
            "messages": {message: {"$ref": f"#/components/messages/{message}"}},
            "bindings": {"kafka": {"topic": str(field.default), "bindingVersion": _BINDING}},
        }
        operations[f"{action}-{setting}"] = {
            "action": action,
            "channel": {"$ref": f"#/channels/{setting}"},
            "messages": [{"$ref": f"#/channels/{setting}/messages/{message}"}],
        }
        key_schema = schemas[key] if isinstance(key, str) else key
        messages[message] = {
            "name": message,
            "title": schema["title"],
            "summary": schema["description"],
            "contentType": "application/json",
            "payload": {"$ref": f"#/components/schemas/{message}"},
            "bindings": {"kafka": {"key": key_schema, "bindingVersion": _BINDING}},
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "reexpand",
            "version": version("reexpand"),
            "description": "Wildcard topic subscriptions that keep themselves expanded. The job receives topics, "
            "requests and groups, and sends which client receives which topic.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": _relocated(schemas)},
    }


def _relocated(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: each.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _relocated(each)
            for key, each in value.items()
        }
    return [_relocated(each) for each in value] if isinstance(value, list) else value
