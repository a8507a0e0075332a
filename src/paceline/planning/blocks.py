"""Divides a network into blocks, for each of which a plan chooses an alternative.

A block is a run of modules of one Sequential, begun by each module that has matrices of weights and
continued by those that have none (normalization, activation, pool); or a module with such weights
inside any other container. Sequentials inside Sequentials are entered, other modules are not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Block:
    """Modules that run one after the other. `name`: path of the first one in the network."""

    name: str
    modules: Sequence[nn.Module]

    def parameters(self) -> list[nn.Parameter]:
        every = [weight for module in self.modules for weight in module.parameters()]
        return [weight for weight in every if weight.requires_grad]

    def carry_out_by(self, forward: Callable[[Tensor], Tensor]) -> None:
        """Let the network call `forward` where it calls the block; names of weights stay."""
        first, *others = self.modules
        first.forward = forward
        for module in others:
            module.forward = _same

    def restore(self) -> None:
        """Let the network call the modules themselves again."""
        for module in self.modules:
            module.__dict__.pop("forward", None)


def find_blocks(network: nn.Module) -> list[Block]:
    """Return the blocks of a network, in the order in which their modules are registered."""
    prefix = ""
    while len(heavy := [each for each in network.named_children() if _has_matrix(each[1])]) == 1:
        if isinstance(network, nn.Sequential):
            break
        name, network = heavy[0]
        prefix += f"{name}."
    return list(_blocks(network, prefix))


def inputs_of(blocks: Sequence[Block], forward: Callable[[], object]) -> dict[str, Tensor]:
    """Run `forward`; return what each block was given, by its name, in the order of execution.

    Blocks that are called with anything but one tensor, or more than once, are not among them.
    """
    found: dict[str, Tensor] = {}
    unfit = set[str]()

    def note(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            one_tensor = len(arguments) == 1 and not named and isinstance(arguments[0], Tensor)
            if not one_tensor or name in found:
                unfit.add(name)
                return
            given = arguments[0]
            found[name] = given.detach().clone().requires_grad_(given.requires_grad)

        return hook

    hooks = [
        block.modules[0].register_forward_pre_hook(note(block.name), with_kwargs=True)
        for block in blocks
    ]
    try:
        forward()
    finally:
        for hook in hooks:
            hook.remove()
    return {name: given for name, given in found.items() if name not in unfit}


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
    first, run = "", list[nn.Module]()
    for name, child in sequential.named_children():
        inner = isinstance(child, nn.Sequential)
        if run and (inner or (_has_matrix(child) and any(map(_has_matrix, run)))):
            yield from _with_weights(Block(prefix + first, run))
            run = []
        if inner:
            yield from _runs(child, f"{prefix}{name}.")
            continue
        first = first if run else name
        run = [*run, child]
    if run:
        yield from _with_weights(Block(prefix + first, run))


def _with_weights(block: Block) -> Iterator[Block]:
    if any(map(_has_matrix, block.modules)):
        yield block


def _has_matrix(module: nn.Module) -> bool:
    return any(weight.ndim > 1 for weight in module.parameters())


def _same(value: Tensor) -> Tensor:
    return value
