"""Connection to S3-compatible storage, the same one for Spark (Hadoop) and for Python (Arrow).

Both read the variables that Amazon's own tools read, so the connection is configured once:

| variable | meaning |
|---|---|
| `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL` | address of storage that is not Amazon's: `http://minio:9000` |
| `AWS_REGION`, `AWS_DEFAULT_REGION` | region of the bucket |
| `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` | credentials; there are further ways to have some |
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlparse

from streaming.errors import ConfigInvalid

SCHEMES: Final = ("s3a", "s3")
"""Schemes of URIs on S3; Hadoop supports the first, and the others are translated to it."""

ANY_REGION: Final = "us-east-1"
"""Region of storage that is not Amazon's, if none is set: the signature of a request needs a region."""

_CREDENTIALS: Final = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
"""Ways to credentials in the order that Arrow has: variables, web identity, files, and the machine's own role."""


def is_on_s3(location: str) -> bool:
    """Return True if a directory or URI is on S3."""
    return urlparse(location).scheme in SCHEMES


@dataclass(frozen=True, slots=True)
class S3Address:
    """Address and region. Hadoop and Arrow look up credentials themselves, in the same order.

    Attributes:
        endpoint: URL of storage that is not Amazon's, else None.
        region: region of the bucket; None if it is to be found out.
    """

    endpoint: str | None
    region: str | None

    @classmethod
    def of(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """Return the connection that the environment configures.

        Raises:
            ConfigInvalid: the address is no URL.
        """
        name = "AWS_ENDPOINT_URL_S3" if variables.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
        endpoint = (variables.get(name) or "").rstrip("/")
        url = urlparse(endpoint)
        if endpoint and not (url.scheme in ("http", "https") and url.hostname and not url.path):
            raise ConfigInvalid(f"{name} must be a URL as http://minio:9000, not {endpoint!r}")
        region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")
        return cls(endpoint or None, region or (ANY_REGION if endpoint else None))

    def for_spark(self) -> dict[str, str]:
        """Return options of a Spark session."""
        # The other kind of stream needs one more library, for reads of columns that a checkpoint has not.
        options = {"aws.credentials.provider": _CREDENTIALS, "input.stream.type": "classic"}
        if self.endpoint:
            # Names of buckets are no host names there.
            options |= {"endpoint": self.endpoint, "path.style.access": "true"}
        if self.region:
            options["endpoint.region"] = self.region
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items()}

    def for_executors(self) -> dict[str, str]:
        """Return options of a Spark session by which Python on executors finds the same storage."""
        found = {"AWS_ENDPOINT_URL_S3": self.endpoint, "AWS_REGION": self.region}
        return {f"spark.executorEnv.{name}": value for name, value in found.items() if value}

    def for_arrow(self) -> dict[str, str]:
        """Return arguments of Arrow's file system, which has buckets in the path by itself."""
        found = {"endpoint_override": self.endpoint, "region": self.region}
        return {name: value for name, value in found.items() if value}
