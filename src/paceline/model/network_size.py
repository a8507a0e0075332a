"""Size of a network, layer by layer: what its training moves and computes."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from paceline.settings import Neutral, Whole, settings

BYTES = 4  # of a weight or an activation: float32


class Layer(NamedTuple):
    """Size of one layer.

    `weights`: number of its own parameters. `multiply_adds`: of one image's forward pass.
    `activations`: number of elements of its input for one image, from which backward computes the
    gradient of the weights.
    """

    name: str
    weights: int
    multiply_adds: int
    activations: int


class NetworkSize(NamedTuple):
    """Sizes of all layers of a network, in the order of its forward pass.

    `tensors`: number of weights of each of its parameters, in their own order.
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
        """Return the bytes of the inputs of all layers that multiply, for a batch.

        It is |D| of FireCaffe's Table 1 (Iandola 2016, arXiv:1511.00175): the inputs of
        convolutions and of fully connected layers, and nothing else.
        """
        inputs = sum(layer.activations for layer in self.layers if layer.multiply_adds)
        return BYTES * batch_size * inputs

    def flops(self, batch_size: int) -> int:
        """Return the floating-point operations of a training step.

        A multiply-add is two of them, and backward does two products for each of forward's.
        """
        return 3 * 2 * self.multiply_adds * batch_size

    def shares_of_backward(self) -> list[float]:
        """Return, for each layer, the share of backward's arithmetic after which its gradient is
        ready: backward goes through the layers from the last to the first.
        """
        done, shares = 0, list[float]()
        for layer in reversed(self.layers):
            done += layer.multiply_adds
            shares.append(done / self.multiply_adds)
        return shares[::-1]


@settings("model")
class Sharding:
    """Division of each worker into `shards` processes.

    `split`: layers of which each process holds a slice; of the others it holds all, and computes
    them for its part of the images.
    """

    shards: Annotated[Whole, Neutral(1)]
    split: Annotated[Literal["auto", "fully_connected", "all"], Neutral("auto")]
