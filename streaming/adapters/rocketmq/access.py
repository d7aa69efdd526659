"""How servers of RocketMQ are reached that ask for TLS or a login: a file of options, and the signature of a request.

Sources: `org.apache.rocketmq.acl.common.AclClientRPCHook` and `TlsSystemConfig` of RocketMQ 5.5.
"""

import base64
import hmac
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streaming import properties
from streaming.errors import ConfigInvalid

_LOGIN = ("accessKey", "secretKey")
_TRUST, _CERTIFICATE, _KEY = "tls.client.trustCertPath", "tls.client.certPath", "tls.client.keyPath"
_NAMES = (*_LOGIN, _TRUST, _CERTIFICATE, _KEY)


@dataclass(frozen=True)
class RocketMQAccess:
    """Login and TLS of a client of the remoting protocol; by default neither.

    Attributes:
        access_key: name of the user; empty for no login.
        secret_key: password of the user.
        tls: context of TLS; None for plain connections.
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    def signed(self, fields: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """Return the header fields of a request together with user and signature, if there is a login."""
        if not self.access_key:
            return fields
        named = {**fields, "AccessKey": self.access_key}
        content = "".join(named[name] for name in sorted(named)).encode() + body
        digest = hmac.digest(self.secret_key.encode(), content, "sha1")
        return {**named, "Signature": base64.b64encode(digest).decode()}


def load(path: Path | None) -> RocketMQAccess:
    """Return the access that a file of options describes, in the names that RocketMQ's own tools have.

    The authority signs the servers' certificates. As with RocketMQ's own clients, these need not name their hosts, so
    it must be an authority that signs no others.

    Args:
        path: the file; None for access without login and TLS.

    Raises:
        ConfigInvalid: the file or a certificate cannot be read, or an option is unknown or lacks its partner.
    """
    if path is None:
        return RocketMQAccess()
    given = properties.read(path)
    for name in given:
        if name not in _NAMES:
            raise ConfigInvalid(f"{path}: {name} is no option of RocketMQ here; known are {', '.join(_NAMES)}")
    for one, other in (_LOGIN, _LOGIN[::-1], (_CERTIFICATE, _KEY), (_KEY, _CERTIFICATE), (_CERTIFICATE, _TRUST)):
        if given.get(one) and not given.get(other):
            raise ConfigInvalid(f"{path}: {one} needs {other} as well")
    tls = _context(path, given) if given.get(_TRUST) else None
    return RocketMQAccess(given.get("accessKey", ""), given.get("secretKey", ""), tls)


def _context(path: Path, given: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that trusts the authority, and shows the client's certificate if there is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    name = _TRUST
    try:
        context.load_verify_locations(path.parent / given[_TRUST])
        if given.get(_CERTIFICATE):
            name = f"{_CERTIFICATE} or {_KEY}"
            # An encrypted key is refused: without a password OpenSSL would ask for it on the terminal.
            context.load_cert_chain(path.parent / given[_CERTIFICATE], path.parent / given[_KEY], password="")
    except OSError as error:
        raise ConfigInvalid(f"{path}: {name} cannot be used ({error.strerror or error})") from None
    return context
