"""The jars of the peers."""

from pathlib import Path

from streaming.local.jars import JarSets

HERE = Path(__file__).parent
JARS = JarSets(HERE / "ivy.xml", HERE / "jars.sha256", ("kafka-streams", "flink"))
