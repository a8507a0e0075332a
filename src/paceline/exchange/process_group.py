"""The process group of one point: workers first, then servers."""

import datetime
import os

import torch
import torch.distributed as dist


def join(timeout_seconds: float, accelerator: str) -> None:
    """Join the group that the launcher's environment describes (RANK, WORLD_SIZE, MASTER_ADDR).

    gloo carries CPU tensors; NCCL is added where the accelerator is "cuda".
    """
    if dist.is_initialized():
        return
    backend = "cpu:gloo,cuda:nccl" if accelerator == "cuda" else "gloo"
    timeout = datetime.timedelta(seconds=timeout_seconds)
    # Loopback unless told otherwise: gloo listens on whatever the host name resolves to.
    if os.environ.get("MASTER_ADDR") in ("localhost", "127.0.0.1"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(backend, timeout=timeout)


def count_workers(workers: int, *, is_worker: bool) -> int:
    """The workers that really take part, by an all-reduce over every process of the point.

    All of them meet here. Raises RuntimeError where they are not as many as asked for.
    """
    counted = torch.tensor(int(is_worker))
    dist.all_reduce(counted)
    if int(counted) != workers:
        raise RuntimeError(f"workers: {workers} asked for, {int(counted)} training")
    return int(counted)


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
