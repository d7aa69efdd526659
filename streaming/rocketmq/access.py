"""TLS and login of RocketMQ clients: the options file, and request signatures.

Sources: `org.apache.rocketmq.acl.common.AclClientRPCHook` and `TlsSystemConfig` of RocketMQ 5.5.
"""

import base64
import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streaming.errors import ConfigInvalid
from streaming.kafka.options import read_options

_LOGIN = ("accessKey", "secretKey")
_TRUST, _CERTIFICATE, _KEY = "tls.client.trustCertPath", "tls.client.certPath", "tls.client.keyPath"
_NAMES = (*_LOGIN, _TRUST, _CERTIFICATE, _KEY)


@dataclass(frozen=True)
class RocketMQAccess:
    """Login and TLS of a remoting client. The default uses neither.

    Attributes:
        access_key: user name; empty for no login.
        secret_key: password of the user.
        tls: TLS context; None for plain connections.
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    def signed(self, fields: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Add user and signature to the header fields of a request, if there is a login."""
        if not self.access_key:
            return fields
        named = {**fields, "AccessKey": self.access_key}
        content = "".join(named[name] for name in sorted(named)).encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, "sha1")
        return {**named, "Signature": base64.b64encode(digest).decode()}


def load(path: Path | None) -> RocketMQAccess:
    """Read an options file that uses the option names of RocketMQ's own tools.

    The CA must not sign certificates of other services, because host names are not verified. RocketMQ's own clients do
    not verify them either.

    Args:
        path: the file; None for access without login and TLS.

    Raises:
        ConfigInvalid: the file or a certificate cannot be read, or an option is unknown or incomplete.
    """
    if path is None:
        return RocketMQAccess()
    given = read_options(path)
    for name in given:
        if name not in _NAMES:
            raise ConfigInvalid(f"{path}: unknown option {name}; expected one of {', '.join(_NAMES)}")
    for one, other in (_LOGIN, _LOGIN[::-1], (_CERTIFICATE, _KEY), (_KEY, _CERTIFICATE), (_CERTIFICATE, _TRUST)):
        if given.get(one) and not given.get(other):
            raise ConfigInvalid(f"{path}: {one} needs {other} as well")
    tls = _context(path, given) if given.get(_TRUST) else None
    return RocketMQAccess(given.get("accessKey", ""), given.get("secretKey", ""), tls)


def _context(path: Path, given: Mapping[str, str]) -> ssl.SSLContext:
    """Create a TLS context from the CA and the optional client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    name = _TRUST
    try:
        context.load_verify_locations(path.parent / given[_TRUST])
        if given.get(_CERTIFICATE):
            name = f"{_CERTIFICATE} or {_KEY}"
            # Reject an encrypted key: without a password OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(path.parent / given[_CERTIFICATE], path.parent / given[_KEY], password="")
    except OSError as error:
        raise ConfigInvalid(f"{path}: {name} cannot be used ({error.strerror or error})") from None
    return context
