"""Exceptions of the service.

| exception | cause |
|---|---|
| `ReexpandError` | base of all that follow |
| `ConfigError` | a setting is missing or wrong (exit code 2) |
| `CheckpointMismatch` | the checkpoint was made with other settings (exit code 2) |
| `StateError` | a state value cannot be read |
| `StateError` > `StateCorrupted` | its bytes are not what was written |
| `StateError` > `StateFormatUnknown` | a version wrote it that this one does not know |
| `Rejected` | one input entry is not valid; becomes a dead letter |
"""


class ReexpandError(Exception):
    """Base of everything that this package raises on purpose; its text is meant for the user."""

    exit_code = 1


class ConfigError(ReexpandError):
    """A setting is missing, malformed, or contradicts another."""

    exit_code = 2


class CheckpointMismatch(ReexpandError):
    """The checkpoint was made with settings that cannot change during its life."""

    exit_code = 2


class StateError(ReexpandError):
    """A state value cannot be read.

    Operator action: stop the job, restore the checkpoint directory from a copy, or start with an empty one.
    """


class StateCorrupted(StateError):
    """The bytes of a state value are not those that were written."""


class StateFormatUnknown(StateError):
    """The state value has a format version that this release does not know."""


class Rejected(ReexpandError):
    """One entry of an input record is not valid.

    Attributes:
        reason: stable code, one of `streaming.events.model.Reason`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
