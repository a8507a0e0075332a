"""A worker whose network is split over several processes: the part of one of them."""

import copy
from collections.abc import Collection, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from pytorch_lightning.plugins.precision import Precision
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.clock.snapshot import fill, flatten
from paceline.clock.split.network_plan import NetworkPlan, Tensors, network_of, plan_network
from paceline.clock.split.split_network import ShardGroup, split_network
from paceline.exchange.process_group import Division
from paceline.model.classifier import Classifier
from paceline.model.network_size import Sharding


class SplitWorker:
    """One process of a split worker.

    `trained`: module with this process's slices. `whole`: in the worker's first process the module
    with all weights. It takes no part in forward and backward: `gather` copies trained weights into
    it, or it is updated and `hand_out` sends its weights. In other processes it is `trained`.
    `module`: module to split, equal in all processes. `images`: a batch, for its shape. Raises
    SettingError for a module that cannot be split.
    """

    def __init__(self, module: Any, sharding: Sharding, division: Division, images: Tensor) -> None:
        network, (size, *image_shape) = network_of(module), images.shape
        self._plan = plan_network(network, sharding.split, sharding.shards, size, image_shape)
        self._division = division
        self._own = division.own
        self.shard = dist.get_rank(self._own)
        self.group = ShardGroup(self._own, self.shard, sharding.shards)
        own = split_network(network, self._plan, self.group)
        self.trained = copy.deepcopy(module, {id(network): own})
        self.whole = module if self.is_first else self.trained
        self.bytes_exchanged = (0, 0)  # of gradients and weights inside this worker
        self._seconds = 0.0

    @property
    def is_first(self) -> bool:
        """True in the process that communicates for its worker."""
        return self.shard == 0

    @property
    def shards(self) -> int:
        return self._division.shards

    def begin(self, precision: Precision) -> None:
        """Give all processes of the run the weights of the first, before training; all call this.
        `precision`: precision of the training, to which `whole` is converted.
        """
        if self.is_first:
            self._convert(precision)
            for weight in self.whole.parameters():
                dist.broadcast(weight.detach(), group=self._division.members, group_src=0)
            self.hand_out(goes_on=True)
        else:
            self.take()
        self.bytes_exchanged = (0, 0)

    def whole_optimizer(self, precision: Precision) -> Optimizer:
        """Return an optimizer for `whole`, in the first process, with the options of the one for
        `trained`. `precision`: as in `begin`.
        """
        self._convert(precision)
        optimizer = self.whole.configure_optimizers()
        assert isinstance(optimizer, Optimizer)  # as that of `trained`
        return optimizer

    def take_seconds(self) -> float:
        """Return the seconds in which activations were exchanged since the last call."""
        before, self._seconds = self._seconds, self.group.seconds
        return self._seconds - before

    def zero_gradient(self) -> None:
        for weight in self.trained.parameters():
            weight.grad = None

    def gather_gradient(self) -> None:
        """Give `whole` in the first process the worker's gradient and BatchNorm statistics; all
        processes of the worker call this.
        """
        own = {**self._gradients(), **dict(self.trained.network.named_buffers())}
        sent = (t for name, t in own.items() if name in {*self._plan.slices, *self._plan.summed})
        self._count(sum(tensor.nbytes for tensor in sent), to_first=True)
        found = gather_tensors(own, self._plan, self.group, self._plan.summed)
        if found is not None:
            for name, weight in self.whole.network.named_parameters():
                weight.grad = found[name]
            for name, buffer in self.whole.network.named_buffers():
                buffer.copy_(found[name])

    @torch.no_grad()
    def hand_out(self, goes_on: bool) -> None:
        """Send to all processes of the worker the weights of `whole`, and whether a step follows.
        The first process calls this; the other processes call `take`.
        """
        weights = dict(self.whole.network.named_parameters())
        sliced = {name: weight for name, weight in weights.items() if name in self._plan.slices}
        common = [weight for name, weight in weights.items() if name not in sliced]
        flag = self._like.new_full((1,), float(goes_on))
        parts = (self._plan.slices_of(sliced, shard).values() for shard in range(self.shards))
        self._scatter([self._vector([flag, *common, *part]) for part in parts])

    @torch.no_grad()
    def take(self) -> bool:
        """Receive the weights that the first process sends; return True if a step follows."""
        return self._scatter(None)

    @torch.no_grad()
    def gather(self) -> None:
        """Update `whole` in the first process; all processes of the worker call this."""
        state = gather_state(self.trained.network, self._plan, self.group)
        if state is not None:
            self.whole.network.load_state_dict(state)

    def mean_gradient(self, workers: int) -> None:
        """Replace the gradient by the mean over all `workers`; all processes of the run call this.
        Gradients of layers divided by images are also summed over each worker's processes.
        """
        gradients = self._gradients()
        for together, group in ((True, dist.group.WORLD), (False, self._division.alike)):
            part = [g for name, g in gradients.items() if (name in self._plan.summed) == together]
            if part:
                total = self._vector(part)
                dist.all_reduce(total, group=group)
                fill(part, total.div_(workers))

    def num_averaged(self) -> tuple[int, int]:
        """Return how many weights are averaged over all processes of the run, and how many only
        over the processes with the same slices.
        """
        step = self._plan.step
        return step.summed, step.sliced + step.repeated

    def is_finite(self) -> bool:
        """Return True if all weights of the worker are finite; all its processes call this."""
        weights = self.trained.parameters()
        finite = torch.tensor(float(all(bool(each.isfinite().all()) for each in weights)))
        dist.all_reduce(finite, dist.ReduceOp.MIN, self._own)
        return bool(finite)

    @property
    def _like(self) -> Tensor:
        return next(self.trained.parameters()).detach()

    def _vector(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return a copy of all `tensors` as one vector."""
        size = sum(tensor.numel() for tensor in tensors)
        return flatten(tensors, self._like.new_empty(size))

    def _gradients(self) -> dict[str, Tensor]:
        return {
            name: torch.zeros_like(weight) if weight.grad is None else weight.grad
            for name, weight in self.trained.network.named_parameters()
        }

    def _convert(self, precision: Precision) -> None:
        self.whole = cast("Classifier", precision.convert_module(self.whole))
        self.whole.to(self._like.device)

    def _scatter(self, parts: list[Tensor] | None) -> bool:
        """Receive this process's part: a flag, which is returned, and weights."""
        named = self.trained.network.named_parameters()
        weights = [weight for _, weight in sorted(named, key=lambda w: w[0] in self._plan.slices)]
        own = self._like.new_empty(1 + sum(weight.numel() for weight in weights))
        dist.scatter(own, parts, group_src=0, group=self._own)
        self._count(own.nbytes, to_first=False)
        fill(weights, own[1:])
        return bool(own[0])

    def _count(self, num_bytes: int, *, to_first: bool) -> None:
        """Count a message from each other process to the first, or from the first to each other."""
        sent, received = self.bytes_exchanged
        times = self.shards - 1 if self.is_first else 1
        if to_first == self.is_first:
            received += times * num_bytes
        else:
            sent += times * num_bytes
        self.bytes_exchanged = sent, received


@torch.no_grad()
def gather_state(
    network: nn.Module, plan: NetworkPlan, group: ShardGroup
) -> dict[str, Tensor] | None:
    """Return copies of the whole state of a divided network in shard 0, and None elsewhere. All
    processes of the group call this; bytes are not counted.
    """
    own = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    return gather_tensors(own, plan, group)


@torch.no_grad()
def gather_tensors(
    own: Tensors, plan: NetworkPlan, group: ShardGroup, summed: Collection[str] = ()
) -> dict[str, Tensor] | None:
    """Return the whole tensors in shard 0, from the parts `own` of all processes, and None
    elsewhere. All processes of the group call this. Tensors that `plan` cuts into slices are
    joined, those named in `summed` are added, and all others are those of shard 0.
    """
    names = [name for name in own if name in plan.slices or name in summed]
    if not names:
        return dict(own) if group.shard == 0 else None
    sizes = [own[name].numel() for name in names]
    vectors = group.collect(torch.cat([own[name].reshape(-1) for name in names]))
    if vectors is None:
        return None
    views = [zip(names, torch.split(vector, sizes), strict=True) for vector in vectors]
    parts = [{**own, **{name: view.view_as(own[name]) for name, view in each}} for each in views]
    totals = {name: torch.stack([part[name] for part in parts]).sum(0) for name in summed}
    return plan.joined(parts) | totals
