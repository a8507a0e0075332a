"""Messages and errors that report the end of the process at the other end of a connection."""

from typing import NamedTuple


class Lost(NamedTuple):
    """The message that a worker takes no further part; `reason`: what its server noticed."""

    reason: str


class LostPeerError(ConnectionError):
    """The process at the other end is gone; it or its launcher reports why."""
