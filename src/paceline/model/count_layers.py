"""Counts a network's weights, multiply-adds and activations from shapes, without computing."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from paceline.errors import SettingError
from paceline.model.network_size import Layer, NetworkSize

_KEPT_IMAGES = 2  # of a batch, since BatchNorm refuses a single value


def count_layers(network: nn.Module, image_shape: Sequence[int]) -> NetworkSize:
    """Return the sizes of a network's layers for images [C, H, W].

    The network is moved to the meta device. A layer is a module with parameters or multiply-adds
    of its own, not counting those of modules inside it. Layers that forward uses only in training
    (auxiliary heads) come last; their weights are counted, their multiply-adds are not. Raises
    SettingError("model") for a network that cannot process such images.
    """
    network = network.to("meta").eval()
    inputs: dict[str, int] = {}  # elements of each module's first input, in order of execution
    hooks = [
        module.register_forward_pre_hook(_note(inputs, name))
        for name, module in network.named_modules()
    ]
    counter = FlopCounterMode(display=False)
    try:
        with counter:
            network(torch.empty(1, *image_shape, device="meta"))
    except (AssertionError, RuntimeError, ValueError) as error:
        shape = "x".join(map(str, image_shape))
        raise SettingError("model", f"it cannot take {shape} images: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    multiply_adds = _own_multiply_adds(network, counter)
    weights = {
        name: sum(weight.numel() for weight in module.parameters(recurse=False))
        for name, module in network.named_modules()
    }
    order = [*inputs, *(name for name in weights if name not in inputs)]
    layers = [
        Layer(name, weights[name], multiply_adds.get(name, 0), inputs.get(name, 0))
        for name in order
    ]
    tensors = [weight.numel() for weight in network.parameters()]
    return NetworkSize([layer for layer in layers if layer.weights or layer.multiply_adds], tensors)


def count_kept(network: nn.Module, image_shape: Sequence[int]) -> int:
    """Return how many numbers backward keeps from the forward pass of one image [C, H, W].

    `network` is on the meta device, as `count_layers` leaves it.
    """
    own = {each.untyped_storage()._cdata for each in (*network.parameters(), *network.buffers())}
    found: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        found[tensor.untyped_storage()._cdata] = tensor  # held, so that no identity is used twice
        return tensor.detach()

    images = torch.empty(_KEPT_IMAGES, *image_shape, device="meta")
    network.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network(images)
    numbers = sum(
        each.untyped_storage().nbytes() // each.element_size()
        for key, each in found.items()
        if key not in own
    )
    return numbers // _KEPT_IMAGES


def without_weights(build: Callable[[], nn.Module]) -> nn.Module:
    """Return the network that `build` makes, with its parameters on the meta device, so that
    neither memory nor time is spent on their values. A network that computes while it is built is
    built as usual. No other thread may build a network meanwhile.
    """
    try:
        with _parameters_on_meta():
            return build()
    except Exception:  # of any kind, as networks are foreign code; an error of its own comes again
        return build()


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    register: Callable[..., None] = nn.Module.register_parameter

    def on_meta(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = nn.Parameter(param.to("meta"), param.requires_grad)
        register(self, name, param)

    nn.Module.register_parameter = on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register


def _note(inputs: dict[str, int], name: str) -> Any:
    def note(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        tensors = [value for value in arguments if isinstance(value, Tensor)]
        inputs.setdefault(name, tensors[0].numel() if tensors else 0)

    return note


def _own_multiply_adds(network: nn.Module, counter: FlopCounterMode) -> dict[str, int]:
    """Return the multiply-adds of each module by its path, without those of modules inside it.

    The counter names a module by the network's class and the module's path, and its counts include
    the modules inside. It has no counts for containers that are not called (such as ModuleList).
    """
    root = type(network).__name__
    own = {
        name.removeprefix(root).removeprefix("."): sum(by_operator.values()) // 2
        for name, by_operator in counter.get_flop_counts().items()
        if name != "Global"
    }
    for name, inside in list(own.items()):
        if (parent := _enclosing(name, own)) is not None:
            own[parent] -= inside
    return own


def _enclosing(name: str, names: Collection[str]) -> str | None:
    """Return the nearest of the modules `names` that contains the module `name`."""
    while name:
        name = name.rpartition(".")[0]
        if name in names:
            return name
    return None
