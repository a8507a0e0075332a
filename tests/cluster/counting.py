"""Processes that do little, and tell about the launcher."""

import os
import resource
import stat
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import torch.distributed as dist

from paceline.exchange.liveness import LostPeerError
from paceline.exchange.process_group import STORE, TOKEN, count_workers, join, leave
from tests.classifiers import ActingClassifier


def count(workers):
    join(10, "cpu")
    return count_workers(int(workers), is_worker=True)


def place(told):
    """Where this process is; `told`: what it prints."""
    join(10, "cpu")
    count_workers(2, is_worker=os.environ["RANK"] != "2")
    print(told, flush=True)
    if told == os.environ["RANK"]:
        raise ValueError(told)
    return os.getpid()


def signal_launcher(launcher, sent):
    """From the server, when both workers have come."""
    print(os.getpid(), flush=True)
    join(10, "cpu")
    count_workers(2, is_worker=os.environ["RANK"] != "2")
    if os.environ["RANK"] == "2":
        os.kill(launcher, sent)
    time.sleep(60)


def fail(how):
    if os.environ["RANK"] == "0":
        if how == "peer":
            raise LostPeerError("worker 1 is gone")
        time.sleep(60)
    if how == "exit":
        sys.exit(3)
    if how == "vanish":
        os._exit(7)
    if how == "real-time signal":
        os.kill(os.getpid(), 35)
    if how == "peer":
        time.sleep(0.3)
        raise RuntimeError("the cause")
    return lambda: None


def signal_forkserver(sent):
    """Which is the parent of this process."""
    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:  # the last to start
        time.sleep(0.2)
        os.kill(os.getppid(), sent)
        time.sleep(0.2)
    return os.environ["RANK"]


class ListeningClassifier(ActingClassifier):
    """Fails where a process of the family of `launcher` listens elsewhere than on loopback."""

    def __init__(self, network: Any, optimizer: Any, launcher: int) -> None:
        super().__init__(network, optimizer)
        self._launcher = launcher

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() == 0 and batch_idx == 1:
            launcher = psutil.Process(self._launcher)
            family = [launcher, *launcher.children(recursive=True)]
            found = [address.ip for one in family for address in listening_of(one)]
            assert len(found) >= 3
            assert set(found) == {"127.0.0.1"}


def page_faults(rounds, vectors, num_bytes):
    """Minor faults of rounds that allocate so many vectors and free them, after a first round."""
    for turn in range(rounds + 1):
        if turn == 1:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        held = [bytearray(num_bytes) for _ in range(vectors)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def tell_ranks():
    print(f"out {os.environ['RANK']}", flush=True)
    print(f"err {os.environ['RANK']}", file=sys.stderr)
    return tuple(
        os.environ[each] for each in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    )


def obey(folder, words):
    """Call a function of this file, by its name and arguments."""
    name, *arguments = words.split()
    functions = {each.__name__: each for each in (tell_ranks, fail, count)}
    return tell_token(folder) if name == "tell_token" else functions[name](*arguments)


def tell_token(folder):
    """The token of the run, and the mode of the file that has it."""
    return os.environ[TOKEN], Path(folder, "token").stat().st_mode


def listening_of(process: psutil.Process) -> list[Any]:
    """The addresses at which a process listens."""
    sockets = process.net_connections("tcp")
    return [each.laddr for each in sockets if each.status == psutil.CONN_LISTEN]


def how_to_meet(launcher: int) -> tuple[int, int, list[Any]]:
    """What others may do to the run's store, the mode of its folder, and where the launcher
    listens, when all have met.
    """
    join(60, "cpu")
    path = Path(os.environ[STORE])
    dist.barrier()
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)]
    listening = listening_of(psutil.Process(launcher))
    dist.barrier()
    leave()
    return modes[0] & 0o022, modes[1], listening
