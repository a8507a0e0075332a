"""Model of the memory that a training step needs, by batch size.

    peak = weights + gradients + optimizer's state + images + saved tensors + workspace

A step on fake tensors counts each part from shapes, without the memory, so that it tells what a
batch needs that does not fit. Only convolutions on a CPU are carried out, one at a time, since
their workspace differs between processors. Zou 2017 (doi 10.1007/978-3-319-69179-4_2) counts the
same parts from layers' sizes; here autograd itself says what it saves, and the workspace is
whatever else is alive at the peak.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.optim import Optimizer

from paceline.errors import SettingError
from paceline.planning.allocations import Allocations


@dataclass(frozen=True)
class StepMemory:
    """Bytes of a step's parts. `weights`: with the network's buffers. `images`: with labels.

    `saved`: by autograd between forward and backward, each storage once. `workspace`: what else is
    alive at the peak. `update_peak`: the peak while the optimizer updates weights.
    """

    weights: int
    gradients: int
    optimizer: int
    images: int
    saved: int
    workspace: int
    update_peak: int

    @property
    def peak(self) -> int:
        parts = [getattr(self, each.name) for each in fields(self) if each.name != "update_peak"]
        return sum(parts)

    def with_libraries(self, allocated: int) -> "StepMemory":
        """Return it with what libraries hold besides, of a step whose measured peak is `allocated`.

        That is workspace of cuBLAS and cuDNN on a GPU, which no shape tells: cuBLAS keeps 68 MB for
        good on an H200.
        """
        more = max(0, allocated - self.peak)
        return replace(self, workspace=self.workspace + more, update_peak=self.update_peak + more)


class Step:
    """Training steps of a module on random images, in the order of Lightning's loop.

    `keeps_gradients`: gradients are zeroed, not freed: under DDP they are views of its buckets, and
    under servers of a vector. Raises SettingError("model") for a module without one optimizer.
    """

    def __init__(
        self,
        module: LightningModule,
        image_shape: Sequence[int],
        batch_size: int,
        *,
        keeps_gradients: bool = False,
    ) -> None:
        device = next(module.parameters()).device
        images = torch.randn(batch_size, *image_shape, device=device)
        self.batch = images, torch.zeros(batch_size, dtype=torch.long, device=device)
        self.module, self._keeps_gradients = module, keeps_gradients
        optimizer = module.configure_optimizers()
        if not isinstance(optimizer, Optimizer):
            raise SettingError("model", "one optimizer is needed for a plan, and no scheduler")
        self.optimizer = optimizer

    def forward(self) -> Tensor:
        """Return the loss, a scalar."""
        return self.module.training_step(self.batch, 0)  # pyright: ignore[reportReturnType]

    def backward(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=not self._keeps_gradients)
        loss.backward()

    def take(self) -> None:
        self.backward(self.forward())
        self.optimizer.step()


def count_memory(
    module: LightningModule,
    image_shape: Sequence[int],
    batch_size: int,
    *,
    keeps_gradients: bool = False,
) -> StepMemory:
    """Count the memory of a step with `batch_size` images [C, H, W]; `Step` has the arguments.

    The module is left as it is. Raises SettingError("model") as `Step` does.
    """
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        copied = deepcopy(module)
    with mode, Allocations() as allocated:
        own = [*copied.parameters(), *copied.buffers()]
        allocated.add(own)
        weights = allocated.current
        step = Step(copied, image_shape, batch_size, keeps_gradients=keeps_gradients)
        images = allocated.current - weights
        step.take()  # makes gradients and the optimizer's state
        saved = _saved(step, [*own, *step.batch])
        return _second_step(step, allocated, weights, images, saved)


def _second_step(
    step: Step, allocated: Allocations, weights: int, images: int, saved: int
) -> StepMemory:
    gradients = sum(each.grad.nbytes for each in _trained(step.module) if each.grad is not None)
    optimizer = allocated.current - weights - images - gradients
    allocated.forget_peak()
    step.backward(step.forward())
    peak = allocated.peak
    allocated.forget_peak()
    step.optimizer.step()
    update_peak = allocated.peak
    constant = weights + gradients + optimizer + images
    workspace = max(peak, update_peak) - constant - saved
    return StepMemory(weights, gradients, optimizer, images, saved, workspace, update_peak)


def _saved(step: Step, own: Sequence[Tensor]) -> int:
    """Return the bytes that autograd saves in a forward pass, without the storages of `own`."""
    known = {each.untyped_storage()._cdata for each in own}
    found: dict[int, Any] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        found[storage._cdata] = storage  # held, so that its identity is not used again
        return tensor.detach()  # the tensor itself would keep its own graph alive

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = step.forward()
    del loss
    return sum(storage.nbytes() for key, storage in found.items() if key not in known)


def _trained(module: LightningModule) -> list[torch.nn.Parameter]:
    return [each for each in module.parameters() if each.requires_grad]
