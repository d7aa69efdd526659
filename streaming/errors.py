"""Every exception of the package, as one tree.

The name of a base ends in `Error`; the name of a leaf says what happened. All texts are meant for the user: they say
what happened, where, and what to do about it.

    ReexpandError                   exit code 1 where nothing else is said
    ├── ConfigInvalid               a setting is missing or wrong (exit code 2)
    ├── ExtraMissing                a package of an extra is not installed (exit code 2)
    ├── CheckpointMismatch          the checkpoint was made with other settings (exit code 2)
    ├── CheckpointUnusable          its folder cannot be read or written (exit code 2)
    ├── StateError                  a state value cannot be read
    │   ├── StateCorrupted          its bytes differ from the written ones
    │   └── StateFormatUnknown      another release wrote it
    ├── Rejected                    an input entry is not valid; it becomes a dead letter
    ├── JobError                    the job cannot run, or cannot go on
    │   ├── SparkUnavailable        Spark does not start, or reaches no master
    │   ├── KafkaUnavailable        no broker answers, or it refuses what the job needs
    │   ├── NotWritten              Kafka did not take a record
    │   ├── CheckpointInUse         another driver works on the checkpoint
    │   ├── TakenOver               another driver has taken over the checkpoint
    │   ├── TopicReplaced           a topic of the checkpoint was deleted, or is another one (exit code 2)
    │   ├── RecordsLost             inputs have lost records that the job needs (exit code 2)
    │   ├── UpdatesUnknown          the updates topic holds what the checkpoint does not know of (exit code 2)
    │   ├── CheckpointUnfinished    the rebuild of the checkpoint is not complete, or replaced it (exit code 2)
    │   ├── EntriesLethal           the work on entries kills or hangs workers; the job leaves them out
    │   └── JobFailed               the query ended by itself
    ├── DemoFailed                  the job of the demo ended by itself, or did not come up
    ├── LetterUnknown               there is no such dead letter
    ├── TopicUnreadable             a part of a Kafka topic cannot be read
    │   └── TopicMissing            it does not exist
    ├── NotVerified                 `reexpand verify` cannot compare inputs, state and updates (exit code 2)
    ├── QuarantineRefused           an entry cannot be left out, or applied after all (exit code 2)
    ├── BackupError                 a checkpoint cannot be copied or restored
    │   ├── BackupRefused           there is nothing to copy, or something in the way (exit code 2)
    │   ├── BackupDamaged           a copy, or the checkpoint itself, is damaged
    │   └── BackupFailed            a file cannot be read or written, or the job is too fast
    ├── RebuildError                no new checkpoint can be made for an updates topic
    │   ├── RebuildRefused          the checkpoints do not fit the rebuild (exit code 2)
    │   └── RebuildFailed           it was interrupted, or cannot go on; the same command goes on
    ├── InspectError                the live state of a job cannot be asked for
    │   ├── Unanswered              no job has answered in time
    │   ├── QuestionRefused         the job says why it cannot answer (exit code 2)
    │   └── NotPlaced               the question does not say which parent or group is meant (exit code 2)
    ├── AddressUnusable             the console cannot listen on its address
    ├── BridgeFailed                CloudEvents cannot be read or written
    ├── NotConverted                a record is no CloudEvent, or cannot become one; it is passed over
    ├── WatchFailed                 Kafka cannot be watched, or does not take the topic events
    ├── LocalError                  this machine lacks a part of a broker or cluster of its own
    │   ├── JavaUnusable            no Java that Spark and Kafka run on
    │   ├── JarsUnavailable         the jars of Spark's connector or of the broker cannot be downloaded or stored
    │   ├── BrokerFailed            the broker does not start, or does not answer
    │   │   └── FolderInUse         another broker works in the same data folder
    │   ├── ClusterFailed           the Spark cluster does not start
    │   └── TopicsUnusable          a topic cannot be created, or has an unsuitable configuration
    └── ClientError                 a subscription client cannot go on
        ├── Malformed               a record of the updates topic is no update; it is skipped
        ├── UpdatesUnreadable       the updates cannot be read, and waiting does not help
        ├── CallbackFailed          `on_change` raised, so the client has stopped
        ├── LiteSubscriptionRefused RocketMQ does not take the lite subscriptions of a consumer
        ├── NotReady                the client has not caught up in time, or was closed
        └── ConsumerError           a consumer with patterns cannot go on
            ├── PatternsRefused     a pattern is not valid, or nothing can match it (exit code 2)
            ├── TopicsUnreadable    topics or offsets cannot be read, and waiting does not help
            ├── NotCommitted        the group does not take an offset
            └── ConsumerClosed      the consumer was closed before

`matcher` has a tree of its own in `matcher.errors`.
"""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class ReexpandError(Exception):
    """Base of all exceptions of this package."""

    exit_code = 1


class ConfigInvalid(ReexpandError):
    """A setting is missing, malformed, or contradicts another one."""

    exit_code = 2


class ExtraMissing(ReexpandError):
    """A package that only an extra brings is not installed; the message has the command that brings it."""

    exit_code = 2


class CheckpointMismatch(ReexpandError):
    """The checkpoint was made with other settings, of those fixed during its life."""

    exit_code = 2


class CheckpointUnusable(ReexpandError):
    """The checkpoint is no folder, or may not be read or written."""

    exit_code = 2


class StateError(ReexpandError):
    """Base of errors in reading a state value.

    Operator action: stop the job, restore the checkpoint directory from a copy, or start with an empty one.
    """


class StateCorrupted(StateError):
    """The bytes of a state value differ from the written ones."""


class StateFormatUnknown(StateError):
    """The state value has a format version unknown to this release."""


class Rejected(ReexpandError):
    """One entry of an input record is not valid.

    Attributes:
        reason: stable code, one of `streaming.events.model.Reason`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class JobError(ReexpandError):
    """Base of errors that end the job, or keep it from starting."""


class SparkUnavailable(JobError):
    """Spark does not start, or reaches no master; the message quotes Spark."""


class KafkaUnavailable(JobError):
    """No broker answers, or the broker refuses a request of the job."""


class NotWritten(JobError):
    """Kafka did not take a record; the message quotes Kafka."""


class CheckpointInUse(JobError):
    """Another driver works on the checkpoint; the message names it."""


class TakenOver(JobError):
    """Another driver has taken over the checkpoint; the message names it."""


class TopicReplaced(JobError):
    """A topic of the checkpoint was deleted, created anew, or belongs to another Kafka."""

    exit_code = 2


class RecordsLost(JobError):
    """Input topics have lost records that the job has not read."""

    exit_code = 2


class UpdatesUnknown(JobError):
    """The updates topic holds updates of which the checkpoint does not know."""

    exit_code = 2


class CheckpointUnfinished(JobError):
    """The rebuild of the checkpoint is not complete, or another checkpoint has replaced it."""

    exit_code = 2


class EntriesLethal(JobError):
    """The work on entries kills or hangs workers; the text has them as JSON, so that it passes through Spark.

    Attributes:
        entries: fields of a decision about each entry (see `streaming.quarantine`); none if no entry is to blame.
    """

    def __init__(self, entries: "Sequence[Mapping[str, Any]]") -> None:
        super().__init__(json.dumps(entries))
        self.entries = entries


class JobFailed(JobError):
    """The query ended by itself; the message quotes Spark."""


class DemoFailed(ReexpandError):
    """The job of the demo ended by itself, or did not come up; the message has the end of its log."""


class LetterUnknown(ReexpandError):
    """There is no such dead letter."""


class TopicUnreadable(ReexpandError):
    """A part of a Kafka topic cannot be read; the message quotes Kafka."""


class TopicMissing(TopicUnreadable):
    """A Kafka topic does not exist; the message names it."""


class NotVerified(ReexpandError):
    """`reexpand verify` cannot compare inputs, state and updates, so it says nothing about them."""

    exit_code = 2


class QuarantineRefused(ReexpandError):
    """The entry does not exist, or its micro-batch is committed."""

    exit_code = 2


class BackupError(ReexpandError):
    """Base of errors that keep a checkpoint from being copied or restored."""


class BackupRefused(BackupError):
    """There is nothing to copy, something is in the way, or a driver lives."""

    exit_code = 2


class BackupDamaged(BackupError):
    """A backup, or the checkpoint to be copied, is damaged; the message names the file."""


class BackupFailed(BackupError):
    """A file cannot be read or written, or the job goes on faster than its files are copied."""


class RebuildError(ReexpandError):
    """Base of errors that keep `reexpand rebuild` from making a checkpoint."""


class RebuildRefused(RebuildError):
    """The new checkpoint, or the former one, is not what the rebuild needs."""

    exit_code = 2


class RebuildFailed(RebuildError):
    """The rebuild was interrupted, or cannot go on; the same command goes on with it."""


class InspectError(ReexpandError):
    """The live state of a job cannot be asked for."""


class Unanswered(InspectError):
    """No job has answered a question in time."""


class QuestionRefused(InspectError):
    """The job says why it cannot answer a question."""

    exit_code = 2


class NotPlaced(InspectError):
    """A question does not say which parent or group is meant, and there are several, or none."""

    exit_code = 2


class AddressUnusable(ReexpandError):
    """The console cannot listen on its address: another program does, or this machine does not have it."""


class WatchFailed(ReexpandError):
    """Kafka cannot be watched, or does not take the topic events."""


class BridgeFailed(ReexpandError):
    """CloudEvents cannot be read or written; the message quotes Kafka."""


class NotConverted(ReexpandError):
    """A record is no CloudEvent with an input of the job, or cannot become one."""


class LocalError(ReexpandError):
    """Base of the failures of a broker or cluster on this machine."""


class JavaUnusable(LocalError):
    """No Java on this machine is suitable for Spark and Kafka."""


class JarsUnavailable(LocalError):
    """The jars of Spark's Kafka connector or of the broker cannot be downloaded or stored."""


class BrokerFailed(LocalError):
    """The broker does not start, or does not answer."""


class FolderInUse(BrokerFailed):
    """Another broker works in the same data folder."""


class ClusterFailed(LocalError):
    """The Spark cluster does not start."""


class TopicsUnusable(LocalError):
    """A topic cannot be created, or exists with an unsuitable configuration."""


class ClientError(ReexpandError):
    """Base of the exceptions of a subscription client."""


class Malformed(ClientError):
    """A record of the updates topic is no update."""


class UpdatesUnreadable(ClientError):
    """The topic does not exist, access is refused, or records were deleted before they were read."""


class CallbackFailed(ClientError):
    """`on_change` raised: its owner has missed a change, so the client does not go on."""


class LiteSubscriptionRefused(ClientError):
    """RocketMQ does not answer, or does not take the lite subscriptions of a consumer; the message quotes it."""


class NotReady(ClientError, TimeoutError):
    """The relation is not complete yet."""


class ConsumerError(ClientError):
    """Base of the exceptions of a consumer with patterns."""


class PatternsRefused(ConsumerError):
    """A pattern is not valid, or nothing can match it."""

    exit_code = 2


class TopicsUnreadable(ConsumerError):
    """Topics or their offsets cannot be read, and waiting does not help; the message quotes Kafka."""


class NotCommitted(ConsumerError):
    """The consumer group does not take an offset; the message quotes Kafka."""


class ConsumerClosed(ConsumerError):
    """The consumer was closed before it was asked for something."""
