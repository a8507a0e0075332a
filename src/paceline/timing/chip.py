"""Accelerator chip of a modelled cluster: its arithmetic, its memory, and the time of a step.

The time of a step follows from the images/s that are published for the chip, or else from the sizes
of the network. An image then takes the sum of two times:

    arithmetic: 6 FLOP for each multiply-add of forward, at `utilisation` * `peak`
    memory:     3 times the bytes of the activations that backward keeps, at TRAFFIC * bandwidth

Backward does twice the work of forward. TRAFFIC is small, since layers read and write the same
activations several times: convolutions, normalisations, activation functions, and sums.

However small the batch is, a step takes at least what the host takes to launch its kernels.
"""

import math
from collections.abc import Mapping
from typing import Annotated

from paceline.errors import SettingError
from paceline.model.network_size import BYTES
from paceline.settings import UNKEYED, Neutral, NotNegative, Positive, Share, settings
from paceline.timing.step_times import StepRate
from paceline.timing.workload import AbstractWorkload, CountedNetwork

FLOP = 6  # of a training step for each multiply-add of forward: backward has twice as many
PASSES = 3  # over the activations: one in forward, two in backward
TRAFFIC = 0.17  # share of the memory's bandwidth, fitted by benchmarks/step_times.py
UPDATE_PASSES = 5  # over the weights by SGD with momentum: it reads three vectors and writes two
SHORTEST = 0.04  # seconds of a step in the data by which the rule was judged
# Seconds to launch the kernels of a step, and of each of its layers with weights. They are the line
# through two steps of 32 images on an H200 (benchmarks/README.md): 9.58 ms with ResNet-18, of 41
# such layers, by `independent` on real processes (3,342 images/s), and 2.61 ms with the small CNN,
# of 7, one by one on the virtual clock (12,245). That the hosts of other chips are as fast is an
# assumption.
LAUNCH, LAUNCH_LAYER = 1.18e-3, 2.05e-4
LARGEST_BATCH = 512  # in these data

_HALF = {"16-mixed", "bf16-mixed"}


@settings("cluster.step_rates")
class RateOfSize(StepRate):
    """Rate of steps that follows from a network's sizes. `launching`: seconds to launch kernels, in
    which a step does not end, since the host launches while the chip computes.
    """

    launching: NotNegative

    def seconds(self, batch_size: int) -> float:
        return max(self.launching, super().seconds(batch_size))


@settings("cluster.chip")
class Chip:
    """An accelerator chip.

    `precision`: the training.precision of `step_rates`, in which the chip computes unless
    `computes_in` is another one. `peak`: FLOP/s by precision. `memory`: bytes. `memory_bandwidth`:
    bytes/s. `utilisation`: share of the peak that training reaches, by precision. `step_rates`:
    measured step times, by name of the network.
    """

    name: Annotated[str, UNKEYED]
    precision: str
    peak: dict[str, Positive]
    memory: Annotated[Positive, UNKEYED]
    memory_bandwidth: Positive
    utilisation: dict[str, Share]
    step_rates: dict[str, StepRate]
    computes_in: Annotated[str | None, Neutral(None)] = None

    def __post_init__(self) -> None:
        self.check_precision(self.precision, "cluster.chip.precision")
        self.check_precision(self.run_precision)
        if missing := self.peak.keys() ^ self.utilisation.keys():
            message = f"{', '.join(sorted(missing))} has a peak or a utilisation, and not both"
            raise SettingError("cluster.chip.utilisation", message)

    def check_precision(self, precision: str, setting: str = "training.precision") -> None:
        """Raise SettingError for a precision in which the chip does not compute."""
        if precision not in self.peak:
            known = ", ".join(self.peak)
            raise SettingError(setting, f"{self.name} has no {precision}; there are: {known}")

    @property
    def run_precision(self) -> str:
        """The training.precision in which the chip computes."""
        return self.computes_in or self.precision

    @property
    def measured(self) -> Mapping[str, StepRate]:
        """Measured step times in the chip's precision; both mixed ones of 16 bits are as fast."""
        same = {self.run_precision, self.precision}
        return self.step_rates if len(same) == 1 or same == _HALF else {}

    def rate(self, workload: AbstractWorkload) -> StepRate | None:
        """Return the rate of a network's steps: the measured one, or else that of its size; None
        for a network that is not counted.
        """
        measured = self.measured.get(workload.name)
        if measured is not None or not isinstance(workload, CountedNetwork):
            return measured
        size = workload.size
        layers = sum(layer.weights > 0 for layer in size.layers)
        return self.rate_of_size(
            size.multiply_adds, workload.activations, size.weight_bytes, layers
        )

    def rate_of_size(
        self, multiply_adds: int, activations: int, weight_bytes: int, layers: int
    ) -> RateOfSize:
        """Return the rate of steps that follows from a network's sizes.

        `multiply_adds`: of one image in forward. `activations`: numbers that backward keeps of it.
        `layers`: number of those with weights.
        """
        precision = self.run_precision
        arithmetic = FLOP * multiply_adds / (self.utilisation[precision] * self.peak[precision])
        num_bytes = PASSES * activation_bytes(precision) * activations
        memory = num_bytes / (TRAFFIC * self.memory_bandwidth)
        update = UPDATE_PASSES * weight_bytes / self.memory_bandwidth
        seconds = arithmetic + memory
        most = max(1, min(LARGEST_BATCH, self.largest_batch(weight_bytes, activations)))
        least = max(1, math.ceil((SHORTEST - update) / seconds))
        judged = min(least, most), most
        launching = LAUNCH + LAUNCH_LAYER * layers
        return RateOfSize(
            fixed=update, per_image=seconds, batch_sizes=judged, rows=[], launching=launching
        )

    def largest_batch(self, weight_bytes: int, activations: int, states: int = 2) -> int:
        """Return the most images of a step that fit into memory, beside the weights, their
        gradients and the optimizer's `states`, each of `weight_bytes`; below 1 if none fits.
        """
        left = self.memory - (2 + states) * weight_bytes
        return math.floor(left / (activation_bytes(self.run_precision) * max(1, activations)))


def activation_bytes(precision: str) -> int:
    """Return the bytes of an activation, for a training.precision as of Lightning's Trainer."""
    return {"16": 2, "bf16": 2, "64": 8}.get(precision.partition("-")[0], BYTES)
