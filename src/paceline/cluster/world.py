"""Runs on several machines, on which torchrun or srun started a process for each worker and server.

The head is the process of `paceline train` or a sweep, which writes the records. The started
processes follow it: for each run they read an order in the head's store, start the process of their
place, and pass its reports on to the head, which supervises all. If a run needs fewer processes,
the others wait. The store holds JSON alone. What a process returns, and the token by which servers
know their workers, are files in the folder of the partial record, which all machines share.
"""

import contextlib
import datetime
import errno
import importlib
import itertools
import json
import math
import os
import pickle
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from paceline.cluster.child import Alive, Ended, Place, Raised, Report, Returned, Tolerated
from paceline.cluster.launcher import EXIT_SECONDS, ended_by_signals
from paceline.cluster.processes import LocalProcesses, preload, wait_for_preload
from paceline.cluster.supervisor import AbstractProcesses, ProcessFailure, Supervisor, Task
from paceline.data.order import Recent
from paceline.errors import first_line
from paceline.exchange.process_group import PART, TOKEN

Store = dist.Store  # pyright: ignore[reportPrivateImportUsage]
_KINDS = {each.__name__: each for each in (Returned, Raised, Tolerated, Alive, Ended)}
_DTYPES = (each for each in vars(np.dtypes).values() if isinstance(each, type))
_RECONSTRUCT = [value.__reduce__()[0] for value in (np.empty(0), np.float64(0))]
_ARRAYS: list[Any] = [*_RECONSTRUCT, np.ndarray, np.dtype, *_DTYPES]
_TOKEN, _RETURNED = "token", "returned"  # in the folder of a partial record
_PROCESS = "paceline.run.training_process:run_recorded"  # of a folder and a digest of the source
_PATIENCE_SECONDS = 600.0  # for all processes to come
_END_SECONDS = 20.0  # for them to end what they did for a run
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class _Order:
    """What the followers are to do. `places`: number of the follower of each process, by rank.
    `nodes`: its node. `folder`: folder of the partial record. The others are those of a Task. It
    does not name what is called: whoever reaches the store may write there.
    """

    places: Sequence[int]
    nodes: Sequence[int]
    folder: str
    code: str
    num_training: int
    shards: int
    timeout_seconds: float


def open_store(*, has_it: bool) -> Store:
    """Return the store at MASTER_ADDR and MASTER_PORT. `has_it`: True in the process that is to
    have it, if torchrun's agent does not.
    """
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=has_it and not by_agent,
        wait_for_workers=False,
        timeout=datetime.timedelta(seconds=_PATIENCE_SECONDS),
    )


def _of_paceline(store: Store) -> Store:
    return dist.PrefixStore(_part(), store)  # pyright: ignore[reportPrivateImportUsage]


def _part() -> str:
    """Return the part of the store that is used since torchrun last restarted its processes."""
    return f"paceline/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


class World:
    """The followers of this process, for one run after the other. `store`: where they look for
    orders. `per_node`: number of followers on each of the `nodes`.
    """

    def __init__(self, store: Store, nodes: int, per_node: int) -> None:
        self._store, self._per_node = _of_paceline(store), per_node
        self._followers, self._number = range(nodes * per_node), 0
        self._late = list[str]()  # what followers have not said yet, about the end of a run

    @property
    def is_whole(self) -> bool:
        """True if no follower is known to be gone."""
        return not self._late

    def run(self, task: Task, nodes: Sequence[int]) -> list[Any]:
        """Run the processes of `task`, each on its node; see `AbstractCluster.run`."""
        self._meet()
        number, folder = self._number, task.log_folder.parent
        local = [list(nodes[:rank]).count(node) for rank, node in enumerate(nodes)]
        places = [node * self._per_node + place for node, place in zip(nodes, local, strict=True)]
        own = task.num_training, task.shards, task.timeout_seconds
        order = _Order(places, nodes, str(folder), task.code, *own)
        members = _Members(self._store, number, folder, task.num_processes)
        task.log_folder.mkdir(parents=True, exist_ok=True)
        (folder / _RETURNED).mkdir(exist_ok=True)
        with ended_by_signals(), _token_in(folder / _TOKEN):
            try:
                self._store.set(f"order/{number}", json.dumps(vars(order)))
                self._number += 1
                return Supervisor(members, task).until_the_end()
            finally:
                for rank in range(task.num_processes):
                    members.kill(rank)
                over = [f"{number}/over/{rank}" for rank in range(task.num_processes)]
                self._late = [] if _has_all(self._store, over, _END_SECONDS) else over
                shutil.rmtree(folder / _RETURNED, ignore_errors=True)

    def dismiss(self, seconds: float, first: int = 0) -> None:
        """Let all followers end, and wait until they know, from the one of the number `first` on:
        the store may go with this process.
        """
        told = [f"dismissed/{follower}" for follower in self._followers[first:]]
        with contextlib.suppress(dist.DistError):  # the store is gone already
            self._store.set(f"order/{self._number}", "null")
            _has_all(self._store, told, seconds)

    def _meet(self) -> None:
        """Wait for all followers. Raises ProcessFailure if they do not come."""
        ready = [f"ready/{follower}" for follower in self._followers]
        if not _has_all(self._store, [*ready, *self._late], _PATIENCE_SECONDS):
            came = sum(self._store.check([each]) for each in ready)
            message = f"{came} of {len(ready)} processes on other machines came"
            message = message if self.is_whole else "a process on another machine is gone"
            raise ProcessFailure(message, environment=True)


def _has_all(store: Store, names: list[str], seconds: float) -> bool:
    """Look until the store has a value of each name; return False if that takes too long. In the
    store's own wait no signal is handled.
    """
    until = time.monotonic() + seconds
    while not store.check(names):
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


@contextlib.contextmanager
def _token_in(path: Path) -> Generator[None]:
    """Keep a new token in a file that only this user can read."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


class _Members(AbstractProcesses):
    """The processes of the run of this `number`, which followers have started."""

    def __init__(self, store: Store, number: int, folder: Path, num_processes: int) -> None:
        self._store, self._number, self._folder = store, number, folder
        self._heard = [0] * num_processes  # reports by rank

    def listen(self, seconds: float) -> list[tuple[int, Report]]:
        until, heard = time.monotonic() + seconds, list[tuple[int, Report]]()
        while True:
            for rank, count in enumerate(self._heard):
                while self._store.check([name := f"{self._number}/report/{rank}/{count}"]):
                    heard.append((rank, self._read(rank, *json.loads(self._store.get(name)))))
                    self._store.delete_key(name)
                    count += 1
                self._heard[rank] = count
            if heard or time.monotonic() >= until:
                return heard
            time.sleep(_LOOK_SECONDS)

    def kill(self, rank: int) -> None:
        self._store.set(f"{self._number}/kill/{rank}", "")

    def _read(self, rank: int, kind: str, fields: list[Any]) -> Report:
        report = _KINDS[kind](*fields)
        if isinstance(report, Returned):
            try:
                return Returned(_load(self._folder / _RETURNED / f"{rank}.pt"))
            except (OSError, RuntimeError, pickle.UnpicklingError) as error:
                reason = f"its result cannot be read: {first_line(error)}"
                return Raised(reason, None, False, time.monotonic(), environment=False)
        if isinstance(report, Raised):  # clocks of machines differ: here counts the arrival
            return report._replace(when=time.monotonic())
        return report


def _load(path: Path) -> Any:
    """Read what a process returned: tensors, arrays, and data classes of Paceline."""
    ours = list[Any]()
    for name in get_unsafe_globals_in_checkpoint(path):
        module, _, kind = name.rpartition(".")
        if module.startswith("paceline."):
            found = getattr(importlib.import_module(module), kind)
            of_data = found is Recent or is_dataclass(found)
            if isinstance(found, type) and (of_data or issubclass(found, tuple)):
                ours.append(found)
    with safe_globals([*ours, *_ARRAYS]):
        return torch.load(path, weights_only=True)


def follow(follower: int, target: str = _PROCESS) -> None:
    """Carry out the head's orders in the process of this number, until the head has ended.
    `target`: what each process calls with the folder of the partial record and the task's `code`.
    """
    try:
        store = _of_paceline(open_store(has_it=False))
        preload()
        wait_for_preload()
        store.set(f"ready/{follower}", "")
        number = 0
        while _has_all(store, [f"order/{number}"], math.inf):
            said = json.loads(store.get(f"order/{number}"))
            if said is None:
                break
            order = _Order(**said)
            if follower in order.places:
                _carry_out(store, number, order, order.places.index(follower), target)
            number += 1
        store.set(f"dismissed/{follower}", "")
    except dist.DistNetworkError:  # of the store, which has ended with the head
        pass


def _without_value(report: Report, path: Path) -> Report:
    """Return a report as it goes into the store: what a process returned is in the file `path`."""
    if not isinstance(report, Returned):
        return report
    try:
        torch.save(report.value, path)
    except (OSError, RuntimeError) as error:  # a full disk is a RuntimeError of torch
        return _failed(f"its result cannot be written: {first_line(error)}")
    return Returned(None)


def _failed(reason: str, setting: str | None = None) -> Raised:
    """Report a failure of this follower; the head notes the time when it hears of it."""
    return Raised(reason, setting, lost_peer=False, when=0.0, environment=setting is None)


def _carry_out(store: Store, number: int, order: _Order, rank: int, target: str) -> None:
    """Run the process of this rank, and pass its reports on until it is to be killed."""
    numbers = itertools.count()

    def say(report: Report) -> None:
        report = _without_value(report, Path(order.folder, _RETURNED, f"{rank}.pt"))
        name = f"{number}/report/{rank}/{next(numbers)}"
        store.set(name, json.dumps([type(report).__name__, report]))

    processes, has_returned = LocalProcesses(), False
    try:
        try:
            processes.start(*_work(number, order, rank, target))
        except ProcessFailure as failure:
            say(_failed(str(failure).partition(": ")[2]))  # without the name, which the head adds
        except OSError as error:
            message = f"{socket.gethostname()} does not see {order.folder}: nodes must share the "
            say(_failed(f"{message}project ({error.strerror})", "cluster"))
        while not store.check([f"{number}/kill/{rank}"]):
            for _, report in processes.listen(_LOOK_SECONDS):
                has_returned |= isinstance(report, Returned)
                say(report)
        if has_returned:  # it ends by itself, which the head did not wait for
            processes.wait(EXIT_SECONDS)
    finally:  # also if the store has ended with the head
        processes.end()
    store.set(f"{number}/over/{rank}", "")


def _work(number: int, order: _Order, rank: int, target: str) -> tuple[Task, int, Place]:
    """Return what this process of an order does, and where. Raises OSError without a folder of this
    user, in which this user has written a token.
    """
    nodes, folder = order.nodes, Path(order.folder).resolve(strict=True)
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it is not of this user")
    servers = len(nodes) - order.num_training
    task = Task(
        target,
        (str(folder), order.code),
        order.num_training,
        servers,
        folder / "log",
        order.shards,
        order.timeout_seconds,
    )
    environment = {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(nodes)),
        "LOCAL_RANK": str(list(nodes[:rank]).count(nodes[rank])),
        "LOCAL_WORLD_SIZE": str(list(nodes).count(nodes[rank])),
        "GROUP_RANK": str(nodes[rank]),
        "MASTER_ADDR": os.environ["MASTER_ADDR"],
        "MASTER_PORT": os.environ["MASTER_PORT"],
        "TORCHELASTIC_RUN_ID": "paceline",  # with which Lightning starts no processes
        PART: f"{_part()}/{number}/group",
        TOKEN: _token_of(folder / _TOKEN),
    }
    return task, rank, Place(environment, task.log_of(rank), None)


def _token_of(path: Path) -> str:
    about = path.lstat()
    if about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "its token is not of this user alone")
    return path.read_text()


if __name__ == "__main__":
    sys.path[:0] = [str(Path.cwd()), str(Path.cwd() / "src")]  # for a `_target_` of the user's
    follow(int(os.environ["RANK"]))
