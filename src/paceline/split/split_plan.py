"""Plan of a network that is divided over the processes of a worker; it needs no process."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import fx, nn

from paceline.split.conversion import Conversion
from paceline.split.divided_graph import DividedGraph, Moved, weighted_layers
from paceline.split.shard_group import ring_bytes
from paceline.split.traced import trace
from paceline.split.ways import BY_CHANNELS, BY_IMAGES, BY_INPUTS, can_be_divided
from paceline.timing.split_choice import Layers, check_split, divided_layers
from paceline.timing.split_step import NOTHING, ShardMessages


class LayerPlan(NamedTuple):
    """Division of a layer, or of an operation without weights.

    `way`: by_images, by_channels, by_inputs or whole. `forward_bytes`, `backward_bytes`: of
    activations and of their gradients that one process sends in a step. `gradient_bytes`: that it
    sends to sum the gradient of the weights inside the group.
    """

    name: str
    way: str
    forward_bytes: int
    backward_bytes: int
    gradient_bytes: int


@dataclass(frozen=True)
class SplitPlan:
    """Plan of a divided network, in the order of its forward pass.

    `summed`: names of the parameters by images; they are equal in all shards, and their gradients
    are summed, `gradient_bytes` in one message. `slices`: parameters and buffers of which each
    shard has a slice, and the dimension that is cut. All others are whole in every shard, with
    gradients that are equal. `activations`: all that is exchanged in forward and backward. `graph`,
    `added`, `uses`: see DividedGraph.
    """

    shards: int
    layers: Sequence[LayerPlan]
    activations: Sequence[ShardMessages]
    gradient_bytes: int
    summed: frozenset[str]
    slices: Mapping[str, int]
    graph: fx.Graph
    added: Sequence[Conversion | tuple[str, int]]
    uses: Mapping[str, str]

    @property
    def activation_bytes(self) -> int:
        """Bytes of activations and their gradients that one process sends in a training step."""
        return _num_bytes(self.activations)

    @property
    def num_bytes(self) -> int:
        """Bytes that one process sends in a training step, gradients inside the group included."""
        return self.activation_bytes + self.gradient_bytes


def plan_split(
    network: nn.Module, split: str, shards: int, batch_size: int, image_shape: Sequence[int]
) -> SplitPlan:
    """Plan how to divide a network over `shards` processes; it is not changed.

    `split`: see divided_layers. `batch_size`: images of the worker in a step, in all its processes
    together. Bytes are those of the network's own dtype. Raises SettingError("model.split"),
    ("model.shards"), ("batch_size") or ("model") for what cannot be divided.
    """
    check_split(split, shards)
    traced = trace(network, batch_size, image_shape)
    layers = weighted_layers(traced)

    def plan(divided: Layers) -> SplitPlan:
        return divided_plan(traced, divided, shards)

    return plan(
        divided_layers(
            split,
            layers,
            frozenset(name for name, layer in layers.items() if isinstance(layer, nn.Linear)),
            frozenset(name for name, layer in layers.items() if can_be_divided(layer, shards)),
            lambda divided: plan(divided).num_bytes,
        )
    )


def divided_plan(traced: fx.GraphModule, divided: Layers, shards: int) -> SplitPlan:
    """Return the plan of a traced network in which these layers are not computed by images."""
    placed = DividedGraph(traced, divided, shards)
    summed = [
        name
        for name, _ in traced.named_parameters()
        if placed.uses.get(_layer_of(name)) == BY_IMAGES
    ]
    sizes = {name: weight.nbytes for name, weight in traced.named_parameters()}
    return SplitPlan(
        shards=shards,
        layers=_layer_plans(placed, summed, sizes, shards),
        activations=_activations(placed, shards),
        gradient_bytes=ring_bytes(sum(sizes[name] for name in summed), shards),
        summed=frozenset(summed),
        slices=_slices(traced, placed.uses),
        graph=placed.graph,
        added=placed.added,
        uses=placed.uses,
    )


def _layer_of(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _layer_plans(
    placed: DividedGraph, summed: Sequence[str], sizes: Mapping[str, int], shards: int
) -> list[LayerPlan]:
    of_layers = Counter[str]()
    for parameter in summed:
        of_layers[_layer_of(parameter)] += sizes[parameter]
    plans = []
    for name, moves in placed.moved.items():
        forth, back = map(_num_bytes, _messages(moves, shards))
        gradient = ring_bytes(of_layers[name], shards)
        plans.append(LayerPlan(name, placed.ways[name], forth, back, gradient))
    return plans


def _activations(placed: DividedGraph, shards: int) -> list[ShardMessages]:
    of_layers = (_messages(moves, shards) for moves in placed.moved.values())
    exchanges = (each for forth, back in of_layers for each in (*forth, *back))
    return [each for each in exchanges if each != NOTHING]


def _messages(
    moves: Sequence[Moved], shards: int
) -> tuple[list[ShardMessages], list[ShardMessages]]:
    """Return the exchanges of forward and of backward."""
    forth = [each.conversion.forward.messages(each.whole, shards) for each in moves]
    learning = [each for each in moves if not each.forth_only]
    return forth, [each.conversion.backward.messages(each.whole, shards) for each in learning]


def _num_bytes(exchanges: Sequence[ShardMessages]) -> int:
    return sum(each.num_bytes for each in exchanges)


def _slices(network: nn.Module, uses: Mapping[str, str]) -> dict[str, int]:
    """Return the dimension that is cut of each parameter and buffer that has slices."""
    slices = {}
    for name, way in uses.items():
        for key, tensor in network.get_submodule(name).state_dict().items():
            if way == BY_CHANNELS and tensor.dim():
                slices[f"{name}.{key}"] = 0
            if way == BY_INPUTS and key == "weight":
                slices[f"{name}.{key}"] = 1
    return slices
