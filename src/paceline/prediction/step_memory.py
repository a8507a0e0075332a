"""Memory that a training step needs, counted from shapes for a batch size, or measured.

    peak = weights + gradients + optimizer's state + images + saved tensors + workspace

A step on torch's fake tensors, which have shapes but no memory, counts each part. So batches that
do not fit into memory can be counted. Only convolutions on a CPU are computed, one at a time, since
their workspace differs between processors. Zou 2017 (doi 10.1007/978-3-319-69179-4_2) counts the
same parts from layers' sizes; here autograd reports what it saves, and the workspace is all other
memory in use at the peak.
"""

import json
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode, unset_fake_temporarily
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from paceline.errors import SettingError

_PHASE, _ENDED = "phase of work", object()
_WORKSPACES: dict[str, int] = {}  # of convolutions, by function and arguments
_CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)


class Phase(NamedTuple):
    """Bytes of a phase of work: `peak` while it runs, and `left` at its end."""

    peak: int
    left: int


@dataclass(frozen=True)
class StepMemory:
    """Bytes of a step's parts: `weights` include the network's buffers, `images` the labels.

    `saved`: bytes that autograd saves from forward to backward. `workspace`: all other bytes in use
    at the peak. `update_peak`: peak while the optimizer updates weights.
    """

    weights: int
    gradients: int
    optimizer: int
    images: int
    saved: int
    workspace: int
    update_peak: int

    @property
    def constant(self) -> int:
        """Bytes that exist in all steps but the first, whatever the plan."""
        return self.weights + self.gradients + self.optimizer + self.images

    @property
    def peak(self) -> int:
        return self.constant + self.saved + self.workspace

    def with_libraries(self, allocated: int) -> "StepMemory":
        """Add what libraries hold, given the measured peak of a step.

        This is workspace of cuBLAS and cuDNN on a GPU, which does not follow from shapes.
        """
        more = max(0, allocated - self.peak)
        return replace(self, workspace=self.workspace + more, update_peak=self.update_peak + more)


class Step:
    """Training steps of a module on random images, in the order of Lightning's loop.

    `keeps_gradients`: set gradients to zero instead of freeing them, as DDP and servers do, which
    hold them in one vector. Raises SettingError("model") unless the module has one optimizer only.
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

    The module is not changed. Raises SettingError("model") as `Step` does.
    """
    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        copied = deepcopy(module)
    with mode, _Allocations() as allocated:
        own = [*copied.parameters(), *copied.buffers()]
        allocated.add(own)
        weights = allocated.current
        step = Step(copied, image_shape, batch_size, keeps_gradients=keeps_gradients)
        images = allocated.current - weights
        step.take()  # makes gradients and the optimizer's state
        saved = _saved(step, [*own, *step.batch])
        trained = [each for each in copied.parameters() if each.requires_grad]
        gradients = sum(each.grad.nbytes for each in trained if each.grad is not None)
        optimizer = allocated.current - weights - images - gradients
        peak = allocated.peak_of(lambda: step.backward(step.forward()))
        update_peak = allocated.peak_of(step.optimizer.step)
    counted = StepMemory(weights, gradients, optimizer, images, saved, 0, update_peak)
    return replace(counted, workspace=max(peak, update_peak) - counted.peak)


def measure_peak(take: Callable[[], None]) -> int:
    """Return the most bytes of a GPU's allocator in the second of two steps.

    The first step makes gradients and the optimizer's state.
    """
    take()
    torch.cuda.reset_peak_memory_stats()
    take()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def phases_on_cpu(work: Iterator[None]) -> list[Phase]:
    """Run work whose phases end at each `yield`; return their bytes above those at the start.

    The bytes are sums of the CPU allocator's events. They include what an operator allocates and
    frees while it runs, which differs between processors.
    """
    # acc_events: torch 2.11 warns of a process's second profile that it forgets the first
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profiler:
        running = True
        while running:
            with record_function(_PHASE):
                running = next(work, _ENDED) is not _ENDED
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    starts = sorted(each["ts"] for each in events if each["name"] == _PHASE)
    changes = sorted(
        (each for each in events if each["name"] == "[memory]"), key=lambda each: each["ts"]
    )
    cuts = [*np.searchsorted([each["ts"] for each in changes], starts), len(changes)]
    totals = np.cumsum([0, *(each["args"]["Bytes"] for each in changes)])
    totals -= totals[cuts[0]]
    return [Phase(int(totals[a : b + 1].max()), int(totals[b])) for a, b in pairwise(cuts)]


def phases_by_operation(work: Iterator[None], held: Iterable[Tensor]) -> list[Phase]:
    """Run work whose phases end at each `yield`; return their bytes above those of `held`."""
    found, running = list[Phase](), True
    with _Allocations() as allocated:
        allocated.add(held)
        before = allocated.current
        while running:
            allocated.peak = allocated.current
            running = next(work, _ENDED) is not _ENDED
            found.append(Phase(allocated.peak - before, allocated.current - before))
    return found


class _Allocations(TorchDispatchMode):
    """Context that counts the bytes that operations allocate: `current` ones, and their `peak`.

    A storage, real or fake, counts from the operation that returns it until nothing refers to it.
    What an operation allocates while it runs is not seen, except for convolutions on a CPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self._live: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        returned = func(*args, **(kwargs or {}))
        self.add(each for each in tree_leaves(returned) if isinstance(each, Tensor))
        self.peak = max(self.peak, self.current + _workspace(func, args))
        return returned

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Count these tensors' storages, unless they are counted already."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if (key := storage._cdata) not in self._live:
                size = storage.nbytes()
                self.current += size
                self._live[key] = weakref.ref(storage, partial(self._release, key, size))

    def peak_of(self, work: Callable[[], Any]) -> int:
        self.peak = self.current
        work()
        return self.peak

    def _release(self, key: int, size: int, _: object) -> None:
        self.current -= size
        del self._live[key]


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


def _workspace(func: Any, args: tuple[Any, ...]) -> int:
    """Return the bytes that a convolution on a CPU allocates besides its result.

    They depend on the processor, so it is carried out once on zeros of these shapes.
    """
    if func not in _CONVOLUTIONS or args[0].device.type != "cpu":
        return 0
    shapes = [(*each.shape, each.stride(), each.dtype) for each in args if isinstance(each, Tensor)]
    key = repr((func, shapes, [each for each in args if not isinstance(each, Tensor)]))
    if key not in _WORKSPACES:
        with unset_fake_temporarily():
            _, during, _ = phases_on_cpu(_on_zeros(func, args))
        _WORKSPACES[key] = during.peak - during.left
    return _WORKSPACES[key]


def _on_zeros(func: Any, args: tuple[Any, ...]) -> Iterator[None]:
    zeros = [
        torch.empty_strided(each.shape, each.stride(), dtype=each.dtype).zero_()
        if isinstance(each, Tensor)
        else each
        for each in args
    ]
    yield
    returned = func(*zeros)
    yield
    del returned
