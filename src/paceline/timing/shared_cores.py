"""Cores of one machine, on which all of its processes compute."""

from paceline.errors import SettingError
from paceline.settings import NotNegative, Positive, Whole, settings
from paceline.timing.interpolated import interpolated
from paceline.timing.step_seconds import seconds_of_step


@settings("cluster.shared_cores")
class SharedCores:
    """Cores that the workers and servers of one machine share, as measured there.

    `step_seconds`: mean duration of a step of a worker alone, by batch size. `speeds`: how much n
    processes compute together in the time in which one alone computes 1, by n, with n = 1 among
    them. `ddp_seconds`: what DistributedDataParallel adds to a step of its own accord.
    `push_seconds`, `allreduce_seconds`: what an exchange adds to a step besides its own time, since
    it costs the step its caches, and a process its core.
    """

    step_seconds: dict[Whole, Positive]
    speeds: dict[Whole, Positive]
    ddp_seconds: NotNegative
    push_seconds: NotNegative = 0.0
    allreduce_seconds: NotNegative = 0.0

    def __post_init__(self) -> None:
        if not self.step_seconds:
            raise SettingError("cluster.shared_cores.step_seconds", "no batch size is given")
        if self.speeds.get(1) != 1:
            message = "one process alone has speed 1: {1: 1, ...} is needed"
            raise SettingError("cluster.shared_cores.speeds", message)

    def mean_step_seconds(self, batch_size: int) -> float:
        """Return the mean duration of a step of a worker alone [seconds]."""
        return seconds_of_step(self.step_seconds, batch_size)

    def speed(self, processes: int) -> float:
        """Return what so many processes compute together; linear between those of `speeds`."""
        return interpolated(self.speeds, processes)
