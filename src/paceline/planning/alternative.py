"""Ways to carry out a block, which change its time and its memory, not what it computes.

Recomputation is torch.utils.checkpoint (Chen 2016, arXiv:1604.06174). Values between blocks have 32
bits and the layout of the block that they leave, so that any alternative may follow any other.
"""

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial, reduce
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from paceline.planning.blocks import Block

Layout = Literal["contiguous", "channels_last"]
Precision = Literal["32", "bf16"]
_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


class Alternative(NamedTuple):
    """Way to carry out a block.

    `layout`: of its input and output in memory. `recompute`: forward again in backward instead of
    keeping what it saved. `precision`: bf16 is torch's autocast.
    """

    layout: Layout = "contiguous"
    recompute: bool = False
    precision: Precision = "32"

    def __str__(self) -> str:
        named = {"channels_last": self.layout == "channels_last", "recompute": self.recompute}
        named["bf16"] = self.precision == "bf16"
        return "+".join(name for name, chosen in named.items() if chosen) or "plain"


PLAIN = Alternative()
ALTERNATIVES = [
    Alternative(layout, recompute, precision)
    for layout, recompute, precision in itertools.product(
        ("contiguous", "channels_last"), (False, True), ("32", "bf16")
    )
]
Choice = Mapping[str, Alternative]  # by the block's name; blocks without one stay as they are


@contextmanager
def applied(blocks: Sequence[Block], choice: Choice) -> Generator[None]:
    """Let a network carry out its blocks by their chosen alternatives.

    Weights, their names, gradients and BatchNorm statistics are those of the network itself, but
    for the rounding of bf16. Raises KeyError for a chosen block that is not among `blocks`.
    """
    by_name = {block.name: block for block in blocks}
    chosen = [(by_name[name], each) for name, each in choice.items()]
    try:
        for block, alternative in chosen:
            block.carry_out_by(_forward(block, alternative))
        yield
    finally:
        for block, _ in chosen:
            block.restore()


def laid_out(value: Tensor, layout: Layout) -> Tensor:
    """Return `value` in a layout; itself if it has it. Raises RuntimeError for other than images.

    A tensor without four dimensions has only one layout, and is contiguous. Its gradient comes back
    in the layout that it had, so that who made it computes as it does alone.
    """
    wanted = _FORMATS[layout]
    found: Tensor = (
        value if value.is_contiguous(memory_format=wanted) else _LaidOut.apply(value, wanted)
    )
    return found


class _LaidOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, wanted: torch.memory_format) -> Tensor:
        ctx.before = torch.contiguous_format if value.is_contiguous() else torch.channels_last
        return value.contiguous(memory_format=wanted)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient.contiguous(memory_format=ctx.before), None


def _left(value: Tensor, layout: Layout) -> Tensor:
    """Return a block's output in its layout, which torch may not give it (for one channel)."""
    return laid_out(value, layout) if value.dim() == 4 else value


def _forward(block: Block, alternative: Alternative) -> Callable[[Tensor], Tensor]:
    steps = [module.forward for module in block.modules]

    def run(value: Tensor) -> Tensor:
        with _precision(alternative, value.device.type):
            computed = reduce(lambda each, step: step(each), steps, value)
        return _left(computed.to(value.dtype), alternative.layout)

    if not alternative.recompute:
        return lambda value: run(laid_out(value, alternative.layout))
    contexts = partial(_contexts, block)

    def recomputed(value: Tensor) -> Tensor:
        given = laid_out(value, alternative.layout)
        found = checkpoint(run, given, use_reentrant=False, context_fn=contexts)
        assert isinstance(found, Tensor)
        return found

    return recomputed


def _precision(alternative: Alternative, device: str) -> torch.autocast | nullcontext[None]:
    if alternative.precision == "32":
        return nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16)


def _contexts(
    block: Block,
) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _kept_statistics(block)


@contextmanager
def _kept_statistics(block: Block) -> Generator[None]:
    """Leave BatchNorm's running statistics as they are: forward has already counted the batch."""
    normalizations = [
        (module, module.momentum, module.num_batches_tracked)
        for each in block.modules
        for module in each.modules()
        if isinstance(module, _NormBase)
    ]
    try:
        for module, _, _ in normalizations:
            module.momentum, module.num_batches_tracked = 0.0, None
        yield
    finally:
        for module, momentum, count in normalizations:
            module.momentum, module.num_batches_tracked = momentum, count
