"""What can go wrong with the Java, the jars, the broker and the Spark cluster of a machine of its own.

ReexpandError
└── LocalError          something this machine should provide is missing
    ├── JavaError       no usable Java
    ├── JarsError       the jars cannot be had
    ├── BrokerError     the broker does not start, or does not answer
    │   └── FolderInUseError another broker works on the same data folder
    ├── ClusterError    the Spark cluster does not start
    └── TopicsError     a topic is not what the job relies on
"""

from streaming.errors import ReexpandError


class LocalError(ReexpandError):
    """Something that this machine should provide is missing or broken."""


class JavaError(LocalError):
    """There is no Java that Spark and Kafka run on."""


class JarsError(LocalError):
    """The jars of Spark's Kafka connector or of the broker cannot be had."""


class BrokerError(LocalError):
    """The broker does not start, or does not answer."""


class FolderInUseError(BrokerError):
    """Another broker works on the same data folder."""


class ClusterError(LocalError):
    """The Spark cluster does not start."""


class TopicsError(LocalError):
    """A topic cannot be created, or exists and is not what the job relies on."""
