"""Accelerator chip of a modelled cluster: its arithmetic, its memory, and the time of a step."""

from typing import Annotated

from paceline.errors import SettingError
from paceline.settings import UNKEYED, Positive, Share, settings
from paceline.timing.step_times import StepRate


@settings("cluster.chip")
class Chip:
    """An accelerator chip.

    `precision`: the training.precision of `step_rates`, and of predictions for which none is set.
    `peak`: FLOP/s by training.precision. `memory`: bytes. `memory_bandwidth`: bytes/s.
    `utilisation`: share of the peak that training reaches, by training.precision. `step_rates`:
    measured step times by name of the network.
    """

    name: Annotated[str, UNKEYED]
    precision: str
    peak: dict[str, Positive]
    memory: Annotated[Positive, UNKEYED]
    memory_bandwidth: Positive
    utilisation: dict[str, Share]
    step_rates: dict[str, StepRate]

    def __post_init__(self) -> None:
        self.check_precision(self.precision, "cluster.chip.precision")
        if missing := self.peak.keys() ^ self.utilisation.keys():
            message = f"{', '.join(sorted(missing))} has a peak or a utilisation, and not both"
            raise SettingError("cluster.chip.utilisation", message)

    def check_precision(self, precision: str, setting: str = "training.precision") -> None:
        """Raise SettingError for a precision in which the chip does not compute."""
        if precision not in self.peak:
            known = ", ".join(self.peak)
            raise SettingError(setting, f"{self.name} has no {precision}; there are: {known}")
