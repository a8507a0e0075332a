"""Divides the operations of a traced network: states of activations, conversions between them."""

from collections.abc import Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any, NamedTuple

from torch import fx, nn
from torch.fx.passes.shape_prop import TensorMetadata

from paceline.errors import SettingError
from paceline.split.conversion import (
    BATCH,
    SHARED,
    TERMS_TO_WHOLE,
    WHOLE,
    Conversion,
    State,
    conversion,
)
from paceline.split.operations import knows_channels, works_on_parts
from paceline.split.ways import (
    BY_CHANNELS,
    BY_IMAGES,
    BY_INPUTS,
    NOT_DIVIDED,
    Site,
    WeightedLayer,
    way_of,
)
from paceline.timing.split_choice import Layers

ADDED = "added_by_split"  # module of what a divided network has beside its own layers


class Moved(NamedTuple):
    """A conversion. `whole`: bytes of the whole tensor. `forth_only`: no gradient comes back."""

    conversion: Conversion
    whole: int
    forth_only: bool


class DividedGraph:
    """Walks through a traced network whose nodes know their shapes, and divides it.

    `divided`: names of the layers that are not computed by images. `graph` is a copy, in which
    `added` [i] is called there as module `added_by_split.i`: a conversion, or
    (name of a dropout layer, dimension of the parts). `ways`: of all operations by name, `uses`: of
    those that are layers with weights or channels. `moved`: the conversions for each of these, and
    for each other operation that has some, in order of execution.
    """

    def __init__(self, traced: fx.GraphModule, divided: Layers, shards: int) -> None:
        self.graph = deepcopy(traced.graph)
        self.moved: dict[str, list[Moved]] = {}
        self.added: list[Conversion | tuple[str, int]] = []
        self.uses: dict[str, str] = {}
        self.ways: dict[str, str] = {}
        self._traced = traced
        self._divided = divided
        self._shards = shards
        self._states: dict[fx.Node, State] = {}
        self._converted: dict[tuple[fx.Node, State], fx.Node] = {}
        self._learning: set[fx.Node] = set()  # nodes that gradients reach
        for node in list(self.graph.nodes):
            self._place(node)

    def _place(self, node: fx.Node) -> None:
        layer = self._layer_of(node)
        inputs = [given for given in node.all_input_nodes if _is_tensor(given)]
        self._note_learning(node, layer)
        want, result = self._wanted(node, layer, inputs)
        for given in inputs:
            if self._states[given] != want:
                node.replace_input_with(given, self._convert(given, want, node))
        self._states[node] = result
        self.ways[_name(node)] = self.uses.get(_name(node), _way_of_others(result.dimension))
        if isinstance(layer, nn.Dropout | nn.Dropout2d) and result.dimension is not None:
            node.target = self._add((str(node.target), result.dimension))

    def _layer_of(self, node: fx.Node) -> nn.Module | None:
        if node.op != "call_module":
            return None
        return self._traced.get_submodule(str(node.target))

    def _note_learning(self, node: fx.Node, layer: nn.Module | None) -> None:
        weights = list(layer.parameters()) if layer is not None else []
        if node.op == "get_attr":
            weights = [attrgetter(str(node.target))(self._traced)]
        learns = any(weight.requires_grad for weight in weights)
        if learns or any(given in self._learning for given in node.all_input_nodes):
            self._learning.add(node)

    def _wanted(
        self, node: fx.Node, layer: nn.Module | None, inputs: Sequence[fx.Node]
    ) -> tuple[State, State]:
        """Return the state that an operation wants its inputs in, and that of its result."""
        if isinstance(layer, nn.Linear | nn.Conv2d):
            return self._of_weighted(node, layer, inputs[0])
        dimension = self._common_dimension(node, layer, inputs)
        if layer is not None and knows_channels(layer):
            self._note_use(node, _way_of_others(dimension))
        return State(dimension), State(dimension)

    def _of_weighted(
        self, node: fx.Node, layer: nn.Linear | nn.Conv2d, given: fx.Node
    ) -> tuple[State, State]:
        channels = 1 if isinstance(layer, nn.Conv2d) else len(_shape(given)) - 1
        sliced = self._states[given] == State(channels)
        site = Site(_name(node), layer, sliced)
        way = way_of(site, site.name in self._divided, self._shards)
        divided = State(channels)
        if way == BY_IMAGES:
            self._check_images(site.name, _shape(given)[0])
            self._note_use(node, way)
            return BATCH, BATCH
        if way == BY_INPUTS:
            self._note_use(node, way)
            self.moved[site.name].append(Moved(TERMS_TO_WHOLE, _num_bytes(node), False))
            return divided, WHOLE
        self._note_use(node, way)
        is_grouped = isinstance(layer, nn.Conv2d) and layer.groups > 1
        return divided if is_grouped else SHARED, divided

    def _check_images(self, name: str, images: int) -> None:
        if images % self._shards:
            message = (
                f"{images} images cannot be divided over {self._shards} processes, as {name} asks"
            )
            raise SettingError("batch_size", message)

    def _common_dimension(
        self, node: fx.Node, layer: nn.Module | None, inputs: Sequence[fx.Node]
    ) -> int | None:
        """Return the dimension in parts of which an operation can work, if one of its inputs has
        it; None: it needs the whole.
        """
        shapes = [_shape(given) for given in inputs]
        if not _is_tensor(node) or node.op == "output":
            return None
        for given in inputs:
            dimension = self._states[given].dimension
            if dimension is not None and works_on_parts(
                node, layer, shapes, dimension, self._shards
            ):
                return dimension
        return None

    def _note_use(self, node: fx.Node, way: str) -> None:
        name = _name(node)
        self.moved.setdefault(name, [])
        if self.uses.setdefault(name, way) != way:
            message = f"{name} is used twice, {way} and {self.uses[name]}; it cannot be divided"
            raise SettingError("model.split", message)

    def _convert(self, given: fx.Node, want: State, user: fx.Node) -> fx.Node:
        """Return the node that has `given` in another state: one for all who want it so."""
        if (given, want) not in self._converted:
            step = conversion(self._states[given], want)
            forth_only = given not in self._learning
            moved = Moved(step, _num_bytes(given), forth_only)
            self.moved.setdefault(_name(user), []).append(moved)
            with self.graph.inserting_before(user):
                node = self.graph.create_node("call_module", self._add(step), (given,))
            self._converted[given, want] = node
        return self._converted[given, want]

    def _add(self, what: Conversion | tuple[str, int]) -> str:
        self.added.append(what)
        return f"{ADDED}.{len(self.added) - 1}"


def weighted_layers(traced: fx.GraphModule) -> dict[str, WeightedLayer]:
    """Return the linear layers and convolutions that the network calls, by name."""
    names = [str(node.target) for node in traced.graph.nodes if node.op == "call_module"]
    layers = {name: traced.get_submodule(name) for name in names}
    return {name: each for name, each in layers.items() if isinstance(each, nn.Linear | nn.Conv2d)}


def _way_of_others(dimension: int | None) -> str:
    """Return the way of a layer that follows the state of its input, such as BatchNorm."""
    if dimension is None:
        return NOT_DIVIDED
    return BY_CHANNELS if dimension else BY_IMAGES


def _name(node: fx.Node) -> str:
    return str(node.target) if node.op == "call_module" else node.name


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("tensor_meta"), TensorMetadata)


def _shape(node: fx.Node) -> Any:
    return node.meta["tensor_meta"].shape


def _num_bytes(node: fx.Node) -> int:
    return _shape(node).numel() * node.meta["tensor_meta"].dtype.itemsize
