"""Blocks of a network, and alternatives: ways to compute a block that differ in time and memory.

In a Sequential, a block is a module that has weight matrices, with the modules after it that have
none (normalization, activation, pool). In any other container, each child with weight matrices is a
block. Sequentials inside are divided into blocks in the same way; other modules are not divided.

Recomputation is torch.utils.checkpoint (Chen 2016, arXiv:1604.06174). Values between blocks have 32
bits, so that the alternatives of two adjacent blocks can be chosen independently.
"""

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

Layout = Literal["contiguous", "channels_last"]
Precision = Literal["32", "bf16"]
_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@dataclass(frozen=True)
class Block:
    """Modules that run one after another.

    `name`: path in the network of the first of them.
    """

    name: str
    modules: Sequence[nn.Module]

    def parameters(self) -> list[nn.Parameter]:
        every = [weight for module in self.modules for weight in module.parameters()]
        return [weight for weight in every if weight.requires_grad]


class Alternative(NamedTuple):
    """Way to compute a block.

    `layout`: memory layout of the block's input and output. `recompute`: run the block's forward
    again during backward, instead of keeping the tensors that autograd saves. `precision`: "32", or
    "bf16" for torch's autocast.
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
    Alternative(*each)
    for each in itertools.product(get_args(Layout), (False, True), get_args(Precision))
]
Choice = Mapping[str, Alternative]  # by the block's name; blocks that are not in it are unchanged


def find_blocks(network: nn.Module) -> list[Block]:
    """Return the blocks of a network, in the order in which their modules are registered."""
    prefix = ""
    while not isinstance(network, nn.Sequential):
        heavy = [each for each in network.named_children() if _has_matrix(each[1])]
        if len(heavy) != 1:
            break
        name, network = heavy[0]
        prefix += f"{name}."
    return list(_blocks(network, prefix))


def inputs_of(blocks: Sequence[Block], forward: Callable[[], object]) -> dict[str, Tensor]:
    """Run `forward`; return the input of each block by the block's name, in order of execution.

    Blocks that `forward` calls more than once, or with anything but one tensor, are left out.
    """
    found: dict[str, Tensor] = {}
    unfit = set[str]()

    def note(name: str, _: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if name in found or named or len(arguments) != 1 or not isinstance(arguments[0], Tensor):
            unfit.add(name)
            return
        (given,) = arguments
        found[name] = given.detach().clone().requires_grad_(given.requires_grad)

    with ExitStack() as hooks:
        for block in blocks:
            hook = partial(note, block.name)
            first = block.modules[0]
            hooks.enter_context(first.register_forward_pre_hook(hook, with_kwargs=True))
        forward()
    return {name: given for name, given in found.items() if name not in unfit}


@contextmanager
def applied(blocks: Sequence[Block], choice: Choice) -> Generator[None]:
    """Let a network compute its blocks as `choice` says, while the context lasts.

    Weights, gradients and BatchNorm statistics are those of the unchanged network, except for the
    rounding of bf16. Raises KeyError if `choice` names a block that is not among `blocks`.
    """
    by_name = {block.name: block for block in blocks}
    chosen = [(by_name[name], each) for name, each in choice.items()]
    try:
        for block, alternative in chosen:
            first, *others = block.modules
            first.forward = _forward(block, alternative)
            for module in others:
                module.forward = lambda value: value
        yield
    finally:
        for module in itertools.chain.from_iterable(block.modules for block, _ in chosen):
            module.__dict__.pop("forward", None)


def laid_out(value: Tensor, layout: Layout) -> Tensor:
    """Return a tensor in a memory layout; raise RuntimeError if the tensor cannot have it.

    Only tensors of four dimensions can have either layout. In backward the gradient is converted
    back to the original layout.
    """
    wanted = _FORMATS[layout]
    if value.is_contiguous(memory_format=wanted):
        return value
    return _LaidOut.apply(value, wanted)


class _LaidOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, wanted: torch.memory_format) -> Tensor:
        ctx.before = torch.contiguous_format if value.is_contiguous() else torch.channels_last
        return value.contiguous(memory_format=wanted)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient.contiguous(memory_format=ctx.before), None


def _forward(block: Block, alternative: Alternative) -> Callable[[Tensor], Tensor]:
    steps = [module.forward for module in block.modules]

    def run(value: Tensor) -> Tensor:
        bf16 = alternative.precision == "bf16"
        with torch.autocast(value.device.type, torch.bfloat16) if bf16 else nullcontext():
            computed = reduce(lambda each, step: step(each), steps, value)
        output = computed.to(value.dtype)  # when autocast no longer holds its copies of weights
        # torch may not give it the layout by itself (for one channel)
        return laid_out(output, alternative.layout) if output.dim() == 4 else output

    def contexts() -> Any:
        return nullcontext(), _kept_statistics(block)

    def forward(value: Tensor) -> Tensor:
        given = laid_out(value, alternative.layout)
        if not alternative.recompute:
            return run(given)
        return checkpoint(run, given, use_reentrant=False, context_fn=contexts)

    return forward


@contextmanager
def _kept_statistics(block: Block) -> Generator[None]:
    """Keep a block's BatchNorm statistics unchanged while it is recomputed in backward.

    Forward has already counted the batch in the statistics.
    """
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


def _blocks(container: nn.Module, prefix: str) -> Iterator[Block]:
    if isinstance(container, nn.Sequential):
        yield from _runs(container, prefix)
        return
    for name, child in container.named_children():
        if isinstance(child, nn.Sequential):
            yield from _runs(child, f"{prefix}{name}.")
        elif _has_matrix(child):
            yield Block(prefix + name, [child])


def _runs(sequential: nn.Sequential, prefix: str) -> Iterator[Block]:
    run: dict[str, nn.Module] = {}
    for name, child in sequential.named_children():
        inner = isinstance(child, nn.Sequential)
        if inner or (_has_matrix(child) and any(map(_has_matrix, run.values()))):
            yield from _with_weights(run, prefix)
            run = {}
        if inner:
            yield from _runs(child, f"{prefix}{name}.")
        else:
            run[name] = child
    yield from _with_weights(run, prefix)


def _with_weights(run: dict[str, nn.Module], prefix: str) -> Iterator[Block]:
    if any(map(_has_matrix, run.values())):
        yield Block(prefix + next(iter(run)), list(run.values()))


def _has_matrix(module: nn.Module) -> bool:
    return any(weight.ndim > 1 for weight in module.parameters())
