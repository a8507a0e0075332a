"""Messages and errors that report the end of the process at the other end of a connection."""

from typing import NamedTuple


class Lost(NamedTuple):
    """Message that a worker has ended. `reason`: the observation of its server."""

    reason: str


class LostPeerError(ConnectionError):
    """Error of a connection whose other process has ended.

    That process or its launcher reports the reason.
    """
