"""Launcher of a run: it starts new processes on this machine and supervises them until they end.

Lightning's own launcher inside one Hydra multirun trains fewer workers than requested, without an
error. torch's elastic launcher ends all processes when one dies, where servers could continue.
"""

import contextlib
import os
import secrets
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from paceline.cluster.child import Place, Raised, Returned, call_here
from paceline.cluster.processes import LocalProcesses, preload, require_files
from paceline.cluster.supervisor import Supervisor, Task

LOOPBACK_ADDRESS = "127.0.0.1"
EXIT_SECONDS = 5  # limit for the exit of a process that has reported its result
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def call_in_processes(
    function: Callable[..., Any], *arguments: Any, workers: int = 1, servers: int = 0
) -> list[Any]:
    """Call a module's function in new processes; return what each returns, by rank."""
    target = f"{function.__module__}:{function.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        return launch_task(Task(target, arguments, workers, servers, Path(folder)))


def launch_task(
    task: Task,
    *,
    own_rank: int | None = None,
    address: str = LOOPBACK_ADDRESS,
    namespaces: Sequence[str] | None = None,
) -> list[Any]:
    """Run the processes of `task` on this machine; return their return values by rank.

    Each process gets RANK, WORLD_SIZE and PACELINE_STORE. A LostWorker stands for a worker that
    died after all servers had called `tolerate` for it. Any other failure ends all processes and
    raises ProcessFailure for the first one, or the SettingError that a process raised. `own_rank`:
    rank that the calling process takes itself; None if all processes are new. `namespaces`: file of
    the network namespace of each process by rank, from which `address` reaches the caller, or None.
    """
    preload()
    require_files(task.num_processes)
    task.log_folder.mkdir(parents=True, exist_ok=True)
    processes = LocalProcesses()
    with ended_by_signals(), rendezvous_by_file(task.num_processes, address) as environment:
        ranks = range(task.num_processes)
        ranked = [{**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in ranks]
        try:
            for rank in ranks:
                if rank != own_rank:
                    namespace = namespaces[rank] if namespaces else None
                    processes.start(task, rank, Place(ranked[rank], task.log_of(rank), namespace))
            supervisor = Supervisor(processes, task)
            if own_rank is not None:
                supervisor.note(own_rank, _call_in_environment(task, ranked[own_rank]))
            returned = supervisor.until_the_end()
            processes.wait(EXIT_SECONDS)
            return returned
        finally:
            processes.end()


def _call_in_environment(task: Task, environment: dict[str, str]) -> Returned | Raised:
    from paceline.exchange.process_group import leave

    before = dict(os.environ)
    os.environ.update(environment)
    try:
        return call_here(task.target, task.arguments)
    finally:
        leave()
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def ended_by_signals() -> Generator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises KeyboardInterrupt."""
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


@contextlib.contextmanager
def rendezvous_by_file(processes: int, address: str) -> Generator[dict[str, str]]:
    """Yield the environment by which `processes` on this machine find each other. `address`:
    address at which they all reach this machine.
    """
    from paceline.exchange.process_group import STORE, TOKEN

    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:  # of mode 0700
        yield {
            "WORLD_SIZE": str(processes),  # variables of torchrun, with which Lightning starts none
            "LOCAL_WORLD_SIZE": str(processes),
            "GROUP_RANK": "0",
            "MASTER_ADDR": address,
            "MASTER_PORT": "0",
            "TORCHELASTIC_RUN_ID": uuid.uuid4().hex,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            STORE: str(Path(folder) / "store"),
            TOKEN: secrets.token_hex(32),
        }
