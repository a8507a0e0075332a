"""Process group of a run, workers first, then servers; small messages between its members, and
the addresses at which they reach each other.

A split worker has several consecutive processes. Only the first of them is a member of the run;
servers and other workers talk to it.
"""

import datetime
import errno
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import psutil
import torch
import torch.distributed as dist

STORE = "PACELINE_STORE"  # environment variable with the path of the run's store, if it is a file
# environment variable with the part of the store at MASTER_ADDR that is the run's, on several nodes
PART = "PACELINE_STORE_PART"
TOKEN = "PACELINE_TOKEN"  # environment variable with the token of the run in hexadecimal digits
Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | float | None


class Joined(NamedTuple):
    """Settings that all processes of a run share. `token`: random bytes by which servers know the
    workers of their run. `timeout_seconds`: longest wait for another process.
    """

    token: bytes
    timeout_seconds: float


class Division(NamedTuple):
    """Groups of a run's processes if each worker has `shards` of them. `members`: the first process
    of each worker, then the servers. `own`: all processes of this worker. `alike`: one process of
    each worker, those with the same shard as this one. Servers belong to `members` only.
    """

    shards: int
    members: dist.ProcessGroup
    own: dist.ProcessGroup | None
    alike: dist.ProcessGroup | None


_joined: Joined | None = None
_division: Division | None = None


def join(timeout_seconds: float, accelerator: str) -> None:
    """Join the group that the environment describes by RANK, WORLD_SIZE, and either PACELINE_STORE
    or PACELINE_STORE_PART, MASTER_ADDR and MASTER_PORT. gloo carries all tensors, but NCCL those of
    GPUs if the accelerator is "cuda": each worker must have a GPU of its own then.
    """
    global _joined
    if not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if accelerator == "cuda" else "gloo"
        timeout = datetime.timedelta(seconds=timeout_seconds)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", cluster_interface())
        rank, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = _store(processes, timeout)
        dist.init_process_group(
            backend, timeout=timeout, store=store, rank=rank, world_size=processes
        )
    if _joined is None:
        if TOKEN not in os.environ:
            message = f"no {TOKEN}: only Paceline's own launchers start processes of a run"
            raise RuntimeError(message)
        _joined = Joined(bytes.fromhex(os.environ[TOKEN]), timeout_seconds)


def has_nccl() -> bool:
    """Return True if NCCL carries the tensors of GPUs."""
    return "nccl" in dist.get_backend_config(members())


def joined() -> Joined:
    """Return the settings of the joined group. Raises RuntimeError before `join`."""
    if _joined is None:
        raise RuntimeError("no process group: call paceline.exchange.process_group.join first")
    return _joined


def divide(workers: int, shards: int) -> None:
    """Divide the group into workers of `shards` processes, and servers; all processes call this."""
    global _division
    ranks = range(workers * shards)
    servers = range(workers * shards, dist.get_world_size())
    members = _group([*ranks[::shards], *servers])
    owns = [_group(ranks[first : first + shards]) for first in ranks[::shards]]
    alikes = [_group(ranks[shard::shards]) for shard in range(shards)]
    worker, shard = divmod(dist.get_rank(), shards)
    own, alike = (owns[worker], alikes[shard]) if worker < workers else (None, None)
    _division = Division(shards, members, own, alike)


def division() -> Division:
    """Return the groups of a run with split workers. Raises RuntimeError before `divide`."""
    if _division is None:
        raise RuntimeError("workers are not split: call paceline.exchange.process_group.divide")
    return _division


def members() -> dist.ProcessGroup:
    """Return the group of the first process of each worker, and of the servers."""
    if _division is not None:
        return _division.members
    assert dist.group.WORLD is not None
    return dist.group.WORLD


def send_json(value: Json, receiver: int) -> None:
    """Send a value as JSON, never pickle, to the member `receiver` of the run."""
    content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    dist.send(torch.tensor([content.numel()]), group=members(), group_dst=receiver)
    dist.send(content, group=members(), group_dst=receiver)


def receive_json(sender: int) -> Any:
    """Wait for a value from the member `sender` of the run."""
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, group=members(), group_src=sender)
    content = torch.zeros(int(length), dtype=torch.uint8)
    dist.recv(content, group=members(), group_src=sender)
    return json.loads(bytes(content.numpy()))


def broadcast_json(value: Json, sender: int, group: dist.ProcessGroup) -> Any:
    """Return the value of the process of global rank `sender`; all of the group call this."""
    content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    length = torch.tensor([content.numel()])
    dist.broadcast(length, sender, group=group)
    if dist.get_rank() != sender:
        content = torch.zeros(int(length), dtype=torch.uint8)
    dist.broadcast(content, sender, group=group)
    return json.loads(bytes(content.numpy()))


def worker_index() -> int:
    """Return the index of the worker to which this process belongs."""
    return dist.get_rank() // (_division.shards if _division else 1)


def shard_index() -> int:
    """Return the index of this process among those of its worker."""
    return dist.get_rank() % (_division.shards if _division else 1)


def local_rank() -> int:
    """Return the rank of this process on its machine, which chooses its accelerator. Without
    LOCAL_RANK it is the global rank, as on one machine.
    """
    return int(os.environ.get("LOCAL_RANK") or os.environ.get("RANK") or 0)


def draw_number(name: str) -> int:
    """Return 0, 1, 2, ... in the order of calls by all processes, separately for each `name`."""
    return run_store().add(name, 1) - 1


def numbers_drawn(name: str) -> int:
    """Return how many numbers of this name have been drawn."""
    return run_store().add(name, 0)


def run_store() -> dist.Store:  # pyright: ignore[reportPrivateImportUsage]
    """Return the store of the run, which survives the end of any of its processes."""
    return dist.distributed_c10d._get_default_store()  # torch has no public name for it


def _store(processes: int, timeout: datetime.timedelta) -> dist.Store:  # pyright: ignore
    if STORE in os.environ:
        store = dist.FileStore(os.environ[STORE], processes)  # pyright: ignore
        store.set_timeout(timeout)
        return store
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=timeout)  # pyright: ignore
    return dist.PrefixStore(os.environ[PART], store)  # pyright: ignore


def count_workers(workers: int, *, is_worker: bool) -> int:
    """Count the workers that take part by an all-reduce that all processes must join. Raises
    RuntimeError if the count is not `workers`.
    """
    counted = torch.tensor(int(is_worker))
    dist.all_reduce(counted)
    if int(counted) != workers:
        raise RuntimeError(f"workers: {workers} asked for, {int(counted)} training")
    return int(counted)


def leave() -> None:
    """Leave the group, if this process has joined one."""
    global _joined, _division
    _joined = _division = None
    if dist.is_initialized():
        dist.destroy_process_group()


def _group(ranks: Sequence[int]) -> dist.ProcessGroup:
    """Make a group for some members; all processes of the run must call this."""
    return cast("dist.ProcessGroup", dist.new_group(list(ranks)))


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def this_node() -> str:
    """Return a name that is equal for processes that can share memory and Unix sockets. The boot id
    alone would not do: containers may share a kernel, but not memory, and Unix sockets do not cross
    network namespaces.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {socket.gethostname()} {Path('/proc/self/ns/net').stat().st_ino}"


def cluster_interface() -> str:
    """Return the name of the interface to MASTER_ADDR, "lo" if that is local. gloo would choose the
    one to which the host's own name resolves, which may be loopback.
    """
    address = cluster_address()
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.split("%")[0] == address for each in addresses):
            if not psutil.net_if_stats()[name].isup:
                raise OSError(errno.ENETDOWN, f"the interface {name} is down")
            return name
    raise OSError(errno.EADDRNOTAVAIL, f"no interface has the address {address}")


def cluster_address() -> str:
    """Return the address of the interface to MASTER_ADDR; loopback if that is local."""
    return address_toward(os.environ.get("MASTER_ADDR", "127.0.0.1"))


def address_toward(host: str) -> str:
    """Return the address at which this machine and `host` reach each other."""
    if host in LOOPBACK:
        return "127.0.0.1"
    family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # only looks up the route: a datagram socket sends nothing yet
        return probe.getsockname()[0]
