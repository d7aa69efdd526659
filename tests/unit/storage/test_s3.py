"""Storage on S3: Spark and Arrow get the same connection from one place."""

from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem

from streaming.errors import ConfigInvalid
from streaming.spark import session
from streaming.spark.checkpoint import absolute
from streaming.storage import archive, s3
from tests.support.running_job import Streams

MINIO = {"AWS_ENDPOINT_URL": "http://minio:9000/", "AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "hidden"}


def test_storage_that_is_not_amazons() -> None:
    """Its buckets are in the path, and a region is named although it has none. No credentials are passed on."""
    found = s3.S3Address.of(MINIO)
    assert found.for_arrow() == {"endpoint_override": "http://minio:9000", "region": "us-east-1"}
    options = {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in found.for_spark().items()}
    assert options["endpoint"] == "http://minio:9000"
    assert options["path.style.access"] == "true"
    assert options["endpoint.region"] == "us-east-1"
    assert "hidden" not in str(options)


def test_amazons_own_has_its_address_by_the_region() -> None:
    """The narrower variable wins."""
    found = s3.S3Address.of({"AWS_DEFAULT_REGION": "eu-central-1"})
    assert found.for_arrow() == {"region": "eu-central-1"}
    assert "spark.hadoop.fs.s3a.endpoint" not in found.for_spark()
    variables = {**MINIO, "AWS_ENDPOINT_URL_S3": "https://s3.example", "AWS_REGION": "x", "AWS_DEFAULT_REGION": "y"}
    assert s3.S3Address.of(variables) == s3.S3Address("https://s3.example", "x")


@pytest.mark.parametrize("endpoint", ["minio:9000", "http://", "http://minio:9000/bucket", "ftp://minio"])
def test_an_address_that_is_no_url_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigInvalid, match="AWS_ENDPOINT_URL must be a URL"):
        s3.S3Address.of({"AWS_ENDPOINT_URL": endpoint})


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_spark_and_arrow_open_the_same_place(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in MINIO.items():
        monkeypatch.setenv(name, value)
    location = f"{scheme}://bucket/a folder/50%20/checkpoint/"
    files, root = archive.opened(location)
    assert isinstance(files, S3FileSystem)
    assert root == "bucket/a folder/50%20/checkpoint"
    assert absolute(location) == "s3a://bucket/a folder/50%20/checkpoint/"


def test_a_session_gets_the_connection_only_for_a_checkpoint_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://minio:9000")
    local = Streams("kafka:9092", Path("/checkpoint")).settings
    remote = local.model_copy(update={"checkpoint": "s3a://bucket/checkpoint"})
    key = "spark.hadoop.fs.s3a.endpoint"
    assert session.options(remote, 2)[key] == "http://minio:9000"
    assert key not in session.options(local, 2)


def test_python_on_executors_finds_the_drivers_storage() -> None:
    """Without its credentials, which options of Spark would show."""
    found = {
        name.removeprefix("spark.executorEnv."): value for name, value in s3.S3Address.of(MINIO).for_executors().items()
    }
    assert s3.S3Address.of(found) == s3.S3Address.of(MINIO)
    assert "hidden" not in str(found)
    assert s3.S3Address.of({}).for_executors() == {}
