"""Processes of one point: a fresh tree of them, by torch's elastic launcher.

A forkserver has torch, Lightning and torchmetrics imported already, so that the points of a sweep
start in a fraction of a second; only the first waits for the imports. Lightning's own launcher
inside one Hydra multirun silently trains fewer workers than asked for.
"""

import importlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import uuid
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any

from paceline.errors import SettingError

_PRELOADED = "paceline.training.process"
_LOST_PEER = ("closed by peer", "reset by peer")  # gloo, when the process at the other end is gone


class ProcessFailure(Exception):
    """A process of the point failed; the message says which, and why, on one line."""


def preload() -> None:
    """Start the forkserver, which imports in the background while the caller goes on."""
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch's first thread pool, in every process
    known = multiprocessing.get_all_start_methods()  # the platform's own is first
    if multiprocessing.get_start_method() not in known:  # joblib's: our processes lack it
        multiprocessing.set_start_method(known[0], force=True)
    multiprocessing.set_forkserver_preload([_PRELOADED])
    forkserver.ensure_running()


def launch(
    target: str, arguments: tuple, *, workers: int, servers: int, log_folder: Path
) -> list[Any]:
    """Call `module:function` in workers + servers processes; what they return, by rank.

    Each gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Their output goes to `log_folder`.
    When one fails, all are ended and ProcessFailure says what happened to the first; a
    SettingError in a process is raised here as such.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    elastic = "torch.distributed.elastic"
    for name in (elastic, f"{elastic}.agent.server.api", "torch.multiprocessing.spawn"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # ProcessFailure says it in one line
    preload()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers + servers,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        monitor_interval=0.05,
        start_method="forkserver",
        shutdown_timeout=2,
        logs_specs=DefaultLogsSpecs(log_dir=str(log_folder), redirects=Std.ALL),
    )
    try:
        returned = elastic_launch(config, _enter)(target, arguments)
    except ChildFailedError as failure:
        raise _explain(failure, workers) from None
    except SignalException as signalled:  # an Exception: Hydra would go on with the next point
        if signalled.sigval == signal.SIGINT:
            raise KeyboardInterrupt from None
        sys.exit(128 + signalled.sigval)
    return [returned[rank] for rank in range(workers + servers)]


def _enter(target: str, arguments: tuple) -> Any:
    """First thing in every process."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    module, function = target.split(":")
    try:
        return getattr(importlib.import_module(module), function)(*arguments)
    except RuntimeError as error:
        if any(sign in str(error) for sign in _LOST_PEER):
            time.sleep(1)  # the launcher reports one process: let it see the one that broke first
        raise


def _die_with_parent() -> None:
    """A killed launcher cannot end its processes: each watches the pipe that it holds open."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGKILL)


def die_with(process_id: int) -> None:
    """End this process when its parent `process_id` is gone; for points started by a sweep."""

    def watch() -> None:
        while os.getppid() == process_id:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _explain(failure: Any, workers: int) -> Exception:
    rank, first = failure.get_first_failure()
    who = f"worker {rank}" if rank < workers else f"server {rank - workers}"
    message = first.message["message"] if isinstance(first.message, dict) else first.message
    line = " ".join(str(message).split())
    if line.startswith("SettingError: "):
        setting, _, rest = line.removeprefix("SettingError: ").partition(": ")
        return SettingError(setting, rest)
    if first.exitcode < 0:
        line = f"killed by {signal.Signals(-first.exitcode).name}"
    return ProcessFailure(f"{who}: {line}")
