"""Head of a run on several nodes, whose agents start the processes."""

import contextlib
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe, connection
from multiprocessing.connection import Connection
from typing import Any

from paceline.cluster.agent_wire import (
    Channel,
    End,
    Ended,
    Kill,
    Message,
    Order,
    Over,
    Ready,
    Reported,
    reception,
)
from paceline.cluster.child import Raised
from paceline.cluster.launcher import ended_by_signals, rendezvous
from paceline.cluster.plain_form import to_json
from paceline.cluster.supervisor import Child, Supervisor, Task
from paceline.errors import SettingError

_END_SECONDS = 20  # limit for an agent to end its processes of a point
_LOOK_SECONDS = 1.0  # after which a handshake that takes too long is ended
_BACKLOG = 4096  # connections that wait to be accepted


@dataclass
class _Node:
    """A node with an agent. `about`: its first message, once it can start processes. `lost`: it is
    not used any more.
    """

    wire: Channel
    about: Ready | None = None
    lost: bool = False

    @property
    def place(self) -> tuple[bool, Any]:
        """Order of nodes: those that are ready by their addresses, then the others."""
        if self.about is None:
            return True, None
        return False, ipaddress.ip_address(self.about.address.split("%")[0])

    def send(self, message: Message) -> None:
        try:
            self.wire.send(message)
        except OSError:
            self.lost = True

    def is_gone(self) -> bool:
        """Return True if the agent has ended. Between runs it sends only Ready, once."""
        try:
            if not self.lost and self.about is None and self.wire.poll():
                said = self.wire.receive()
                self.about = said if isinstance(said, Ready) else None
                self.lost = self.about is None
            gone = self.lost or self.wire.poll()
        except (OSError, EOFError):
            gone = True
        if gone:
            self.wire.close()
        return gone


class NodeAgents:
    """Agents of the nodes of a cluster, for one run after the other. `address`: address and port of
    this machine on which to listen; port 0 for any free one. `key`: secret that all agents know.
    Raises SettingError("PACELINE_HEAD") if listening is not possible.
    """

    def __init__(self, address: tuple[str, int], key: bytes) -> None:
        self._nodes = list[_Node]()
        try:
            host = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][4][0]
            listening = socket.create_server((str(host), address[1]), backlog=_BACKLOG)
        except OSError as error:
            message = f"cannot listen on {address[0]}:{address[1]}: {error.strerror}"
            raise SettingError("PACELINE_HEAD", message) from None
        self.address: tuple[str, int] = listening.getsockname()[:2]
        self._reception = reception(listening, key)

    def num_living(self) -> int:
        """Count the agents that are connected, whether ready or not, and forget the agents that
        have ended.
        """
        self._nodes = [node for node in self._nodes if not node.is_gone()]
        return len(self._nodes)

    def meet(self, num_nodes: int, patience_seconds: float) -> None:
        """Wait for so many ready agents. Raises SettingError("cluster.nodes") if they do not
        come.
        """
        until = time.monotonic() + patience_seconds
        while True:
            self.num_living()
            num_ready = sum(node.about is not None for node in self._nodes)
            if num_ready >= num_nodes:
                break
            left = until - time.monotonic()
            if left <= 0:
                came = f"{num_ready} of {num_nodes} agents came"
                message = f"{came} to {self.address[0]}:{self.address[1]} in {patience_seconds:g} s"
                raise SettingError("cluster.nodes", message)
            waiting = [node.wire.fileno() for node in self._nodes if node.about is None]
            connection.wait([self._reception.fileno(), *waiting], min(left, _LOOK_SECONDS))
            for caller in self._reception.greet(0):
                self._nodes.append(_Node(Channel(caller.connection, caller.seals)))
        self._nodes.sort(key=lambda node: node.place)

    def run(self, task: Task, nodes: Sequence[int]) -> list[Any]:
        """Run the processes of `task` on these nodes, by rank; see `AbstractCluster.run`."""
        run = secrets.token_hex(32)
        with ended_by_signals(), rendezvous(len(nodes), self.address[0]) as environment:
            relays: list[_Relay] = []
            for number in sorted(set(nodes)):
                ranks = [rank for rank, node in enumerate(nodes) if node == number]
                own = {**environment, "GROUP_RANK": str(number)}
                order = Order(ranks, own, run, task.code, to_json(task))
                relays.append(_Relay(self._nodes[number], order))
            try:
                task.log_folder.mkdir(parents=True, exist_ok=True)
                for relay in relays:
                    relay.begin()
                remotes = {rank: each for relay in relays for rank, each in relay.remotes.items()}
                return Supervisor(remotes, task).until_the_end()
            finally:
                begun = [relay for relay in relays if relay.has_begun]
                for relay in begun:
                    relay.node.send(End())
                until = time.monotonic() + _END_SECONDS
                for relay in begun:
                    relay.finish(until)

    def dismiss(self) -> None:
        """Disconnect all agents, which then end."""
        for node in self._nodes:
            node.wire.close()
        self._nodes = []

    def close(self) -> None:
        """Disconnect all agents, and stop listening."""
        self._reception.close()
        self.dismiss()


class _RemoteProcess:
    def __init__(self, node: _Node, rank: int) -> None:
        self._node, self._rank = node, rank
        self.sentinel, self._living = Pipe(duplex=False)
        self.exitcode: int | None = None
        self._ended = False

    def is_alive(self) -> bool:
        return not self._ended

    def kill(self) -> None:
        self._node.send(Kill(self._rank))

    def end(self, exit_code: int | None) -> None:
        self.exitcode, self._ended = exit_code, True
        self._living.close()


class _Relay:
    """Order to an agent, and a thread that receives its reports. `remotes`: processes by rank."""

    def __init__(self, node: _Node, order: Order) -> None:
        assert node.about is not None
        self.node, self._host, self._order = node, node.about.host, order
        self._reporting: dict[int, Connection] = {}
        self.remotes: dict[int, Child[_RemoteProcess]] = {}
        for rank in order.ranks:
            reports, self._reporting[rank] = Pipe(duplex=False)
            self.remotes[rank] = Child(_RemoteProcess(node, rank), reports)
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self.has_begun = False

    def begin(self) -> None:
        """Send the order to the agent, before `finish` can send END, and start to receive the
        agent's reports.
        """
        self.has_begun = True
        self.node.send(self._order)
        self._thread.start()

    def finish(self, until: float) -> None:
        """Wait until the agent has ended its processes; without an answer its node is lost."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, until - time.monotonic()))
        self.node.lost |= self._thread.is_alive()

    def _hear(self) -> None:
        try:
            while not isinstance(message := self.node.wire.receive(), Over):
                if not isinstance(message, Reported) or message.rank not in self._reporting:
                    raise ConnectionError("it broke the protocol")
                rank, report = message
                if isinstance(report, Ended):
                    self._close(rank, report.exit_code)
                    continue
                if isinstance(report, Raised):  # clocks of nodes differ: here counts the arrival
                    report = report._replace(when=time.monotonic())
                self._reporting[rank].send(report)
        except (EOFError, OSError):
            self.node.lost = True
            reason = f"its node {self._host} is gone"
            for rank in list(self._reporting):
                with contextlib.suppress(OSError):
                    self._reporting[rank].send(Raised(reason, None, True, time.monotonic()))
        for rank in list(self._reporting):
            self._close(rank, None)

    def _close(self, rank: int, exit_code: int | None) -> None:
        self._reporting.pop(rank).close()
        self.remotes[rank].process.end(exit_code)
