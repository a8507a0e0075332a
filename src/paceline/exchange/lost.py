"""The end of a process at the other end of a connection, as it is told."""

from typing import NamedTuple


class Lost(NamedTuple):
    """A worker takes no further part; `reason`: what its server saw of that."""

    reason: str


class LostPeerError(ConnectionError):
    """The process at the other end is gone: what became of it, it or its launcher can tell."""
