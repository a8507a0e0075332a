"""Division of a counted network over the processes of a worker, from only the sizes of its layers.

It is the plan of the room `split` for a chain of layers whose sizes are divisible. What a list of
layers does not say is assumed: between layers only operations that work on parts; divisible
channels.
"""

from collections.abc import Sequence
from typing import Literal

from paceline.errors import SettingError
from paceline.model.network_size import BYTES, Layer, Sharding
from paceline.timing.split_choice import Layers, divided_layers
from paceline.timing.split_step import (
    NOTHING,
    ShardMessages,
    SplitStep,
    all_gathered,
    all_reduced,
    swapped,
)

State = Literal["whole", "images", "channels"]  # of the activations in a process
Way = Literal["images", "channels", "inputs"]


def split_layers(
    layers: Sequence[Layer], num_classes: int, sharding: Sharding, batch_size: int
) -> SplitStep:
    """Return what a step sends that has `batch_size` images for a worker.

    Raises SettingError("batch_size") if they cannot be divided where a layer is computed by images,
    and ("model.shards") for linear layers that cannot be.
    """
    linear = frozenset(layer.name for layer in layers if layer.multiply_adds and _is_linear(layer))
    computing = [layer.name for layer in layers if layer.multiply_adds]

    def step(divided: Layers) -> SplitStep:
        return _step(layers, num_classes, divided, sharding.shards, batch_size)

    return step(
        divided_layers(
            sharding.split,
            computing,
            linear,
            frozenset(computing),
            lambda divided: _num_bytes(step(divided)),
        )
    )


def _step(
    layers: Sequence[Layer], num_classes: int, divided: Layers, shards: int, batch_size: int
) -> SplitStep:
    chain = _Chain(divided, shards, batch_size)
    for layer in layers:
        chain.add(layer)
    chain.end(num_classes)
    return SplitStep(
        shards=shards,
        activations=[each for each in chain.activations if each != NOTHING],
        element_size=BYTES,
        summed=chain.summed,
        sliced=chain.sliced,
        repeated=chain.repeated,
    )


def _num_bytes(step: SplitStep) -> int:
    """Return the bytes that a process sends inside the group, gradients included."""
    gradients = all_reduced(step.summed * step.element_size, step.shards)
    return sum(each.num_bytes for each in (*step.activations, gradients))


class _Chain:
    """Walks forward through the layers. The first wants no gradient of its input."""

    def __init__(self, divided: Layers, shards: int, batch_size: int) -> None:
        self._divided, self._shards = divided, shards
        self._batch_size = batch_size
        self._state: State = "whole"
        self._is_first = True
        self.activations = list[ShardMessages]()
        self.summed = self.sliced = self.repeated = 0

    def add(self, layer: Layer) -> None:
        if not layer.multiply_adds:  # BatchNorm follows its input, and so do unused layers
            self._count(layer.weights, self._state)
            return
        way = self._way(layer)
        if way == "inputs":
            self._by_inputs(layer)
        elif way == "images":
            self._to_images(layer)
        else:
            self._to_shared(layer)
        self._is_first = False

    def end(self, num_classes: int) -> None:
        """Join the logits, of which the loss wants the whole."""
        if self._state != "whole":
            self.activations.append(all_gathered(self._bytes(num_classes), self._shards))

    def _way(self, layer: Layer) -> Way:
        """Choose as the room `split` does in `way_of`."""
        if layer.name not in self._divided:
            return "images"
        divided = self._divided_way(layer)
        if divided is None:
            message = f"{layer.name} cannot be divided over {self._shards} processes"
            raise SettingError("model.shards", message)
        return divided

    def _divided_way(self, layer: Layer) -> Way | None:
        if not _is_linear(layer):
            return "channels"
        inputs, outputs = layer.activations, _outputs(layer)
        fewer = self._state == "channels" and outputs < inputs and inputs % self._shards == 0
        if outputs % self._shards == 0 and not fewer:
            return "channels"
        return "inputs" if inputs % self._shards == 0 else None

    def _to_images(self, layer: Layer) -> None:
        if self._batch_size % self._shards:
            message = (
                f"{self._batch_size} images cannot be divided over {self._shards} processes, as "
                f"{layer.name} asks"
            )
            raise SettingError("batch_size", message)
        size = self._bytes(layer.activations)
        if self._state == "whole":
            self._exchange(NOTHING, all_gathered(size, self._shards))
        if self._state == "channels":
            turned = swapped(size // self._shards, self._shards)
            self._exchange(turned, turned)
        self._state = "images"
        self.summed += layer.weights

    def _to_shared(self, layer: Layer) -> None:
        size = self._bytes(layer.activations)
        if self._state == "whole":
            self._exchange(NOTHING, all_reduced(size, self._shards))
        else:
            self._exchange(all_gathered(size, self._shards), swapped(size, self._shards))
        self._state = "channels"
        self._count(layer.weights, "channels")

    def _by_inputs(self, layer: Layer) -> None:
        """Cut the inputs; the bias stays whole in all."""
        size = self._bytes(layer.activations)
        if self._state == "whole":
            self._exchange(NOTHING, all_gathered(size, self._shards))
        if self._state == "images":
            turned = swapped(size // self._shards, self._shards)
            self._exchange(turned, turned)
        self.activations.append(all_reduced(self._bytes(_outputs(layer)), self._shards))
        self._state = "whole"
        self.sliced += layer.multiply_adds // self._shards
        self.repeated += layer.weights - layer.multiply_adds

    def _exchange(self, forward: ShardMessages, backward: ShardMessages) -> None:
        self.activations.append(forward)
        if not self._is_first:
            self.activations.append(backward)

    def _count(self, weights: int, state: State) -> None:
        if state == "images":
            self.summed += weights
        elif state == "channels":
            self.sliced += weights // self._shards
        else:
            self.repeated += weights

    def _bytes(self, elements: int) -> int:
        return BYTES * self._batch_size * elements


def _is_linear(layer: Layer) -> bool:
    """Return True if each weight is used once for an image."""
    return layer.multiply_adds <= layer.weights


def _outputs(layer: Layer) -> int:
    return layer.multiply_adds // layer.activations
