"""Node of a process, and the address at which other processes of its run reach it."""

import errno
import os
import socket
from pathlib import Path

import psutil

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def this_node() -> str:
    """Return a name that is equal for processes that can share memory and Unix sockets. The boot id
    alone would not do: containers may share a kernel, but not memory, and Unix sockets do not cross
    network namespaces.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {socket.gethostname()} {Path('/proc/self/ns/net').stat().st_ino}"


def cluster_interface() -> str:
    """Return the name of the interface to MASTER_ADDR, "lo" if that is local. gloo would choose the
    one to which the host's own name resolves, which may be loopback.
    """
    address = cluster_address()
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.split("%")[0] == address for each in addresses):
            if not psutil.net_if_stats()[name].isup:
                raise OSError(errno.ENETDOWN, f"the interface {name} is down")
            return name
    raise OSError(errno.EADDRNOTAVAIL, f"no interface has the address {address}")


def cluster_address() -> str:
    """Return the address of the interface to MASTER_ADDR; loopback if that is local."""
    return address_toward(os.environ.get("MASTER_ADDR", "127.0.0.1"))


def address_toward(host: str) -> str:
    """Return the address at which this machine and `host` reach each other."""
    if host in LOOPBACK:
        return "127.0.0.1"
    family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # only looks up the route: a datagram socket sends nothing yet
        return probe.getsockname()[0]
