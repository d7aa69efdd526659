"""Broker that requires TLS, a login or a certificate, and a permission for each operation."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from streaming.kafka.permissions import Grant
from streaming.local.broker import Broker
from streaming.local.server import HOST, free_port

MECHANISM = "SCRAM-SHA-512"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_SECONDS = 30


@dataclass
class SecuredBroker:
    """Broker with listeners for passwords and for certificates.

    Attributes:
        broker: broker with a third listener for the tests' administrator: anonymous users may do everything.
        folder: folder of certificates and of the options of clients.
        scram: address of the listener that requires name and password.
        certificates: address of the listener that requires a certificate.
        secrets: passwords and keys by user, which must not be shown.
    """

    broker: Broker
    folder: Path
    authority: trustme.CA
    scram: str
    certificates: str
    secrets: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def admin(self) -> AdminClient:
        """Admin client with all permissions."""
        return AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})

    def with_password(self, user: str) -> Path:
        """Set a user's password, and return the client options, with references to a file and a variable."""
        password = f"canary-{user}-password"
        credentials = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, credentials, password.encode())
        self.admin.alter_user_scram_credentials([change])[user].result(_SECONDS)
        self.secrets.setdefault(user, []).append(password)
        (self.folder / f"{user}.password").write_text(f"{password}\n")
        return self._write(
            f"{user}-scram.properties",
            "security.protocol=SASL_SSL",
            f"sasl.mechanism={MECHANISM}",
            f'sasl.jaas.config={_SCRAM_MODULE} required username="{user}" password="${{file:{user}.password}}";',
        )

    def with_certificate(self, user: str) -> Path:
        """Create a user's certificate, and return the client options, with its file."""
        self._issue(user)
        return self._write(
            f"{user}-certificate.properties",
            "security.protocol=SSL",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self.folder / f'{user}.pem'}",
        )

    def with_certificate_inside(self, user: str) -> Path:
        """Create a user's certificate, and return the client options, with key and certificate inline."""
        self._issue(user)
        return self._write(
            f"{user}-inside.properties",
            "security.protocol=SSL",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.key=${{file:{user}.key}}",
            f"ssl.keystore.certificate.chain=${{file:{user}.chain}}",
        )

    def _issue(self, user: str) -> None:
        key, chain = pem(self.authority.issue_cert(user, common_name=user))
        for name, text in (("pem", key + chain), ("key", key), ("chain", chain)):
            (self.folder / f"{user}.{name}").write_text(text)
        self.secrets.setdefault(user, []).extend(line for line in key.splitlines()[1:-1] if len(line) > 20)

    def allow(self, user: str, grants: Iterable[Grant]) -> None:
        bindings = [_binding(user, grant) for grant in dict.fromkeys(grants)]  # several roles may need the same
        for future in self.admin.create_acls(bindings).values() if bindings else ():
            future.result(_SECONDS)

    def deny(self, user: str, grant: Grant) -> None:
        binding = _binding(user, grant)
        wanted = AclBindingFilter(
            binding.restype,
            binding.name,
            binding.resource_pattern_type,
            binding.principal,
            binding.host,
            binding.operation,
            binding.permission_type,
        )
        (future,) = self.admin.delete_acls([wanted]).values()
        assert len(future.result(_SECONDS)) == 1

    def _write(self, name: str, *lines: str) -> Path:
        path = self.folder / name
        trust = ("ssl.truststore.type=PEM", f"ssl.truststore.location={self.folder / 'authority.pem'}")
        path.write_text("\n".join((*lines, *trust, "")))
        return path


@contextmanager
def secured(folder: Path) -> Iterator[SecuredBroker]:
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    key, chain = pem(authority.issue_cert(HOST))
    (folder / "broker.pem").write_text(key + chain)
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    scram = free_port()
    certificates = free_port(besides=scram)
    listeners = f"SASL_SSL://{HOST}:{scram},SSL://{HOST}:{certificates}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL",
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{_SCRAM_MODULE} required;",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "authority.pem"),
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "false",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "of the broker",
    }
    with Broker(folder / "kafka", settings=settings) as broker:
        yield SecuredBroker(broker, folder, authority, f"{HOST}:{scram}", f"{HOST}:{certificates}")


def pem(issued: trustme.LeafCert) -> tuple[str, str]:
    """Return key and chain; Java reads only PKCS 8 keys."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return text, "".join(blob.bytes().decode() for blob in issued.cert_chain_pems)


def _binding(user: str, grant: Grant) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if grant.is_prefix else ResourcePatternType.LITERAL
    return AclBinding(
        ResourceType[grant.kind], grant.name, pattern, f"User:{user}", "*",
        AclOperation[grant.operation], AclPermissionType.ALLOW,
    )  # fmt: skip
