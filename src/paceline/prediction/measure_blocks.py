"""Measures time and memory of every alternative of every block of a network on this machine.

A block is a few modules that run one after another; an alternative is a way to compute it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from paceline.cluster.cluster import device
from paceline.prediction.blocks import (
    ALTERNATIVES,
    PLAIN,
    Alternative,
    Block,
    applied,
    find_blocks,
    inputs_of,
    laid_out,
)
from paceline.prediction.programme import BlockCosts, Option, Programme
from paceline.prediction.step_memory import (
    Step,
    StepMemory,
    count_memory,
    measure_peak,
    phases_by_operation,
    phases_on_cpu,
)
from paceline.record.point import Point

_BLOCK_SECONDS = 0.005  # of a measurement, by repetition
STEP_SECONDS = 0.05  # the first of a row is 5 % slower on a CPU, where a step takes 4 ms
_ROUNDED = 0.1  # distance of gradients, as a share of their norm, that bf16 may make


@dataclass(frozen=True)
class MeasuredBlocks:
    """Measurements of a network at one batch size.

    `step_seconds`: median time of a step of the unchanged network. `left_out`: (block, alternative,
    reason) for alternatives that this machine cannot compute, or whose gradients differ from those
    of the unchanged block by more than 10 %.
    """

    batch_size: int
    memory: StepMemory
    step_seconds: float
    programme: Programme
    left_out: Sequence[tuple[str, str, str]]


def measure_blocks(point: Point, rounds: int) -> MeasuredBlocks:
    """Measure all alternatives by turns, `rounds` times; call this function in a fresh process.

    The seconds of a block are those of its own forward and backward. The rest of a step's time goes
    to operations between blocks, the loss, and the update of weights.
    """
    step, keeps_gradients = built_step(point), point.workers > 1
    shape = point.config.values["data"]["image_shape"]
    counted = count_memory(step.module, shape, point.batch_size, keeps_gradients=keeps_gradients)
    memory = counted  # on a CPU with the libraries' workspace
    if point.device == "cuda":
        memory = counted.with_libraries(measure_peak(step.take))
    found = {block.name: block for block in find_blocks(step.module)}
    given = inputs_of(list(found.values()), step.forward)
    blocks = [MeasuredBlock(found[name], value) for name, value in given.items()]
    blocks = [block for block in blocks if PLAIN in block.counted]
    step.take()  # makes gradients and the optimizer's state
    step_seconds = list[float]()
    for _ in range(rounds):
        step_seconds.append(timed(step.take, STEP_SECONDS))
        for block in blocks:
            block.measure()
    costs, whole = [block.costs() for block in blocks], median(step_seconds)
    plain = [each.option(PLAIN) for each in costs]
    of_blocks = sum(each.gradients for each in costs) + sum(option.kept for option in plain)
    libraries = memory.peak - counted.peak
    programme = Programme(
        blocks=costs,
        seconds=max(0.0, whole - sum(option.seconds for option in plain)),
        bytes=memory.constant + memory.saved + libraries - of_blocks,
        update_bytes=memory.update_peak,
        keeps_gradients=keeps_gradients,
    )
    left_out = [
        (block.name, str(each), why) for block in blocks for each, why in block.failed.items()
    ]
    return MeasuredBlocks(point.batch_size, memory, whole, programme, left_out)


def built_step(point: Point) -> Step:
    """Return the step of one worker of `point`, on its device."""
    torch.set_num_threads(point.cluster.threads_per_worker)
    torch.manual_seed(point.seed)
    module = point.model.build().to(device(point.device, 0))
    shape = point.config.values["data"]["image_shape"]
    return Step(module, shape, point.batch_size, keeps_gradients=point.workers > 1)


def timed(
    work: Callable[[], None], least: float, before: Callable[[], None] = lambda: None
) -> float:
    """Return the mean seconds of a call, over as many calls as take `least` seconds in all.

    `before` is called before each of them, and not timed. On a GPU its own clock counts, and calls
    follow each other as in training: waiting for each would add the time to launch its first work.
    """
    if torch.cuda.is_initialized():
        return _timed_by_events(work, least, before)
    total, number = 0.0, 0
    while not number or total < least:
        before()
        start = time.perf_counter()
        work()
        total += time.perf_counter() - start
        number += 1
    return total / number


def _timed_by_events(work: Callable[[], None], least: float, before: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    pairs, start = list[tuple[Any, Any]](), time.perf_counter()
    while not pairs or time.perf_counter() - start < least:
        before()
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        work()
        ended.record()
        pairs.append((begun, ended))
    torch.cuda.synchronize()
    return sum(begun.elapsed_time(ended) for begun, ended in pairs) / 1000 / len(pairs)


class MeasuredBlock:
    """Measures the alternatives of one block with a given input.

    `counted`: by alternative, the bytes kept from forward to backward, the peak of forward, and the
    peak of backward. `failed`: for each alternative that is left out, the reason.
    """

    def __init__(self, block: Block, given: Tensor) -> None:
        self.name, self._block, self._given = block.name, block, given
        self.counted: dict[Alternative, tuple[int, int, int]] = {}
        self.failed: dict[Alternative, str] = {}
        self._seconds: dict[Alternative, list[float]] = {}
        self._conversions: list[float] = []
        self._numbers: Tensor | None = None
        for alternative in ALTERNATIVES:
            self._try(alternative)

    def measure(self) -> None:
        """Time each alternative once more."""
        for alternative, seconds in self._seconds.items():
            seconds.append(self._time(alternative))
        if any(each.layout == "channels_last" for each in self._seconds):
            self._conversions.append(timed(self._convert, _BLOCK_SECONDS))

    def costs(self) -> BlockCosts:
        options = [
            Option(alternative, median(seconds), *self.counted[alternative])
            for alternative, seconds in self._seconds.items()
        ]
        gradients = sum(weight.nbytes for weight in self._block.parameters())
        conversion = median(self._conversions or [0.0])
        return BlockCosts(self.name, options, gradients, conversion, self._given.nbytes)

    def _time(self, alternative: Alternative) -> float:
        given = self._leaf(alternative)

        def forget() -> None:
            self._forget()
            given.grad = None

        with applied([self._block], {self.name: alternative}):
            output = self._output(given)
            # no constant, whose gradient before a BatchNorm is 0; in the layout of the output
            gradient = torch.empty_like(output).copy_(self._numbers_like(output))
            del output
            return timed(lambda: self._output(given).backward(gradient), _BLOCK_SECONDS, forget)

    def _try(self, alternative: Alternative) -> None:
        try:
            gradients = self._gradients(alternative)
            if alternative == PLAIN:
                self._exact = gradients
            error = (gradients - self._exact).norm() / self._exact.norm()
            if alternative != PLAIN and not error < _ROUNDED:  # also where it is no number
                self.failed[alternative] = f"gradients differ by {100 * float(error):.0f} %"
                return
            self.counted[alternative] = self._count(alternative)
            self._seconds[alternative] = []
        except RuntimeError as error:  # what torch says of all that it cannot do
            self.failed[alternative] = str(error).splitlines()[0]

    def _gradients(self, alternative: Alternative) -> Tensor:
        """Return all gradients as one vector, with equal dropout for every alternative."""
        given = self._leaf(alternative)
        with torch.random.fork_rng(), applied([self._block], {self.name: alternative}):
            torch.manual_seed(0)
            for _ in self._phases(given):
                pass
        tensors = [given.grad, *(weight.grad for weight in self._block.parameters())]
        return torch.cat([each.flatten() for each in tensors if each is not None])

    def _count(self, alternative: Alternative) -> tuple[int, int, int]:
        given = self._leaf(alternative)
        with applied([self._block], {self.name: alternative}):
            if given.device.type == "cpu":
                forward, _, backward = phases_on_cpu(self._phases(given))
            else:
                state = [v for each in self._block.modules for v in each.state_dict().values()]
                forward, _, backward = phases_by_operation(self._phases(given), [given, *state])
        return forward.left, forward.peak, backward.peak

    def _phases(self, given: Tensor) -> Iterator[None]:
        """Compute forward; then a stand-in for the rest of the network, which frees the block's
        output; then backward. Each phase ends at a `yield`.
        """
        output = self._output(given)
        yield
        end = _End.apply(output, self._numbers_like(output))
        del output
        yield
        end.backward()

    def _output(self, given: Tensor) -> Tensor:
        for module in self._block.modules:
            given = module(given)
        return given

    def _numbers_like(self, output: Tensor) -> Tensor:
        """Return the same gradient of an output for every alternative."""
        if self._numbers is None:
            generator = torch.Generator(output.device).manual_seed(0)
            self._numbers = torch.randn(output.shape, generator=generator, device=output.device)
        return self._numbers

    def _leaf(self, alternative: Alternative) -> Tensor:
        self._forget()
        value = laid_out(self._given.detach(), alternative.layout)
        return value.requires_grad_(self._given.requires_grad)

    def _convert(self) -> None:
        """Convert as many bytes as the input has to channels_last and back.

        The way back stands for the conversion of the gradient.
        """
        other = laid_out(self._given.detach(), "channels_last")
        laid_out(other, "contiguous")

    def _forget(self) -> None:
        for weight in self._block.parameters():
            weight.grad = None


class _End(torch.autograd.Function):
    """Maps a block's output to a scalar; its backward makes the output's gradient from `numbers`.

    So this gradient takes memory only during backward, as in a whole network.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, numbers: Tensor) -> Tensor:
        ctx.numbers = numbers
        ctx.like = {"size": output.shape, "stride": output.stride(), "dtype": output.dtype}
        return output.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.empty_strided(**ctx.like, device=ctx.numbers.device).copy_(ctx.numbers), None
