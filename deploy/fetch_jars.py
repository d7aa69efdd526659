# ruff: noqa: INP001 - a script of the image, no package
"""Download Spark's jars and compile the sink while the image is built.

The trusted authorities are those of the image's other programs: the Java of the base
image has a list of its own, which an authority added to the image may not have reached.
"""

import os
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming.local import classes, jars

AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Bundle of the certificates of the authorities, in PEM."""

with TemporaryDirectory() as folder:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(AUTHORITIES)
    store = Path(folder, "cacerts")
    store.write_bytes(jars.key_store(context.get_ca_certs(binary_form=True)))
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djavax.net.ssl.trustStore={store}"
    jars.s3()
    classes.sink()  # which needs the jars of Spark's Kafka connector
