"""Kafka client options: a file with the names of Java's client, translated for librdkafka."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streaming.config import Settings

_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]+)\}")

_JAVA_ONLY: Final = frozenset(
    {
        *("auto.include.jmx.reporter", "buffer.memory", "default.api.timeout.ms", "fetch.max.wait.ms", "max.block.ms"),
        *("max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records", "max.request.size"),
        *("metadata.max.idle.ms", "partitioner.class", "receive.buffer.bytes", "send.buffer.bytes"),
        *("ssl.enabled.protocols", "ssl.protocol", "ssl.provider", "ssl.secure.random.implementation"),
    }
)
"""Options that tune the job's own clients; the other verbs ignore them."""

_STORES: Final = frozenset(f"ssl.{store}.{part}" for store in ("keystore", "truststore")
                           for part in ("location", "password", "type"))  # fmt: skip

_STORE_NAMES: Final = {
    ("keystore", "PEM"): ("ssl.certificate.location", "ssl.key.location"),
    ("keystore", "PKCS12"): ("ssl.keystore.location",),
    ("truststore", "PEM"): ("ssl.ca.location",),
}
"""Options of librdkafka with the location of a store, by kind of store and file."""

_INLINE: Final = {
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
"""Options that hold PEM texts, and their names in librdkafka."""

SECRET_NAMES: Final = r"(?i)password|secret|token|jaas|access[.]?key|ssl[.]key[.]pem|ssl[.]keystore[.]key"  # noqa: S105 - names
"""Pattern in the names of options whose values must not be shown, for either client and for Spark."""

_LOGIN: Final = re.compile(r"\s*[\w.]*\.(?:Scram|Plain)LoginModule\s+required\b(.*);\s*", re.DOTALL)
_FIELD: Final = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s;]+))')


def read_options(path: Path) -> dict[str, str]:
    """Read a file of client options: one `key=value` per line, secrets in other files or the environment.

    In a value, `${env:NAME}` is replaced by an environment variable, and `${file:PATH}` by the content of a file
    without its final line feed. A relative path starts at the folder of the options.

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


def java_options(settings: Settings) -> dict[str, str]:
    """Return the client options of the settings in the names of Java's client."""
    return {} if settings.kafka_options is None else read_options(settings.kafka_options)


def for_librdkafka(settings: Settings) -> dict[str, str]:
    """Return the settings' `client_options`."""
    return {} if settings.kafka_options is None else client_options(settings.kafka_options)


def client_options(path: Path | str) -> dict[str, str]:
    """Return the client options of a file in the names of librdkafka.

    Unknown names pass through.

    Raises:
        ConfigInvalid: as `read_options`, or an option has no counterpart in librdkafka.
    """
    given, file = read_options(Path(path)), str(path)
    found = {**_store("keystore", given, file), **_store("truststore", given, file)}
    for name, value in given.items():
        if name == "sasl.jaas.config":
            found |= _login(value, file)
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value or "none"
        elif name in _INLINE:
            found[_INLINE[name]] = value
        elif name not in _STORES and name not in _JAVA_ONLY:
            found[name] = value
    return found


def is_secret(name: str) -> bool:
    """Return whether the value of an option must not be shown."""
    return re.search(SECRET_NAMES, name) is not None


def _store(store: str, given: Mapping[str, str], file: str) -> dict[str, str]:
    location = given.get(f"ssl.{store}.location")
    if location is None:
        return {}
    kind = given.get(f"ssl.{store}.type", "JKS").upper()
    if (store, kind) not in _STORE_NAMES:
        raise ConfigInvalid(
            f"{file}: ssl.{store}.location is a store of the type {kind}, which librdkafka cannot read. "
            f"Give a PEM file, with ssl.{store}.type=PEM; both clients read that."
        )
    password = {"ssl.keystore.password": given.get("ssl.keystore.password", "")} if kind == "PKCS12" else {}
    return {**dict.fromkeys(_STORE_NAMES[store, kind], location), **password}


def _login(text: str, file: str) -> dict[str, str]:
    module = _LOGIN.fullmatch(text)
    found = _FIELD.findall(module[1]) if module else []
    fields = {key: re.sub(r"\\(.)", r"\1", quoted) or single or bare for key, quoted, single, bare in found}
    if not {"username", "password"} <= fields.keys():
        raise ConfigInvalid(
            f"{file}: sasl.jaas.config must be ScramLoginModule or PlainLoginModule with username and password, "
            'as: org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";'
        )
    return {"sasl.username": fields["username"], "sasl.password": fields["password"]}


LIBRDKAFKA_NAMES: Final[Mapping[str, str]] = {
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
    **{librdkafka: java for java, librdkafka in _INLINE.items()},
}
"""Names of librdkafka, each with the name that the file must have instead, which Java's client accepts."""


def check_java(settings: Settings, known: Callable[[str], bool]) -> None:
    """Raise `ConfigInvalid` if the file has options unknown to Java's client."""
    for name in java_options(settings):
        if not known(name):
            instead = LIBRDKAFKA_NAMES.get(name)
            raise ConfigInvalid(
                f"{settings.kafka_options}: {name} is no option of Kafka's Java client"
                + (f"; its name there is {instead}" if instead else "")
            )
