"""Network namespaces of Linux as nodes, each with one link of limited bandwidth to a switch. Each
end of a link has a token bucket (tc-tbf(8)), so that a node sends and receives at this rate at
once, and messages of several senders share the rate of their receiver.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import NamedTuple

from paceline.errors import SettingError

_FOLDER = Path("/run/netns")  # of named namespaces, ip-netns(8)
_NAME = "paceline-{process}-{node}"
_OURS = re.compile(r"paceline-(\d+)-\d+")
_SWITCH, _PORT = "pl{process}", "pl{process}n{node}"  # an interface's name has 15 characters
_NETWORK = "10.77.{network}.{place}"  # the switch has the first place
_MOST = 250  # networks of a machine, and nodes of a network
_BITS = 8
# Of 1,514 bytes of a full frame a TCP segment carries 1,448 of a message.
_FRAME, _SEGMENT = 1514, 1448
BURST_SECONDS, _LEAST_BURST = 0.0005, 4096  # what passes at once, after a pause
# Packets of TCP that its senders do not cut into frames themselves; a bucket cuts those that it
# cannot take at once, and then does not carry its rate.
_LEAST_PACKET, _PACKETS_OF_BURST = 3000, 4
_QUEUE_SECONDS = 1.0  # that a packet may wait; TCP takes 200 ms to miss one that a full queue drops
# The same on every host, where any process may choose reno; at full speed after a step's pause.
_TCP = ("net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_slow_start_after_idle=0")


class ShapedNetwork(NamedTuple):
    """Nodes that are up. `address`: the switch's, for the launcher. `namespaces`: their files."""

    address: str
    namespaces: list[str]

    def kill(self, node: int) -> None:
        listed = _call("ip", f"netns pids {Path(self.namespaces[node]).name}", None)
        for process in listed.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)

    def shape(self, node: int, bandwidth: float) -> None:
        """Give the link of a node another bandwidth [bytes/s]."""
        _shape_link(node, Path(self.namespaces[node]).name, bandwidth)


def check_permitted() -> None:
    """Raise SettingError("cluster") if this process cannot make network namespaces."""
    missing = [program for program in ("ip", "tc") if shutil.which(program) is None]
    if missing:
        raise SettingError("cluster", f"there is no {missing[0]}: shaped links need iproute2")
    if os.geteuid() != 0:
        raise SettingError("cluster", "shaped links between network namespaces need root")


@contextlib.contextmanager
def shaped_network(
    num_nodes: int, bandwidth: float, queue_seconds: float = _QUEUE_SECONDS
) -> Generator[ShapedNetwork]:
    """Provide `num_nodes` nodes, whose links carry `bandwidth` bytes of messages per second each
    way; packets that would wait longer than `queue_seconds` are dropped. Raises
    SettingError("cluster") if there are too many, or if the system refuses.
    """
    if num_nodes > _MOST:
        raise SettingError("cluster", f"{num_nodes} nodes; {_MOST} are the most")
    process = os.getpid()
    folder = _FOLDER.iterdir() if _FOLDER.is_dir() else ()
    owners = {int(each[1]) for path in folder if (each := _OURS.fullmatch(path.name))}
    killed = [owner for owner in owners if not Path(f"/proc/{owner}").exists()]
    _remove([*killed, process])  # one that was killed may have had this number
    switch = _SWITCH.format(process=process)
    names = [_NAME.format(process=process, node=node) for node in range(num_nodes)]
    try:
        _ip(f"link add {switch} type bridge", f"addr add {_address(0)}/24 dev {switch}")
        _ip(f"link set {switch} up")
        for node, name in enumerate(names):
            port, address = _PORT.format(process=process, node=node), _address(node + 1)
            _ip(f"netns add {name}", f"link add {port} type veth peer name eth0 netns {name}")
            _ip(f"link set {port} master {switch} up")
            inside = f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up"
            _ip(*inside, namespace=name)
            _ip(f"netns exec {name} sysctl -q -w {' '.join(_TCP)}")
            _shape_link(node, name, bandwidth, queue_seconds)
        yield ShapedNetwork(_address(0), [str(_FOLDER / name) for name in names])
    finally:
        _remove([process])


def _shape_link(
    node: int, name: str, bandwidth: float, queue_seconds: float = _QUEUE_SECONDS
) -> None:
    port, rate = _PORT.format(process=os.getpid(), node=node), bandwidth * _FRAME / _SEGMENT
    burst = round(max(_LEAST_BURST, rate * BURST_SECONDS))
    limit = round(burst + rate * queue_seconds)
    bucket = f"rate {round(rate * _BITS)}bit burst {burst} limit {limit}"
    packet = max(_LEAST_PACKET, burst // _PACKETS_OF_BURST)
    for namespace, interface in ((name, "eth0"), (None, port)):
        _ip(f"link set {interface} gso_max_size {packet}", namespace=namespace)
        _call("tc", f"qdisc replace dev {interface} root tbf {bucket}", namespace)


def _remove(processes: Iterable[int]) -> None:
    """Remove the nodes and switches of these `processes`."""
    for process in processes:
        ports = _PORT.format(process=process, node="*")
        for path in Path("/sys/class/net").glob(ports):  # a namespace would take its own with it
            _ip(f"link del {path.name}")  # but only some time after its removal
        for path in _FOLDER.glob(_NAME.format(process=process, node="*")):
            _ip(f"netns del {path.name}")
        switch = _SWITCH.format(process=process)
        if Path("/sys/class/net", switch).exists():
            _ip(f"link del {switch}")


def _address(node: int) -> str:
    """Return an address in the network of this process; 0 is the switch."""
    return _NETWORK.format(network=os.getpid() % _MOST, place=node + 1)


def _ip(*commands: str, namespace: str | None = None) -> None:
    for command in commands:
        _call("ip", command, namespace)


def _call(program: str, arguments: str, namespace: str | None) -> str:
    inside = [] if namespace is None else ["-n", namespace]
    command = [program, *inside, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SettingError("cluster", f"{' '.join(command)}: {' '.join(done.stderr.split())}")
    return done.stdout
