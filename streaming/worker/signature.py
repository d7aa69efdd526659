"""Signatures, by which a job recognizes its own records in its inputs.

Requests and group events have fields for the job alone. A record of the job carries them together with a signature: a
keyed hash of its bytes, with a secret in the checkpoint. So other writers to the inputs cannot set these fields, and
jobs that share inputs ignore each other's internal records.
"""

import hmac
from collections.abc import Mapping
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, NamedTuple, Self

import orjson

from streaming.kafka.facts import offsets_of
from streaming.records.json_fields import OWN_FIELDS
from streaming.records.model import Source, Stream

SIGNATURE = "signature.json"
"""File of a checkpoint with the secret. A reader of the file can write records in the name of the job."""

SIGN_FIELD = b',"sign":"'
"""Beginning of the end of a signed value."""

_END = b'"}'
_DIGEST_BYTES = 16
SUFFIX_BYTES = len(SIGN_FIELD) + 2 * _DIGEST_BYTES + len(_END)
"""Length in bytes of the end of a signed value."""


class Origin(Enum):
    """Origin of a record with fields for the job alone."""

    OWN = auto()
    OTHER_JOB = auto()
    UNSIGNED = auto()


class Signer(NamedTuple):
    """Signer of the records of one checkpoint.

    Attributes:
        unsigned: offsets by Kafka topic and partition; before them, records count without a signature: a release that
            signed nothing wrote there.
    """

    secret: bytes
    unsigned: Mapping[str, Mapping[int, int]] = {}

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Return the signer in a file of a checkpoint; raise `ValueError`."""
        try:
            found = orjson.loads(content)
            return cls(bytes.fromhex(found["secret"]), offsets_of(found["unsigned"]))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"it lacks a field, or a field has another type ({error})") from None

    def sign(self, value: bytes) -> bytes:
        """Return a JSON object with one more field, the signature."""
        return b"".join((value[:-1], SIGN_FIELD, self._digest(value), _END))

    def origin(self, payload: bytes | None, source: Source) -> Origin:
        """Return the origin of a record, given its value and its place."""
        value = payload or b""
        if source.offset < self.unsigned.get(source.topic, {}).get(source.partition, 0):
            return Origin.OWN
        if value[-SUFFIX_BYTES : len(SIGN_FIELD) - SUFFIX_BYTES] != SIGN_FIELD or not value.endswith(_END):
            return Origin.UNSIGNED
        signature = value[len(SIGN_FIELD) - SUFFIX_BYTES : -len(_END)]
        is_own = hmac.compare_digest(self._digest(value[:-SUFFIX_BYTES] + b"}"), signature)
        return Origin.OWN if is_own else Origin.OTHER_JOB

    def _digest(self, value: bytes) -> bytes:
        return blake2b(value, digest_size=_DIGEST_BYTES, key=self.secret).hexdigest().encode()


def own_fields(stream: Stream, record: Mapping[str, Any]) -> list[str]:
    """Return the fields for the job alone that a record sets; their values need not be valid."""
    own = OWN_FIELDS[stream]
    return sorted(name for name in own.keys() & record.keys() if not _is_one_of(record[name], own[name]))


def _is_one_of(value: Any, others: tuple[Any, ...]) -> bool:
    """Return True if a value is in a tuple; a 0 is no false."""
    return any(type(value) is type(other) and value == other for other in others)
