"""Agent of a node: it starts the node's processes of a run, and relays their reports.

One agent runs on each node, started by ssh, srun, kubectl or torchrun. It connects to the head,
runs one point after the other, and ends with the head.
"""

import socket
import sys
import time
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

from paceline.cluster.agent_wire import END, OVER, READY, Ended, Kill, Order, connect
from paceline.cluster.child import Place, Raised
from paceline.cluster.launcher import ended_by_signals
from paceline.cluster.processes import LocalChild, end, preload, start, wait_for_preload
from paceline.cluster.supervisor import ProcessFailure, Task, received


def serve(head: tuple[str, int], key: bytes, code: str, patience_seconds: float) -> None:
    """Serve the head at this address until it ends. `code`: digest of this node's source.
    `patience_seconds`: time to wait for the head. Raises SettingError if the head does not come, or
    does not know the key.
    """
    with ended_by_signals():
        wire = connect(head, key, patience_seconds)
        try:
            preload()
            wait_for_preload()
            wire.send(READY)
            print(f"paceline agent: serves {head[0]}:{head[1]}", file=sys.stderr, flush=True)
            while True:
                _carry_out(wire, wire.recv(), code)
        except (EOFError, OSError):
            return  # the head has ended


def _carry_out(wire: Connection, order: Order, code: str) -> None:
    """Start the processes of `order`, and relay their reports until the head says END."""
    children: dict[int, LocalChild] = {}
    try:
        reason = _misfit(order.task, code)
        if reason:
            wire.send((min(order.ranks), Raised(reason, "cluster", False, time.monotonic())))
        else:
            _start_all(wire, order, children)
        _relay(wire, children)
    finally:
        end(children.values())
    wire.send(OVER)


def _misfit(task: Task, code: str) -> str | None:
    host = socket.gethostname()
    if task.code != code:
        return f"the code on {host} is {code}, and {task.code} where the run was started"
    if not task.log_folder.parent.is_dir():
        return f"{host} does not see {task.log_folder.parent}: nodes must share the project"
    return None


def _start_all(wire: Connection, order: Order, children: dict[int, LocalChild]) -> None:
    order.task.log_folder.mkdir(exist_ok=True)
    for local_rank, rank in enumerate(order.ranks):
        ranked = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(len(order.ranks)),
        }
        place = Place({**order.environment, **ranked}, order.task.log_of(rank), None)
        try:
            children[rank] = start(order.task, rank, place)
        except ProcessFailure as failure:
            reason = str(failure).partition(": ")[2]
            wire.send((rank, Raised(reason, None, False, time.monotonic(), environment=True)))
            return


def _relay(wire: Connection, children: dict[int, LocalChild]) -> None:
    running = set(children)
    while True:
        handles: list[Any] = [wire]
        for rank in running:
            handles += [children[rank].reports, children[rank].process.sentinel]
        ready = connection.wait(handles)
        for rank in sorted(running):
            ended = not children[rank].process.is_alive()
            for report in received(children[rank].reports):
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
