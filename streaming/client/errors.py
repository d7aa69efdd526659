"""What can go wrong with a subscription client.

ReexpandError
└── ClientError
    ├── Malformed           a record is no update; it is skipped
    ├── UpdatesUnreadable   the updates cannot be read, and waiting does not help
    ├── CallbackFailed      `on_change` raised; the client has stopped
    └── NotReady            it has not caught up in time, or was closed
"""

from streaming.errors import ReexpandError


class ClientError(ReexpandError):
    """Base of what the client raises."""


class Malformed(ClientError):
    """A record of the updates topic is no update."""


class UpdatesUnreadable(ClientError):
    """The topic does not exist, access is refused, or its records were deleted before they were read."""


class CallbackFailed(ClientError):
    """`on_change` raised: whatever it keeps has missed a change, so the client does not go on."""


class NotReady(ClientError, TimeoutError):
    """The relation is not complete yet."""
