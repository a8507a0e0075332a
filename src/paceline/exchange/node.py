"""Which node a process is on, and by which address the others of its run reach it."""

import os
import socket
from pathlib import Path

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def this_node() -> str:
    """Equal for two processes that can share memory and meet at an abstract Unix socket.

    The name of the host differs between containers, which may share a kernel and nothing else.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {socket.gethostname()}"


def cluster_address() -> str:
    """Of this process on the interface that leads to MASTER_ADDR; loopback where that is local."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    if master in LOOPBACK:
        return "127.0.0.1"
    family, kind, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing: it only asks the routes
        return probe.getsockname()[0]
