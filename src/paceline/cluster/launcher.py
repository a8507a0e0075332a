"""Launcher of a run: it starts new processes on this machine and watches them until they end.

Lightning's own launcher inside one Hydra multirun silently trains fewer workers than requested;
torch's elastic launcher ends all processes when one dies, although servers can continue without a
worker.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cluster.child import Place, Raised, Returned, call_here
from paceline.cluster.processes import Child, end, preload, start
from paceline.cluster.rendezvous import LOOPBACK_ADDRESS, rendezvous_by_file
from paceline.cluster.supervisor import Supervisor, name_of

if TYPE_CHECKING:  # torch takes two seconds: `preload` is to come before, and --help without
    from paceline.cluster.cluster import Task

_EXIT_SECONDS = 5  # limit for the exit of a process that has reported its result
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def launch(
    target: str,
    arguments: tuple[Any, ...],
    *,
    workers: int,
    servers: int,
    log_folder: Path,
    shards: int = 1,
    own_rank: int | None = None,
    address: str = LOOPBACK_ADDRESS,
    namespaces: Sequence[str] | None = None,
    timeout_seconds: float = 600,
) -> list[Any]:
    """Call `target`, written module:function, in workers + servers processes.

    Returns their return values by rank. Each process gets RANK, WORLD_SIZE and PACELINE_STORE, and
    writes to a file in `log_folder`. Once all servers have called `tolerate` for a worker, its
    death puts a LostWorker into the returned list. Any other failure ends all processes and raises
    ProcessFailure for the first one, or the SettingError that a process raised.
    `shards`: number of processes of each worker, if that is more than one; `workers` counts all.
    `own_rank`: rank that the calling process takes itself; None if all processes are new.
    `namespaces`: file of the network namespace of each process, by rank, which all reach the caller
    by `address`; None for the caller's own. `timeout_seconds`: silence after which a process is
    killed.
    """
    preload()
    log_folder.mkdir(parents=True, exist_ok=True)
    children: dict[int, Child] = {}
    num_processes = workers + servers
    with ended_by_signals(), rendezvous_by_file(num_processes, address) as environment:
        try:
            for rank in range(num_processes):
                if rank != own_rank:
                    ranked = {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                    name = name_of(rank, workers, shards)
                    namespace = namespaces[rank] if namespaces else None
                    place = Place(ranked, log_folder / f"{name.replace(' ', '_')}.log", namespace)
                    children[rank] = start(name, target, arguments, place, timeout_seconds)
            supervisor = Supervisor(
                children,
                num_training=workers,
                num_processes=num_processes,
                shards=shards,
                timeout_seconds=timeout_seconds,
            )
            if own_rank is not None:
                ranked = {**environment, "RANK": str(own_rank), "LOCAL_RANK": str(own_rank)}
                supervisor.note(own_rank, _call_in_environment(target, arguments, ranked))
            returned = supervisor.until_the_end()
            for child in children.values():
                child.process.wait(_EXIT_SECONDS)
            return returned
        finally:
            end(children.values())


def launch_task(
    task: "Task",
    *,
    own_rank: int | None = None,
    address: str = LOOPBACK_ADDRESS,
    namespaces: Sequence[str] | None = None,
) -> list[Any]:
    """Run the processes of `task` by `launch`, which documents the other arguments."""
    return launch(
        task.target,
        task.arguments,
        workers=task.num_training,
        servers=task.num_servers,
        shards=task.shards,
        log_folder=task.log_folder,
        own_rank=own_rank,
        address=address,
        namespaces=namespaces,
        timeout_seconds=task.timeout_seconds,
    )


def _call_in_environment(
    target: str, arguments: tuple[Any, ...], environment: dict[str, str]
) -> Returned | Raised:
    from paceline.exchange.process_group import leave

    before = dict(os.environ)
    os.environ.update(environment)
    try:
        return call_here(target, arguments)
    finally:
        leave()
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def ended_by_signals() -> Generator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit inside, as Ctrl-C raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = [each for each in _ENDING if signal.getsignal(each) is signal.SIG_DFL]
    for each in asked:
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        for each in asked:
            signal.signal(each, signal.SIG_DFL)
