"""Traces a network: its operations in order, with the shape of what each returns."""

import operator
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.fx.proxy import TraceError

from paceline.errors import SettingError

_IN_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}


def trace(network: nn.Module, batch_size: int, image_shape: Sequence[int]) -> fx.GraphModule:
    """Trace a copy of a network in training mode, on the meta device, for images [batch_size,
    *image_shape].

    Raises SettingError("model.split") for a network that torch.fx cannot trace, or whose layers
    share weights, and SettingError("model") for one that cannot process such images.
    """
    _check_weights_are_used_once(network)
    copied = deepcopy(network).to("meta").train()
    try:
        traced = fx.symbolic_trace(copied)
    except (TraceError, TypeError, AttributeError, NotImplementedError) as error:
        message = f"torch.fx cannot trace the network, so it cannot be divided: {error}"
        raise SettingError("model.split", message) from error
    _leave_values_in_place(traced)
    try:
        dtype = next((weight.dtype for weight in copied.parameters()), None)
        ShapeProp(traced).propagate(
            torch.empty(batch_size, *image_shape, device="meta", dtype=dtype)
        )
    except (AssertionError, RuntimeError, ValueError) as error:
        shape = "x".join(map(str, image_shape))
        raise SettingError("model", f"it cannot take {shape} images: {error}") from error
    return traced


def _check_weights_are_used_once(network: nn.Module) -> None:
    once = {name for name, _ in network.named_parameters()}
    for name, _ in network.named_parameters(remove_duplicate=False):
        if name not in once:
            raise SettingError(
                "model.split", f"{name} is another layer's, too; it cannot be divided"
            )


def _leave_values_in_place(traced: fx.GraphModule) -> None:
    """Let later operations use the result of one that works in place, not what it overwrote.

    Once a conversion has copied a value, what overwrites the value does not reach the copy.
    """
    nodes = list(traced.graph.nodes)
    for place, node in enumerate(nodes):
        if _overwrites(traced, node):
            later = set(nodes[place + 1 :])
            node.args[0].replace_all_uses_with(node, later.__contains__)
        if node.op == "call_function" and node.target in _IN_PLACE:
            node.target = _IN_PLACE[node.target]


def _overwrites(traced: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return bool(getattr(traced.get_submodule(str(node.target)), "inplace", False))
    return node.target in _IN_PLACE or bool(node.kwargs.get("inplace"))
