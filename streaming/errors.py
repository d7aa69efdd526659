"""All exceptions of the package, each below its base.

Names of bases end in `Error`; a leaf is named after the failure. Messages are for users: they contain the failure, its
place and the fix.

The exceptions of `matcher` are in `matcher.errors`.
"""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class ReexpandError(Exception):
    """Base of all exceptions of this package."""

    exit_code = 1


class RefusalError(ReexpandError):
    """Base of errors that a retry cannot fix: settings, arguments, checkpoint or topics must change first."""

    exit_code = 2


class ConfigInvalid(RefusalError):
    """A setting is missing, malformed, or contradicts another setting."""


class ExtraMissing(RefusalError):
    """A package of an extra is not installed; the message contains the command that installs it."""


class CheckpointMismatch(RefusalError):
    """A setting that the checkpoint fixes differs from the checkpoint's."""


class CheckpointUnusable(RefusalError):
    """The checkpoint is not a folder, or cannot be read or written."""


class StateError(ReexpandError):
    """Base of errors in reading a state value.

    Stop the job, and restore the checkpoint from a backup or start with an empty folder.
    """


class StateCorrupted(StateError):
    """The checksum of a state value does not match its bytes."""


class StateFormatUnknown(StateError):
    """The format version of a state value is unknown to this release."""


class Rejected(ReexpandError):
    """An entry of an input record is invalid.

    Attributes:
        reason: stable code, one of `streaming.records.model.Reason`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class JobError(ReexpandError):
    """Base of errors that end the job or prevent its start."""


class SparkUnavailable(JobError):
    """Spark does not start, or cannot reach its master; the message quotes Spark."""


class KafkaUnavailable(JobError):
    """No broker answers, or the broker refuses a request of the job."""


class NotWritten(JobError):
    """Kafka rejected a record; the message quotes Kafka."""


class CheckpointInUse(JobError):
    """Another driver uses the checkpoint; the message names it."""


class TakenOver(JobError):
    """Another driver has taken over the checkpoint; the message names it."""


class TopicReplaced(RefusalError, JobError):
    """A topic of the checkpoint was deleted, created again, or belongs to another Kafka."""


class RecordsLost(RefusalError, JobError):
    """Input topics have lost records before the job read them."""


class UpdatesUnknown(RefusalError, JobError):
    """The updates topic contains updates that are missing from the checkpoint."""


class CheckpointUnfinished(RefusalError, JobError):
    """The rebuild of the checkpoint is incomplete, or a rebuilt checkpoint has replaced it."""


class EntriesLethal(JobError):
    """Entries kill or hang workers. The text is JSON, because Spark passes on only the text of an error.

    Attributes:
        entries: fields of a decision about each entry (see `streaming.worker.quarantine`);
            empty if no entry is the cause.
    """

    def __init__(self, entries: "Sequence[Mapping[str, Any]]") -> None:
        super().__init__(json.dumps(entries))
        self.entries = entries


class JobFailed(JobError):
    """The query failed; the message quotes Spark."""


class DemoFailed(ReexpandError):
    """The demo's job failed or did not start; the message contains the end of its log."""


class LetterUnknown(ReexpandError):
    """The dead letter does not exist."""


class TopicUnreadable(ReexpandError):
    """A part of a Kafka topic cannot be read; the message quotes Kafka."""


class TopicMissing(TopicUnreadable):
    """A Kafka topic does not exist; the message names it."""


class NotVerified(RefusalError):
    """`reexpand verify` cannot compare inputs, state and updates."""


class QuarantineRefused(RefusalError):
    """The entry does not exist, or its micro-batch is committed."""


class BackupError(ReexpandError):
    """Base of errors in backing up or restoring a checkpoint."""


class BackupRefused(RefusalError, BackupError):
    """There is nothing to copy, the target is not empty, or a driver is running."""


class BackupDamaged(BackupError):
    """The backup or the checkpoint is damaged; the message names the file."""


class BackupFailed(BackupError):
    """A file cannot be read or written, or the job changes files faster than they are copied."""


class RebuildError(ReexpandError):
    """Base of errors of `reexpand rebuild`."""


class RebuildRefused(RefusalError, RebuildError):
    """The new or the previous checkpoint is unsuitable for the rebuild."""


class RebuildFailed(RebuildError):
    """The rebuild was interrupted; the same command resumes it."""


class InspectError(ReexpandError):
    """Base of errors in querying the live state of a job."""


class Unanswered(InspectError):
    """No job answered a question in time."""


class QuestionRefused(RefusalError, InspectError):
    """The job rejected a question; the message is its reason."""


class NotPlaced(RefusalError, InspectError):
    """The question names no parent or group, and the job has none or several."""


class AddressUnusable(ReexpandError):
    """The console cannot listen on its address: it is in use, or not an address of this machine."""


class WatchFailed(ReexpandError):
    """Kafka cannot be watched, or rejects the topic events."""


class BridgeFailed(ReexpandError):
    """CloudEvents cannot be read or written; the message quotes Kafka."""


class NotConverted(ReexpandError):
    """A record is not a CloudEvent for the job, or cannot be converted to a CloudEvent."""


class LocalError(ReexpandError):
    """Base of errors of a local broker or cluster."""


class JavaUnusable(LocalError):
    """No Java on this machine is suitable for Spark and Kafka."""


class JarsUnavailable(LocalError):
    """The jars of Spark's Kafka connector or the broker cannot be downloaded or stored."""


class BrokerFailed(LocalError):
    """The broker does not start, or does not answer."""


class FolderInUse(BrokerFailed):
    """Another broker uses the same data folder."""


class ClusterFailed(LocalError):
    """The Spark cluster does not start."""


class TopicsUnusable(LocalError):
    """A topic cannot be created, or its configuration is unsuitable."""


class ClientError(ReexpandError):
    """Base of errors of a subscription client."""


class Malformed(ClientError):
    """A record of the updates topic is not an update."""


class UpdatesUnreadable(ClientError):
    """The topic does not exist, access is refused, or records were deleted before they were read."""


class CallbackFailed(ClientError):
    """`on_change` raised, so the client has stopped: continuing would lose a change."""


class LiteSubscriptionRefused(ClientError):
    """RocketMQ does not answer, or rejects the lite subscriptions of a consumer; the message quotes it."""


class NotReady(ClientError, TimeoutError):
    """The relation is not complete yet."""


class ConsumerError(ClientError):
    """Base of errors of a consumer with patterns."""


class PatternsRefused(RefusalError, ConsumerError):
    """A pattern is invalid, or can match no topic."""


class TopicsUnreadable(ConsumerError):
    """Topics or their offsets cannot be read, and retrying does not help; the message quotes Kafka."""


class NotCommitted(ConsumerError):
    """The consumer group rejects an offset; the message quotes Kafka."""


class ConsumerClosed(ConsumerError):
    """The consumer is closed."""
