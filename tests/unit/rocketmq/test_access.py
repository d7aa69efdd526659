"""Files of login and TLS of RocketMQ, and signatures of requests."""

import base64
import hashlib
import hmac
import ssl
from pathlib import Path

import pytest
import trustme

from streaming.errors import ConfigInvalid
from streaming.rocketmq.remoting import RocketMQAccess, decode, encode, load_access
from tests.support.secured import pem


def test_a_request_is_signed_over_all_fields_by_name_and_the_body() -> None:
    """Without a login nothing is added, and no secret is shown."""
    framed = encode(11, 7, {"queueId": 3, "Zone": "eu", "order": False}, b"body", RocketMQAccess("me", "secret"))
    fields = decode(framed[4:])[2].fields
    digest = hmac.new(b"secret", b"meeufalse3body", hashlib.sha1).digest()
    assert fields["AccessKey"] == "me"
    assert fields["Signature"] == base64.b64encode(digest).decode()
    assert decode(encode(11, 7, {"queueId": 3})[4:])[2].fields == {"queueId": "3"}
    assert "hidden" not in repr(RocketMQAccess("me", "hidden"))


def test_a_file_names_login_authority_and_certificate_beside_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    key, chain = pem(authority.issue_cert("me"))
    (tmp_path / "me.key").write_text(key)
    (tmp_path / "me.crt").write_text(chain)
    (tmp_path / "password").write_text("secret\n")
    path = tmp_path / "options"
    path.write_text(
        "accessKey=me\nsecretKey=${file:password}\ntls.client.trustCertPath=authority.pem\n"
        "tls.client.certPath=me.crt\ntls.client.keyPath=me.key\n"
    )
    access = load_access(path)
    assert (access.access_key, access.secret_key) == ("me", "secret")
    assert access.tls is not None
    assert access.tls.verify_mode == ssl.CERT_REQUIRED
    assert len(access.tls.get_ca_certs()) == 1
    assert load_access(None) == RocketMQAccess()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("accesskey=me", "unknown option accesskey; expected one of accessKey, secretKey, tls"),
        ("accessKey=me", "accessKey needs secretKey"),
        ("secretKey=hidden", "secretKey needs accessKey"),
        ("tls.client.certPath=a\ntls.client.keyPath=b", "tls.client.certPath needs tls.client.trustCertPath"),
        ("tls.client.trustCertPath=none.pem", "tls.client.trustCertPath cannot be used .No such file"),
        ("tls.client.trustCertPath=options", "tls.client.trustCertPath cannot be used"),
    ],
)
def test_a_bad_file_is_told(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "options"
    path.write_text(text)
    with pytest.raises(ConfigInvalid, match=expected) as caught:
        load_access(path)
    assert str(path) in str(caught.value)
    assert "hidden" not in str(caught.value)
