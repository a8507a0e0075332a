"""Agent of a node: it starts the node's processes of a run, and relays what they report.

One agent stands on each node, however it was started: by ssh, srun, kubectl or torchrun. It
connects to the head, which is the process that runs `paceline train` or `paceline sweep`, serves
one point after the other, and ends with it. What they send is pickled, and is only read from a peer
that has proved that it knows the key of both.
"""

import os
import pickle
import socket
import struct
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing import AuthenticationError, connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from paceline.cluster.child import Place, Raised, Report
from paceline.cluster.launcher import ended_by_signals
from paceline.cluster.processes import Child, end, preload, start, wait_for_preload
from paceline.cluster.supervisor import ProcessFailure
from paceline.errors import SettingError
from paceline.exchange.node import address_toward
from paceline.exchange.wire.connection import prepare

KEY, HEAD = "PACELINE_AGENT_KEY", "PACELINE_HEAD"  # environment variables, see `agent_key`, `head`
READY = "ready"  # an agent's word once its processes start fast
END, OVER = "end", "over"  # the head's last word of a point, and the agent's
_LEAST_KEY = 16  # characters
_HANDSHAKE_SECONDS = 5
_SILENCE_SECONDS = 25  # after which a node whose machine or link has failed is gone
_AGAIN_SECONDS = 0.2


class Introduction(NamedTuple):
    """First words of an agent: name of its host, and the address by which others reach it."""

    host: str
    address: str


class Order(NamedTuple):
    """Processes of a point that an agent is to start.

    `names`: of the processes, by rank. `environment`: variables that all of them share.
    `log_folder`: in the record under way, relative to the project. `code`: digest of the head's
    source. `timeout_seconds`: for a process to start.
    """

    names: dict[int, str]
    target: str
    arguments: tuple[Any, ...]
    environment: dict[str, str]
    log_folder: Path
    code: str
    timeout_seconds: float


class Kill(NamedTuple):
    """Order to kill one of the processes."""

    rank: int


class Ended(NamedTuple):
    """End of a process, with or without a report."""

    exit_code: int | None


def agent_key() -> bytes:
    """Read the key by which head and agents know each other. Raises SettingError without one."""
    key = os.environ.get(KEY, "")
    if len(key) < _LEAST_KEY:
        message = f"an environment variable of {_LEAST_KEY} characters or more is needed, the same "
        raise SettingError(KEY, f"{message}for the head and all agents; openssl rand -hex 32")
    return key.encode()


def head(given: str | None = None) -> tuple[str, int]:
    """Parse HOST:PORT, or the environment variable of that name: where the head listens.

    Raises SettingError if there is neither, or if it does not fit.
    """
    text = given or os.environ.get(HEAD, "")
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        message = f"HOST:PORT is needed, the address on which the head listens, not {text!r}"
        raise SettingError(HEAD, message)
    return host, int(port)


def serve(head: tuple[str, int], key: bytes, code: str, patience_seconds: float) -> None:
    """Serve the head at this address until it ends.

    `code`: digest of this node's source. `patience_seconds`: time to wait for the head. Raises
    SettingError if it does not come, or does not know the key.
    """
    with ended_by_signals():
        wire = _reach(head, key, patience_seconds)
        try:
            wire.send(Introduction(socket.gethostname(), address_toward(head[0])))
            preload()
            wait_for_preload()
            wire.send(READY)
            print(f"paceline agent: serves {head[0]}:{head[1]}", file=sys.stderr, flush=True)
            while True:
                _carry_out(wire, wire.recv(), code)
        except (EOFError, OSError):
            return  # the head has ended


@contextmanager
def handshake(peer: socket.socket) -> Generator[Connection]:
    """Yield a connection whose other end must answer quickly inside."""
    prepare(peer)
    peer.setblocking(True)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENCE_SECONDS)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _HANDSHAKE_SECONDS, 0))
    wire = Connection(os.dup(peer.fileno()))
    try:
        yield wire
    except BaseException:
        wire.close()
        raise
    else:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
    finally:
        peer.close()


def _reach(head: tuple[str, int], key: bytes, patience_seconds: float) -> Connection:
    until, where = time.monotonic() + patience_seconds, f"{head[0]}:{head[1]}"
    while True:
        try:
            with handshake(socket.create_connection(head, _HANDSHAKE_SECONDS)) as wire:
                connection.answer_challenge(wire, key)
                connection.deliver_challenge(wire, key)
            return wire
        except AuthenticationError:
            raise SettingError(KEY, f"the head at {where} has another key") from None
        except (EOFError, OSError) as error:
            if time.monotonic() > until:
                message = f"nothing answers at {where} for {patience_seconds:g} s: {error}"
                raise SettingError(HEAD, message) from None
            time.sleep(_AGAIN_SECONDS)


def _carry_out(wire: Connection, order: Order, code: str) -> None:
    """Start the processes of `order`, and relay until the head says END."""
    children: dict[int, Child] = {}
    try:
        reason = _misfit(order, code)
        if reason:
            wire.send((min(order.names), Raised(reason, "cluster", False, time.monotonic())))
        else:
            _start_all(wire, order, children)
        _relay(wire, children)
    finally:
        end(children.values())
    wire.send(OVER)


def _misfit(order: Order, code: str) -> str | None:
    host = socket.gethostname()
    if order.code != code:
        return f"the code on {host} is {code}, and {order.code} where the run was started"
    if not order.log_folder.parent.is_dir():
        return f"{host} does not see {order.log_folder.parent}: nodes must share the project"
    return None


def _start_all(wire: Connection, order: Order, children: dict[int, Child]) -> None:
    order.log_folder.mkdir(exist_ok=True)
    for local_rank, (rank, name) in enumerate(order.names.items()):
        ranked = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(len(order.names)),
        }
        log = order.log_folder / f"{name.replace(' ', '_')}.log"
        place = Place({**order.environment, **ranked}, log, None)
        try:
            given = (order.target, order.arguments, place, order.timeout_seconds)
            children[rank] = start(name, *given)
        except ProcessFailure as failure:
            reason = str(failure).partition(": ")[2]
            wire.send((rank, Raised(reason, None, False, time.monotonic(), environment=True)))
            return


def _relay(wire: Connection, children: dict[int, Child]) -> None:
    running = set(children)
    while True:
        handles: list[Any] = [wire]
        for rank in running:
            handles += [children[rank].reports, children[rank].process.sentinel]
        ready = connection.wait(handles)
        for rank in sorted(running):
            ended = not children[rank].process.is_alive()
            for report in _received(children[rank].reports):
                wire.send((rank, report))
            if ended:
                running.remove(rank)
                wire.send((rank, Ended(children[rank].process.exitcode)))
        if wire in ready:
            told = wire.recv()
            if told == END:
                return
            if isinstance(told, Kill) and told.rank in children:
                children[told.rank].process.kill()


def _received(reports: Connection) -> Iterator[Report]:
    try:
        while reports.poll():
            yield reports.recv()
    except (EOFError, OSError, pickle.UnpicklingError):  # killed while it reported
        pass
