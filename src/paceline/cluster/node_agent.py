"""Agent of a node: it starts the node's processes of a run, and relays their reports.

One agent runs on each node, started by ssh, srun, kubectl or torchrun. It connects to the head,
runs one point after the other, and ends with the head.
"""

import socket
import sys
import time
from multiprocessing import connection
from typing import Any

from paceline.cluster.agent_wire import (
    Channel,
    End,
    Ended,
    Kill,
    Order,
    Over,
    Ready,
    Reported,
    connect,
    run_secret,
)
from paceline.cluster.child import Place, Raised, Report
from paceline.cluster.launcher import ended_by_signals
from paceline.cluster.plain_form import from_json
from paceline.cluster.processes import LocalChild, end, preload, start, wait_for_preload
from paceline.cluster.supervisor import ProcessFailure, Task, received
from paceline.errors import SettingError
from paceline.exchange.node import address_toward
from paceline.exchange.process_group import SECRET


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
            wire.send(Ready(socket.gethostname(), address_toward(head[0])))
            print(f"paceline agent: serves {head[0]}:{head[1]}", file=sys.stderr, flush=True)
            while isinstance(order := wire.receive(), Order):
                order.environment[SECRET] = run_secret(key, order.run)
                _carry_out(wire, order, code)
        except (EOFError, OSError):
            pass  # the head has ended
        finally:
            wire.close()


def _carry_out(wire: Channel, order: Order, code: str) -> None:
    """Start the processes of `order`, and relay their reports until the head says End."""
    children: dict[int, LocalChild] = {}
    try:
        try:
            _start_all(wire, order, _task(order, code), children)
        except (SettingError, ValueError) as error:
            setting, reason = "cluster", str(error)
            if isinstance(error, SettingError):
                setting, reason = error.setting, error.message
            _report(wire, min(order.ranks), Raised(reason, setting, False, time.monotonic()))
        _relay(wire, children)
    finally:
        end(children.values())
    wire.send(Over())


def _report(wire: Channel, rank: int, report: Report | Ended) -> None:
    try:
        wire.send(Reported(rank, report))
    except TypeError as error:  # of a function that returns what does not travel
        wire.send(Reported(rank, Raised(f"TypeError: {error}", None, False, time.monotonic())))


def _task(order: Order, code: str) -> Task:
    """Return the task of an order. Raises SettingError if this node cannot carry it out."""
    host = socket.gethostname()
    if order.code != code:
        message = f"the code on {host} is {code}, and {order.code} where the run was started"
        raise SettingError("cluster", message)
    task = from_json(order.task)
    if not task.log_folder.parent.is_dir():
        message = f"{host} does not see {task.log_folder.parent}: nodes must share the project"
        raise SettingError("cluster", message)
    return task


def _start_all(wire: Channel, order: Order, task: Task, children: dict[int, LocalChild]) -> None:
    task.log_folder.mkdir(exist_ok=True)
    for local_rank, rank in enumerate(order.ranks):
        ranked = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(len(order.ranks)),
        }
        place = Place({**order.environment, **ranked}, task.log_of(rank), None)
        try:
            children[rank] = start(task, rank, place)
        except ProcessFailure as failure:
            reason = str(failure).partition(": ")[2]
            _report(wire, rank, Raised(reason, None, False, time.monotonic(), environment=True))
            return


def _relay(wire: Channel, children: dict[int, LocalChild]) -> None:
    running = set(children)
    while True:
        handles: list[Any] = [wire]
        for rank in running:
            handles += [children[rank].reports, children[rank].process.sentinel]
        ready = connection.wait(handles)
        for rank in sorted(running):
            ended = not children[rank].process.is_alive()
            for report in received(children[rank].reports):
                _report(wire, rank, report)
            if ended:
                running.remove(rank)
                _report(wire, rank, Ended(children[rank].process.exitcode))
        if wire in ready:
            told = wire.receive()
            if isinstance(told, End):
                return
            if isinstance(told, Kill) and told.rank in children:
                children[told.rank].process.kill()
