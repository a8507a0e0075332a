"""Size of a network by layers: the weights, activations and multiply-adds of its training."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Literal, NamedTuple

from paceline.settings import Neutral, Whole, settings

BYTES = 4  # of a weight or an activation: float32


class Layer(NamedTuple):
    """Size of one layer.

    `weights`: number of the layer's own parameters. `multiply_adds`: multiply-adds of the layer in
    the forward pass of one image. `activations`: number of elements of the layer's input for one
    image; backward computes the gradient of the weights from this input.
    """

    name: str
    weights: int
    multiply_adds: int
    activations: int


class NetworkSize(NamedTuple):
    """Sizes of all layers of a network, in the order of its forward pass.

    `tensors`: number of weights in each parameter tensor, in the order of `network.parameters()`.
    """

    layers: Sequence[Layer]
    tensors: Sequence[int] = ()

    @property
    def weight_bytes(self) -> int:
        return BYTES * sum(layer.weights for layer in self.layers)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of one image's forward pass."""
        return sum(layer.multiply_adds for layer in self.layers)

    def activation_bytes(self, batch_size: int) -> int:
        """Return the bytes, for a batch, of the inputs of all layers that have multiply-adds.

        This number is |D| of FireCaffe's Table 1 (Iandola 2016, arXiv:1511.00175), which counts the
        inputs of convolutions and of fully connected layers, and nothing else.
        """
        inputs = sum(layer.activations for layer in self.layers if layer.multiply_adds)
        return BYTES * batch_size * inputs

    def flops(self, batch_size: int) -> int:
        """Return the floating-point operations of a training step.

        A multiply-add counts as two operations. Backward needs twice the multiply-adds of forward.
        """
        return 3 * 2 * self.multiply_adds * batch_size

    def shares_of_backward(self) -> list[float]:
        """Return, for each layer, the share of backward's arithmetic after which its gradient is
        ready. Backward goes through the layers from the last to the first.
        """
        total = self.multiply_adds
        done = accumulate(layer.multiply_adds for layer in reversed(self.layers))
        return [each / total for each in done][::-1]


@settings("model")
class Sharding:
    """Division of each worker into `shards` processes.

    `split`: which layers are cut into slices, of which each process holds one. Every process holds
    all other layers as a whole, and computes them for its part of the worker's images.
    """

    shards: Annotated[Whole, Neutral(1)]
    split: Annotated[Literal["auto", "fully_connected", "all"], Neutral("auto")]
