"""Engines that compute the steps of virtual workers without Lightning's loop.

A wave is a set of workers that compute at one moment, each on its own weights. An engine fills each
worker's `ahead`: the gradient, the statistics after the step, and the loss. Engines need a module
whose training step is a pure function of weights, buffers and batch, which declares that by the
class attribute `pure_training_step = True`: it logs nothing, and draws no random numbers but those
of dropout layers, which are given with its batch.

    vmap     torch.func differentiates chunks of workers as one; on a GPU each size is a CUDA graph
    graph    waves of one, the worker that is due; on a GPU as a CUDA graph
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules import batchnorm
from torch.utils import _pytree

from paceline.clock.flat_weights import gather_gradients, zero_gradients
from paceline.clock.training_strategy import loss_of
from paceline.clock.virtual.dropout_streams import DropoutStreams, given
from paceline.clock.virtual.execution import Ahead, WorkerVectors
from paceline.clock.virtual.stacked_convolution import ByMatrices

EngineName = Literal["auto", "one_by_one", "graph", "vmap"]
MOST = 64  # workers in a chunk
_WARMUP = 2  # calls before a graph is captured
_ALPHA_DROPOUT = (nn.AlphaDropout, nn.FeatureAlphaDropout)
_BATCH_NORM: Any = batchnorm._BatchNorm  # pyright: ignore[reportPrivateUsage]
_HOOKS = (
    "backward",
    "configure_gradient_clipping",
    "on_after_backward",
    "on_before_backward",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "on_train_batch_end",
    "on_train_batch_start",
    "on_train_epoch_end",
    "on_train_epoch_start",
    "optimizer_step",
    "optimizer_zero_grad",
)


class Trained:
    """A module with what an engine needs of it. `weights`, `statistics`, `counters`: its trained
    weights, floating-point buffers and other buffers, in the order of a worker's vectors.
    `dropout`: streams of its dropout layers. `precision()`: context of a forward pass. `clip`:
    largest norm or value of a gradient, see Trainer.gradient_clip_val; None for no limit.
    """

    def __init__(
        self,
        module: LightningModule,
        weights: Sequence[nn.Parameter],
        statistics: Sequence[Tensor],
        counters: Sequence[Tensor],
        *,
        dropout: DropoutStreams,
        precision: Callable[[], AbstractContextManager[Any]],
        clip: float | None,
        clip_by_value: bool,
    ) -> None:
        self.module, self.dropout, self.precision = module, dropout, precision
        self.weights, self.statistics, self.counters = weights, statistics, counters
        self._clip, self._by_value = clip, clip_by_value
        self._kept = [*statistics, *counters]
        places = {
            id(tensor): (held, name)
            for part in module.modules()
            for held in (part._parameters, part._buffers)  # pyright: ignore[reportPrivateUsage]
            for name, tensor in held.items()
        }
        self._places: list[tuple[Any, str]] = [places[id(tensor)] for tensor in self._kept]

    def settle(self) -> None:
        """Copy what the module has put in the place of a buffer, or of its content, into the memory
        to which `refer_to` has made the buffer refer.
        """
        kept = zip(self._places, self._kept, self._memory, strict=True)
        for (held, name), tensor, memory in kept:
            now = held[name]
            if now is not tensor:
                held[name] = tensor
            if now.data_ptr() != memory.data_ptr():
                memory.copy_(now.detach())
                tensor.data = memory

    def why_not(self) -> str:
        """Return the reason why no engine can compute the module's steps; "" if there is none."""
        module: Any = self.module
        if not getattr(module, "pure_training_step", False):
            return "it does not declare pure_training_step = True"
        for name, part in module.named_modules():
            kind = type(part).__name__
            if isinstance(part, _ALPHA_DROPOUT) and part.p > 0:
                return f"its {name} ({kind}) draws from one stream of random numbers"
            if isinstance(part, _BATCH_NORM) and part.momentum is None:
                return f"its {name} ({kind}) has statistics that depend on their number"
        for hook in _HOOKS:
            if is_overridden(hook, module, parent=LightningModule):
                return f"its hook {hook} would not be called for each step"
        dtypes = {each.dtype for each in self.statistics}
        return f"its buffers have {len(dtypes)} dtypes" if len(dtypes) > 1 else ""

    @torch.no_grad()
    def limit(self, gradients: Tensor) -> None:
        """Clip gradients [n, num_weights] in place, each worker's as its Trainer would."""
        if not self._clip:
            return
        if self._by_value:
            gradients.clamp_(-self._clip, self._clip)
        else:
            norms = gradients.square().sum(1, keepdim=True).sqrt()
            gradients.mul_((self._clip / (norms + 1e-6)).clamp_(max=1.0))

    def refer_to(self, weights: Tensor, statistics: Tensor, counters: Sequence[Tensor]) -> None:
        """Make the module's tensors refer to these, without a copy."""
        self._memory = [*views_of(statistics, self.statistics), *counters]
        views = [*views_of(weights, self.weights), *self._memory]
        held = [*self.weights, *self._kept]
        for tensor, view in zip(held, views, strict=True):
            tensor.data = view

    def begin_gradient(self, gradient: Tensor) -> None:
        """Make backward add to `gradient`, so that gradients exist once."""
        self._gradients = views_of(gradient, self.weights)
        zero_gradients(gradient, self.weights, self._gradients)

    def end_gradient(self) -> None:
        """Complete the gradient, to which nothing is added from now on."""
        gather_gradients(self.weights, self._gradients)
        self._gradients = []
        for weight in self.weights:
            weight.grad = None

    def step(self, batch: Any, gradient: Tensor) -> Tensor:
        """Write the gradient of a batch, at the module's weights; return the loss. `batch`: with
        the numbers of its dropout layers.
        """
        batch, noise = batch
        self.begin_gradient(gradient)
        with self.precision(), given(noise):
            loss = loss_of(self.module.training_step(batch, 0))
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        self.end_gradient()
        self.settle()
        self.limit(gradient[None])
        return loss.detach()


class AbstractEngine(ABC):
    """Computes waves. `increments`: growth of each counter of the module in a step, once known."""

    name: EngineName
    in_waves = True  # of all workers that compute at one moment, not of one
    _most = 1  # workers that are computed at once

    def __init__(self, trained: Trained, num_workers: int) -> None:
        self._trained = trained
        self.increments: list[Tensor] = []

    def compute(self, wave: Sequence[WorkerVectors], batches: Any) -> None:
        """Fill each worker's `ahead`. `batches`: theirs with dropout numbers, [workers, ...]."""
        for first in range(0, len(wave), self._most):
            chunk = wave[first : first + self._most]
            self._compute(chunk, part_of(batches, slice(first, first + len(chunk))))

    @abstractmethod
    def _compute(self, chunk: Sequence[WorkerVectors], batches: Any) -> None:
        """Compute at most `_most` workers."""


class VmapEngine(AbstractEngine):
    """Differentiates the steps of up to `MOST` workers as one function of stacked vectors. On a GPU
    chunks have sizes that are powers of two, each with a graph; unused rows are of earlier waves.
    """

    name = "vmap"

    def __init__(self, trained: Trained, num_workers: int) -> None:
        super().__init__(trained, num_workers)
        self._most = min(MOST, num_workers)
        self._loss = _Loss(trained.module)
        names = {id(weight): name for name, weight in self._loss.named_parameters()}
        self._weights = [(names[id(each)], each.shape) for each in trained.weights]
        names = {id(buffer): name for name, buffer in self._loss.named_buffers()}
        self._statistics = [(names[id(each)], each.shape) for each in trained.statistics]
        # copies, since graphs refer to them for as long as they are replayed
        self._counters = [(names[id(each)], each.clone()) for each in trained.counters]
        rows: Any = (0, (0, 0, None))  # the counters are those of all workers
        self._function = vmap(grad(self._of_one, has_aux=True), out_dims=rows)
        self._chunks: dict[int, _Captured] = {}
        self._inputs: list[Any] | None = None  # of the captured chunks
        self._pool: Any = None  # memory that the graphs share

    @torch.no_grad()
    def _compute(self, chunk: Sequence[WorkerVectors], batches: Any) -> None:
        weights = [_weights_of(worker) for worker in chunk]
        statistics = [worker.statistics for worker in chunk]
        if weights[0].device.type == "cuda":
            outputs = self._replay(weights, statistics, batches)
        else:
            outputs = self._call(torch.stack(weights), torch.stack(statistics), batches)
        gradients, losses, after, counts = outputs
        if not self.increments:
            pairs = zip(counts, self._counters, strict=True)
            self.increments = [now - before for now, (_, before) in pairs]
        results = [worker.ahead for worker in chunk if worker.ahead is not None]
        size = len(results)
        _copy_all([each.gradient for each in results], [*gradients[:size].unbind()])
        if self._statistics:
            _copy_all([each.statistics for each in results], [*after[:size].unbind()])
        first = results[0].loss  # the losses of a wave lie in one vector
        first.as_strided((size,), (1,), first.storage_offset()).copy_(losses[:size])

    def _call(self, weights: Tensor, statistics: Tensor, batches: Any) -> tuple[Any, ...]:
        """Return gradients, losses, statistics and counters of stacked workers."""
        with torch.enable_grad(), self._trained.precision(), ByMatrices():
            gradients, (losses, after, counts) = self._function(weights, statistics, batches)
        self._trained.limit(gradients)
        return gradients, losses, after, counts

    def _of_one(self, weights: Tensor, statistics: Tensor, batch: Any) -> tuple[Tensor, Any]:
        held = {name: part.clone() for name, part in _cut(statistics, self._statistics).items()}
        counts = {name: counter.clone() for name, counter in self._counters}
        tensors = {**_cut(weights, self._weights), **held, **counts}
        batch, noise = batch
        with given(noise):
            loss = loss_of(functional_call(self._loss, tensors, (batch,)))
        after = [part.flatten() for part in held.values()]
        joined = torch.cat(after) if after else statistics
        return loss, (loss.detach(), joined, [*counts.values()])

    def _replay(self, weights: list[Tensor], statistics: list[Tensor], batches: Any) -> Any:
        size = len(weights)
        room = 1 << (size - 1).bit_length()
        if self._inputs is None:
            rows = 1 << (self._most - 1).bit_length()
            self._inputs = [
                weights[0].repeat(rows, 1),
                statistics[0].repeat(rows, 1),
                mapped(lambda each: each[:1].repeat(rows, *[1] * (each.dim() - 1)), batches),
            ]
        inputs = self._inputs
        _copy_all([*inputs[0][:size].unbind()], weights)
        if self._statistics:
            _copy_all([*inputs[1][:size].unbind()], statistics)
        _copy_all([each[:size] for each in _tensors(inputs[2])], _tensors(batches))
        if room not in self._chunks:
            cut = [part_of(part, slice(room)) for part in inputs]
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            self._chunks[room] = _Captured(lambda: self._call(*cut), self._pool)
        return self._chunks[room].replay()


class GraphEngine(AbstractEngine):
    """Computes the worker that is due: on a GPU in static buffers, by replaying a graph."""

    name = "graph"
    in_waves = False

    def __init__(self, trained: Trained, num_workers: int) -> None:
        super().__init__(trained, num_workers)
        self._counters = [each.clone() for each in trained.counters]
        self._inputs: list[Any] = []  # weights, statistics and batch of the graph
        self._captured: _Captured | None = None

    def _compute(self, chunk: Sequence[WorkerVectors], batches: Any) -> None:
        (worker,), batch = chunk, part_of(batches, 0)
        ahead = worker.ahead
        assert ahead is not None
        before = None if self.increments else [each.clone() for each in self._counters]
        weights = _weights_of(worker)
        if weights.device.type == "cuda":
            self._replay([weights, worker.statistics, batch], ahead)
        else:
            ahead.statistics.copy_(worker.statistics)
            ahead.loss.copy_(self._step(weights, ahead.statistics, batch, ahead.gradient))
        if before is not None:
            pairs = zip(self._counters, before, strict=True)
            self.increments = [now - then for now, then in pairs]

    def _step(self, weights: Tensor, statistics: Tensor, batch: Any, gradient: Tensor) -> Tensor:
        self._trained.refer_to(weights, statistics, self._counters)
        return self._trained.step(batch, gradient)

    def _replay(self, inputs: list[Any], ahead: Ahead) -> None:
        if self._captured is None:
            begun = [each.clone() for each in self._counters]
            self._inputs = mapped(torch.clone, inputs)
            self._gradient = torch.empty_like(ahead.gradient)
            weights, statistics, batch = self._inputs
            self._captured = _Captured(
                partial(self._step, weights, statistics, batch, self._gradient)
            )
            for counter, first in zip(self._counters, begun, strict=True):
                counter.copy_(first)
        _copy_all(_tensors(self._inputs), _tensors(inputs))
        ahead.loss.copy_(self._captured.replay())
        ahead.statistics.copy_(self._inputs[1])
        ahead.gradient.copy_(self._gradient)


class _Loss(nn.Module):
    """The training step of a module as a forward pass."""

    def __init__(self, module: LightningModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Any) -> Any:
        return self.module.training_step(batch, 0)


class _Captured:
    """A CUDA graph of a function without arguments. Its results, which `replay` returns, are valid
    until this graph, or another with the same memory `pool`, is replayed.
    """

    def __init__(self, function: Callable[[], Any], pool: Any = None) -> None:
        cudnn: Any = torch.backends.cudnn
        collects = gc.isenabled()
        before = cudnn.deterministic, cudnn.benchmark
        cudnn.deterministic, cudnn.benchmark = True, False  # what gives the same bits each time
        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARMUP):
                    function()
            torch.cuda.current_stream().wait_stream(stream)
            gc.disable()  # a graph that is freed while another is captured spoils it
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, pool=pool):
                self._results = function()
        finally:
            cudnn.deterministic, cudnn.benchmark = before
            if collects:
                gc.enable()

    def replay(self) -> Any:
        self._graph.replay()
        return self._results


def views_of(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return consecutive parts of a vector with the shapes of `like`."""
    parts = torch.split(vector, [tensor.numel() for tensor in like])
    return [part.view_as(each) for part, each in zip(parts, like, strict=True)]


def _cut(vector: Tensor, parts: Sequence[tuple[str, torch.Size]]) -> dict[str, Tensor]:
    """Return consecutive parts of a vector by name, each in its shape."""
    cut = torch.split(vector, [shape.numel() for _, shape in parts])
    return {name: part.view(shape) for (name, shape), part in zip(parts, cut, strict=True)}


def mapped(function: Callable[[Tensor], Tensor], batches: Any) -> Any:
    return _pytree.tree_map(function, batches)


def part_of(batches: Any, rows: slice | int) -> Any:
    """Return some rows of all tensors of stacked batches."""
    return mapped(lambda each: each[rows], batches)


def _tensors(batches: Any) -> list[Tensor]:
    return _pytree.tree_leaves(batches)


def _copy_all(into: list[Tensor], values: Sequence[Tensor]) -> None:
    """Copy tensors into others, on a GPU by few launches."""
    torch._foreach_copy_(into, list(values))  # pyright: ignore[reportPrivateImportUsage, reportPrivateUsage]


def _weights_of(worker: WorkerVectors) -> Tensor:
    assert worker.weights is not None
    return worker.weights


ENGINES: dict[str, type[AbstractEngine]] = {"vmap": VmapEngine, "graph": GraphEngine}
