"""Copies of the shared weights after given numbers of samples, for later evaluation, and their
moving average.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from paceline.exchange.process_group import members, receive_json, send_json
from paceline.scheme.rule import AbstractScheme


@dataclass(frozen=True)
class Snapshot:
    """Weights and BatchNorm statistics, in the order of the network's own lists. `weights` [1 or 2,
    n]: the weights, and their moving average if there is one. `statistics`: one vector. `samples`,
    `updates`: numbers over all workers. `seconds`: time of the training clock.
    """

    samples: int
    updates: int
    seconds: float
    weights: Tensor
    statistics: Tensor

    def is_finite(self) -> bool:
        return bool(self.weights.isfinite().all())


def state_of(snapshots: Sequence[Snapshot]) -> list[dict[str, Any]]:
    """Return snapshots as values for a checkpoint."""
    return [vars(snapshot) for snapshot in snapshots]


def statistics_of(module: nn.Module, moving: Collection[str] = ()) -> list[Tensor]:
    """Return the floating-point buffers: running means and variances of BatchNorm. After them come
    the parameters named in `moving`, which change although no optimizer holds them, as a moving
    average of the weights does.
    """
    buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
    return [*buffers, *(weight for name, weight in module.named_parameters() if name in moving)]


def counters_of(module: nn.Module) -> list[Tensor]:
    """Return the other buffers: BatchNorm's number of batches, masks, indices."""
    return [buffer for buffer in module.buffers() if not buffer.is_floating_point()]


def fill(tensors: Sequence[Tensor], values: Tensor) -> None:
    """Copy one vector into consecutive tensors."""
    for tensor, part in zip(tensors, torch.split(values, _sizes(tensors)), strict=True):
        tensor.data.copy_(part.view_as(tensor))


@torch.no_grad()
def flatten(tensors: Sequence[Tensor], into: Tensor) -> Tensor:
    """Copy tensors into the vector `into`, which keeps its device and dtype; return it."""
    if all(t.dtype == into.dtype and t.device == into.device for t in tensors):
        flat = [t if t.dim() == 1 else t.reshape(-1) for t in tensors]
        return torch.cat(flat, out=into) if flat else into  # in each push: one call into torch
    for tensor, part in zip(tensors, torch.split(into, _sizes(tensors)), strict=True):
        part.copy_(tensor.reshape(-1))
    return into


def _sizes(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.numel() for tensor in tensors]


def decay_per_sample(decay: float, reference_batch_size: int) -> float:
    """Return d^(1/B) for a decay d over B images of all workers. A moving average then keeps the
    share d^(n/B) of itself over n images, however many updates these are, so that schemes whose
    updates differ in size average over equally many images.
    """
    return decay ** (1 / reference_batch_size)


class MovingAverage:
    """Average a of weights w that change: a <- q a + (1 - q) w, where q = sample_decay^images. It
    begins as a copy of `weights`. With a decay of 0 it equals the weights.
    """

    def __init__(self, weights: Sequence[Tensor], sample_decay: float) -> None:
        self.weights = [weight.detach().clone() for weight in weights]
        self._decay = sample_decay

    @classmethod
    def begun(cls, weights: Sequence[Tensor], sample_decay: float | None) -> "MovingAverage | None":
        """Begin an average of these weights; None without a decay."""
        return None if sample_decay is None else cls(weights, sample_decay)

    def update(self, weights: Sequence[Tensor], images: int) -> None:
        """Take in weights that changed during `images` images of all workers."""
        get_ema_multi_avg_fn(self._decay**images)(self.weights, list(weights), 0)

    def fork(self) -> "MovingAverage":
        """Return a separate average that continues from this one."""
        return MovingAverage(self.weights, self._decay)


def scored_weights(weights: Tensor, average: MovingAverage | None) -> Tensor:
    """Return copies of the vector `weights` [n] and of its average, if any: [1 or 2, n]."""
    return torch.stack([weights, *(average.weights if average else ())])


def send_snapshot(snapshot: Snapshot, receiver: int) -> None:
    """Send a snapshot to the member `receiver` of the run."""
    header = {
        "samples": snapshot.samples,
        "updates": snapshot.updates,
        "seconds": snapshot.seconds,
        "dtype": str(snapshot.weights.dtype).removeprefix("torch."),
        "shape": list(snapshot.weights.shape),
        "num_statistics": snapshot.statistics.numel(),
    }
    send_json(header, receiver)
    content = torch.cat([snapshot.weights.reshape(-1), snapshot.statistics])
    dist.send(content, group=members(), group_dst=receiver)


def receive_snapshots(sender: int) -> list[Snapshot]:
    """Receive snapshots from the member `sender` of the run until it sends None."""
    snapshots: list[Snapshot] = []
    while (header := receive_json(sender)) is not None:
        shape, dtype = header.pop("shape"), getattr(torch, header.pop("dtype"))
        sizes = [math.prod(shape), header.pop("num_statistics")]
        content = torch.empty(sum(sizes), dtype=dtype)
        dist.recv(content, group=members(), group_src=sender)
        weights, statistics = torch.split(content, sizes)
        snapshots.append(Snapshot(**header, weights=weights.view(shape), statistics=statistics))
    return snapshots


def join_shards(shards: list[Snapshot]) -> Snapshot:
    """Concatenate the snapshots of all servers in order; samples and time are server 0's."""
    first = shards[0]
    weights = torch.cat([shard.weights for shard in shards], dim=1)
    return Snapshot(first.samples, first.updates, first.seconds, weights, first.statistics)


def evaluated_weights(scheme: AbstractScheme, *, averaged: bool) -> str:
    """Name the weights and the BatchNorm statistics that a snapshot of a run contains. `averaged`:
    it also has a moving average. BatchNorm statistics are never averaged over time.
    """
    if scheme.servers:
        weights = "the servers' center" if scheme.own_weights else "weights at the servers"
    elif scheme.claim(1) == "synchronous":
        weights = "weights shared by all workers"
    else:
        weights = "mean over workers' weights"
    latest = "' latest" if scheme.servers else ""
    average = "; beside them their moving average, by samples" if averaged else ""
    return f"{weights}; BatchNorm statistics: mean over workers{latest}{average}"


def weights_digest(weights: Iterable[Tensor]) -> str:
    """Return the SHA-256 of all weights in order, as single-precision numbers."""
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()
