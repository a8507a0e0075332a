"""Plan of a network that is divided over the processes of a worker.

    by_images    each process has the layer and its part of the images; gradients are summed
    by_channels  each process has some of the outputs, for all images; the input is gathered
    by_inputs    each process has some of the inputs, for all images; the outputs are summed
    whole        each process computes the same

Fully connected layers have many weights and few activations, convolutions the reverse: hence "conv
-> data, FC -> model" (Krizhevsky 2014, arXiv:1404.5997; Iandola 2016, arXiv:1511.00175). But what a
layer sends depends on how its neighbours are divided, so `auto` compares whole networks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from paceline.errors import SettingError
from paceline.model.network_size import BYTES, Layer


class ShardMessages(NamedTuple):
    """An exchange among the processes of a worker, in which each of `num_senders` sends
    `num_messages`, one after the other, of `num_bytes` in total. `to_each`: True if each process
    sends to each other one; False if each sends to its neighbour in a ring, or if messages are to
    or from the first process only.
    """

    num_messages: int
    num_bytes: int
    num_senders: int
    to_each: bool = False


NOTHING = ShardMessages(0, 0, 0)


def all_reduced(num_bytes: int, shards: int) -> ShardMessages:
    """Return the messages of a ring that sums `num_bytes` (Patarasuk & Yuan 2009)."""
    count = 2 * (shards - 1)
    return ShardMessages(count, count * num_bytes // shards, shards)


def all_gathered(num_bytes: int, shards: int) -> ShardMessages:
    """Return the messages by which all get a tensor of `num_bytes` from the parts of each."""
    return ShardMessages(shards - 1, (shards - 1) * (num_bytes // shards), shards)


def swapped(num_bytes: int, shards: int) -> ShardMessages:
    """Return the messages by which each process sends to each other process the piece of a tensor
    of `num_bytes` that the other one keeps.
    """
    return all_gathered(num_bytes, shards)._replace(to_each=True)


def with_first(num_bytes: int, shards: int) -> ShardMessages:
    """Return the messages, each of `num_bytes`, between each other process and the first."""
    return ShardMessages(shards - 1, (shards - 1) * num_bytes, 1)


class State(NamedTuple):
    """Division of an activation among the processes. `dimension`: dimension along which it is
    divided into parts, one for each process; None if each process has the whole. `adds_up`: True if
    the gradients of it that the processes compute must be added; False if each is complete.
    """

    dimension: int | None
    adds_up: bool = False


WHOLE = State(None)
SHARED = State(None, adds_up=True)  # whole, and each process computes something else from it
BATCH = State(0)  # a part of the images


class Move(NamedTuple):
    """A move of a tensor between the processes. `joined`: dimension along which the parts of all
    processes are joined; None if nothing is joined. `adds`: True if each process has a term of a
    sum, and the terms are added; else, with `joined` None, each process has the whole tensor.
    `cut`: dimension along which each process then keeps its part; None if each keeps the whole.
    """

    joined: int | None = None
    cut: int | None = None
    adds: bool = False

    def messages(self, whole: int, shards: int) -> ShardMessages:
        """Return the messages for a tensor of `whole` bytes."""
        if self.adds:  # an all-reduce, or a reduce-scatter
            return (all_reduced if self.cut is None else swapped)(whole, shards)
        if self.joined is None:
            return NOTHING
        if self.cut is None:
            return all_gathered(whole, shards)
        return swapped(whole // shards, shards)


SUM_OF_TERMS = Move(adds=True)  # of a layer whose inputs are divided


class Conversion(NamedTuple):
    """Moves between states: `forward` of an activation, and `backward` of its gradient."""

    forward: Move
    backward: Move


def conversion(have: State, want: State) -> Conversion:
    """Return the conversion between the state of a result and the state that an operation needs."""
    backward = Move(want.dimension, have.dimension, want.adds_up)
    return Conversion(Move(have.dimension, want.dimension), backward)


@dataclass(frozen=True)
class SplitStep:
    """Messages between the `shards` processes of a worker in a step. `activations`: exchanges of
    activations in forward, and of their gradients in backward. `element_size`: bytes of a weight.
    `summed`: number of weights of layers that are divided by images; all processes have these
    weights, and their gradients are summed. `sliced`: number of weights in one process's slices of
    the other divided layers. `repeated`: number of the remaining weights, whose gradients are equal
    in all processes. `statistics`: number of BatchNorm statistics in one process's slices.
    """

    shards: int
    activations: Sequence[ShardMessages]
    element_size: int
    summed: int
    sliced: int
    repeated: int
    statistics: int = 0

    @property
    def num_weights(self) -> int:
        """Number of weights of the whole network."""
        return self.summed + self.shards * self.sliced + self.repeated

    @property
    def activation_bytes(self) -> int:
        """Bytes of activations and of their gradients that all processes send."""
        return sum(each.num_senders * each.num_bytes for each in self.activations)

    @property
    def process_bytes(self) -> int:
        """Bytes that one process sends to the others, with gradients summed among them."""
        gradient = all_reduced(self.element_size * self.summed, self.shards)
        return sum(each.num_bytes for each in (*self.activations, gradient))

    @property
    def to_first(self) -> list[ShardMessages]:
        """Messages that bring a step's gradient and statistics to the first process."""
        return self._with_first(self.summed + self.sliced + self.statistics)

    @property
    def from_first(self) -> list[ShardMessages]:
        """Messages by which the first process sends weights, and whether a step follows."""
        return self._with_first(1 + self.summed + self.repeated + self.sliced)

    def _with_first(self, length: int) -> list[ShardMessages]:
        return [with_first(self.element_size * length, self.shards)] if length else []


SPLITS = ("all", "fully_connected", "auto")
BY_IMAGES = "by_images"
BY_CHANNELS = "by_channels"
BY_INPUTS = "by_inputs"
NOT_DIVIDED = "whole"
Layers = frozenset[str]


class WeightedLayer(NamedTuple):
    """A linear layer or a convolution that gets `images` at a time. `inputs`, `outputs`: numbers of
    channels along `dimension` of the activation; 0 if not known, and assumed to be divisible.
    """

    linear: bool
    images: int
    inputs: int = 0
    outputs: int = 0
    groups: int = 1
    dimension: int = 1

    def divided_way(self, sliced: bool, shards: int) -> str | None:
        """Return BY_CHANNELS, BY_INPUTS or None; `sliced`: the input is divided by channels."""
        if self.groups > 1:
            return BY_CHANNELS if self.groups % shards == 0 else None
        by_inputs = self.inputs % shards == 0
        fewer = self.linear and sliced and self.outputs < self.inputs and by_inputs
        if self.outputs % shards == 0 and not fewer:
            return BY_CHANNELS
        return BY_INPUTS if by_inputs else None


@dataclass(frozen=True)
class Operation:
    """Facts about an operation of a network.

    `takes`: numbers of the operations whose results are its inputs. `num_bytes`: bytes of its whole
    result. `learns`: True if backward computes a gradient of its result. `works_on(dimension)`:
    True if the operation can compute a part of its result along this dimension from the same part
    of its inputs; None if it needs whole inputs. `layer`: its WeightedLayer; None if it is another
    operation. `has_channels`: True for a layer that is no WeightedLayer, but has parameters or
    statistics for each channel, such as BatchNorm. `weights`: number of weights. `matrix`: number
    of weights without the bias. `statistics`: number of BatchNorm statistics.
    """

    name: str
    takes: Sequence[int] = ()
    num_bytes: int = 0
    learns: bool = False
    works_on: Callable[[int], bool] | None = None
    layer: WeightedLayer | None = None
    has_channels: bool = False
    weights: int = 0
    matrix: int = 0
    statistics: int = 0


class Network(NamedTuple):
    """Network to be divided. `operations`: its operations, in order. `num_weights`: number of its
    weights. `element_size`: bytes of one weight.
    """

    operations: Sequence[Operation]
    num_weights: int
    element_size: int


class Placed(NamedTuple):
    """Division of one operation. `way`: BY_IMAGES, BY_CHANNELS, BY_INPUTS or NOT_DIVIDED. `wants`:
    how the processes must hold its inputs. `gives`: how they then hold its result. `forward`,
    `backward`: exchanges of activations, and of their gradients, that the operation needs.
    """

    way: str
    wants: State
    gives: State
    forward: Sequence[ShardMessages]
    backward: Sequence[ShardMessages]


@dataclass(frozen=True)
class SplitPlan:
    """Plan of a divided network. `placed`: its operations in order. `ways`: how each layer with
    weights or channels is divided, by the layer's name. `step`: messages of a step.
    """

    placed: Sequence[Placed]
    ways: dict[str, str]
    step: SplitStep


def plan_split(network: Network, split: str, shards: int) -> SplitPlan:
    """Plan how to divide a network over `shards` processes.

    `split`: "all" divides all weighted layers, "fully_connected" the linear ones, "auto" those with
    which a process sends the fewest bytes in a step: never more than with the other two, and
    changing any single layer does not save bytes. Raises SettingError("model.split"),
    ("model.shards"), or ("batch_size") if images cannot be divided.
    """
    if split not in SPLITS:
        raise SettingError("model.split", f"{split!r} is none of {', '.join(SPLITS)}")
    if shards < 1:
        raise SettingError("model.shards", f"{shards} is not a number of processes")
    layers = {each.name: each.layer for each in network.operations if each.layer}
    linear = frozenset(name for name, layer in layers.items() if layer.linear)

    def plan(divided: Layers) -> SplitPlan:
        return divided_plan(network, divided, shards)

    if split == "all":
        return plan(frozenset(layers))
    if split == "fully_connected":
        return plan(linear)
    ways = {name: layer.divided_way(False, shards) for name, layer in layers.items()}
    possible = frozenset(name for name, way in ways.items() if way is not None)
    return plan(_fewest_bytes(linear, possible, lambda divided: plan(divided).step.process_bytes))


def _fewest_bytes(linear: Layers, possible: Layers, num_bytes: Callable[[Layers], int]) -> Layers:
    """Change one layer after the other as long as that saves bytes; return the layers to divide by
    channels or inputs. Impossible choices are skipped, but if not even the division of all layers
    by images is possible, its error is raised.
    """
    num_bytes(frozenset())

    def counted(divided: Layers) -> float:
        try:
            return num_bytes(divided)
        except SettingError:
            return math.inf

    divided = min((Layers(), linear & possible, possible), key=counted)
    least, unchanged = counted(divided), False
    while not unchanged:
        unchanged = True
        for name in sorted(possible):
            other = divided ^ {name}
            if (found := counted(other)) < least:
                divided, least, unchanged = other, found, False
    return divided


def divided_plan(network: Network, divided: Layers, shards: int) -> SplitPlan:
    """Return the plan that divides the layers `divided` by channels or inputs, others by images."""
    placed = list[Placed]()
    converted = set[tuple[int, State]]()  # one conversion serves all that want it
    layers = dict[str, tuple[Operation, str]]()
    for operation in network.operations:
        states = [placed[given].gives for given in operation.takes]
        way, wants, gives = _wanted(operation, states, divided, shards)
        if operation.layer or operation.has_channels:
            _, before = layers.setdefault(operation.name, (operation, way))
            if before != way:
                message = f"{operation.name} is used twice, {way} and {before}"
                raise SettingError("model.split", f"{message}; it cannot be divided")
        forward, backward = list[ShardMessages](), list[ShardMessages]()
        if way == BY_INPUTS:
            forward.append(SUM_OF_TERMS.messages(operation.num_bytes, shards))
        for given, have in zip(operation.takes, states, strict=True):
            if have != wants and (given, wants) not in converted:
                converted.add((given, wants))
                moves, whole = conversion(have, wants), network.operations[given].num_bytes
                forward.append(moves.forward.messages(whole, shards))
                if network.operations[given].learns:
                    backward.append(moves.backward.messages(whole, shards))
        placed.append(Placed(way, wants, gives, forward, backward))
    ways = {name: way for name, (_, way) in layers.items()}
    step = _step(network, placed, list(layers.values()), shards)
    return SplitPlan(placed, ways, step)


def _wanted(
    operation: Operation, states: Sequence[State], divided: Layers, shards: int
) -> tuple[str, State, State]:
    """Return how an operation is divided, and the states of its inputs and its result."""
    name, layer = operation.name, operation.layer
    if layer is None:
        works_on, parts = operation.works_on, (state.dimension for state in states)
        possible = (each for each in parts if each is not None and works_on and works_on(each))
        dimension = next(possible, None)
        way = NOT_DIVIDED if dimension is None else BY_CHANNELS if dimension else BY_IMAGES
        return way, State(dimension), State(dimension)
    if name not in divided:
        if layer.images % shards:
            message = f"{layer.images} images cannot be divided over {shards} processes"
            raise SettingError("batch_size", f"{message}, as {name} asks")
        return BY_IMAGES, BATCH, BATCH
    channels = State(layer.dimension)
    way = layer.divided_way(states[0] == channels, shards)
    if way is None:
        because = f"{layer.inputs} inputs and {layer.outputs} outputs"
        because = because if layer.groups == 1 else f"{layer.groups} groups"
        message = f"{name} cannot be divided over {shards} processes: it has {because}"
        raise SettingError("model.shards", message)
    if way == BY_INPUTS:
        return way, channels, WHOLE
    return way, SHARED if layer.groups == 1 else channels, channels


def _step(
    network: Network, placed: Sequence[Placed], layers: Sequence[tuple[Operation, str]], shards: int
) -> SplitStep:
    activations = [each for one in placed for each in (*one.forward, *one.backward)]
    by_channels = [each for each, way in layers if way == BY_CHANNELS]
    sliced = [each.weights for each in by_channels]
    sliced += [each.matrix for each, way in layers if way == BY_INPUTS]
    summed = sum(each.weights for each, way in layers if way == BY_IMAGES)
    num_sliced = sum(size // shards for size in sliced)
    return SplitStep(
        shards=shards,
        activations=[each for each in activations if each != NOTHING],
        element_size=network.element_size,
        summed=summed,
        sliced=num_sliced,
        repeated=network.num_weights - summed - shards * num_sliced,
        statistics=sum(each.statistics // shards for each in by_channels),
    )


def counted_network(layers: Sequence[Layer], num_classes: int, batch_size: int) -> Network:
    """Return the operations of a network with counted layers, for `batch_size` images. A list of
    layers does not say everything, so it is assumed that they are a chain, that only operations
    which work on parts are between them, and that channels of convolutions are divisible.
    """
    found, learns = [Operation("images")], False

    def follow(name: str, num_elements: int, has_channels: bool = False, weights: int = 0) -> None:
        found.append(
            Operation(
                name,
                takes=[len(found) - 1],
                num_bytes=BYTES * batch_size * num_elements,
                learns=learns,
                works_on=lambda _: True,
                has_channels=has_channels,
                weights=weights,
            )
        )

    for layer in layers:
        if not layer.multiply_adds:  # BatchNorm follows its input, and so do unused layers
            follow(layer.name, 0, has_channels=True, weights=layer.weights)
            continue
        follow(f"input of {layer.name}", layer.activations)
        learns, outputs = True, layer.multiply_adds // layer.activations
        linear = layer.multiply_adds <= layer.weights  # each weight is used once for an image
        sizes = (layer.activations, outputs) if linear else ()
        found.append(
            Operation(
                layer.name,
                takes=[len(found) - 1],
                num_bytes=BYTES * batch_size * outputs,
                learns=True,
                layer=WeightedLayer(linear, batch_size, *sizes),
                weights=layer.weights,
                matrix=layer.multiply_adds,
            )
        )
    follow("logits", num_classes)
    found.append(Operation("loss", takes=[len(found) - 1]))
    return Network(found, sum(layer.weights for layer in layers), BYTES)
