"""The file of Kafka client options: references to secrets, and the names of both clients."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from streaming.config import Settings, load
from streaming.errors import ConfigInvalid
from streaming.kafka.options import check_java, client_options, is_secret, java_options

CANARY = "canary-of-this-test"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kafka.properties"


def settings_with(file: Path) -> Settings:
    return load({"bootstrap_servers": "b:1", "checkpoint": "/c", "kafka_options": str(file)})


def test_values_refer_to_files_and_to_the_environment(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is found beside that of the options, and the line feed at its end is left out."""
    (tmp_path / "password").write_text(f"{CANARY}\n")
    monkeypatch.setenv("USER_OF_KAFKA", "me")
    file.write_text(f'x={PLAIN} required username="${{env:USER_OF_KAFKA}}" password="${{file:password}}";\ny=${{z}}\n')
    assert java_options(settings_with(file)) == {
        "x": f'{PLAIN} required username="me" password="{CANARY}";',
        "y": "${z}",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            f'sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM} required username="u" password="a\\"b;";',
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": 'a"b;'},
        ),
        (
            f"sasl.jaas.config={PLAIN} required password='p w' username=u ;",
            {"sasl.username": "u", "sasl.password": "p w"},
        ),
        ("ssl.truststore.type=PEM\nssl.truststore.location=/ca.pem", {"ssl.ca.location": "/ca.pem"}),
        (
            "ssl.keystore.type=pem\nssl.keystore.location=/me.pem\nssl.key.password=p",
            {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.pem", "ssl.key.password": "p"},
        ),
        (
            "ssl.keystore.type=PKCS12\nssl.keystore.location=/me.p12\nssl.keystore.password=p",
            {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "p"},
        ),
        (
            "ssl.keystore.certificate.chain=c\nssl.keystore.key=k\nssl.truststore.certificates=t",
            {"ssl.certificate.pem": "c", "ssl.key.pem": "k", "ssl.ca.pem": "t"},
        ),
        ("ssl.endpoint.identification.algorithm=", {"ssl.endpoint.identification.algorithm": "none"}),
        ("compression.type=lz4\nmax.request.size=5\nclient.id=c", {"compression.type": "lz4", "client.id": "c"}),
    ],
)
def test_both_clients_get_the_same_by_their_own_names(given: str, expected: dict[str, str], file: Path) -> None:
    """The job's own tuning is left out where librdkafka has no counterpart."""
    file.write_text(f"{given}\n")
    assert client_options(file) == expected


def test_librdkafka_knows_the_names(file: Path) -> None:
    """A wrong name would be refused here."""
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.endpoint.identification.algorithm=\n"
        f'sasl.jaas.config={SCRAM} required username="u" password="p";\ncompression.type=lz4\n'
    )
    AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **client_options(file)})


NO_STORE = "ssl.{0}store.location is a store of the type {1}"
REFUSED = [
    # the second line of a file, and the error
    (f"b={CANARY}${{env:NO_SUCH_VARIABLE}}", r"line 2: the environment variable NO_SUCH_VARIABLE is not set"),
    (f"b={CANARY}${{file:missing}}", r"line 2: .*missing cannot be read: FileNotFoundError"),
    (f"sasl.jaas.config={CANARY}", "kafka.properties: sasl.jaas.config must be ScramLoginModule or PlainLoginModule"),
    (f'sasl.jaas.config={SCRAM} required username="{CANARY}";', "with username and password"),
    ("ssl.truststore.location=/t.jks", f"{NO_STORE.format('trust', 'JKS')}.* Give a PEM file"),
    ("ssl.keystore.location=/t.jks", NO_STORE.format("key", "JKS")),
    ("ssl.truststore.type=PKCS12\nssl.truststore.location=/t", NO_STORE.format("trust", "PKCS12")),
]


@pytest.mark.parametrize(("given", "sentence"), REFUSED)
def test_what_librdkafka_cannot_have_is_refused_without_its_value(given: str, sentence: str, file: Path) -> None:
    file.write_text(f"a={CANARY}\n{given}\n")
    with pytest.raises(ConfigInvalid, match=sentence) as caught:
        client_options(file)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sasl.password", "sasl.password is no option of Kafka's Java client; its name there is sasl.jaas.config"),
        ("sasl.mechanim", "sasl.mechanim is no option of Kafka's Java client$"),
    ],
)
def test_names_that_java_does_not_know_are_refused(name: str, sentence: str, file: Path) -> None:
    file.write_text(f"security.protocol=SSL\n{name}={CANARY}\n")
    with pytest.raises(ConfigInvalid, match=sentence) as caught:
        check_java(settings_with(file), lambda known: known == "security.protocol")
    assert CANARY not in str(caught.value)


def test_the_secret_options_are_known() -> None:
    """Of both clients; others may be shown."""
    secret = ["sasl.jaas.config", "sasl.password", "ssl.key.password", "ssl.keystore.key", "ssl.key.pem"]
    assert all(map(is_secret, [*secret, *(f"kafka.{name}" for name in secret)]))
    assert not any(map(is_secret, ["sasl.mechanism", "ssl.keystore.location", "security.protocol", "ssl.ca.location"]))
