"""Processors on the virtual clock: of each process its own, or shared by all of a machine."""

from abc import ABC, abstractmethod
from typing import ClassVar

from paceline.clock.virtual.kernel import Event, Kernel, Moment
from paceline.clock.virtual.processor_sharing import ProcessorSharing
from paceline.timing.profile import SharedCores


class AbstractCores(ABC):
    """Processors of a cluster. `shared`: True if work lasts longer while others are busy."""

    shared: ClassVar[bool]

    @abstractmethod
    def busy(self, seconds: float) -> Moment | Event:
        """Return the end of work, begun now, that takes a single process `seconds`."""


class OwnCores(AbstractCores):
    """Each process has a processor of its own."""

    shared = False

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def busy(self, seconds: float) -> Moment:
        return self._kernel.after(seconds)


class FairCores(AbstractCores):
    """All processes share the cores of one machine."""

    shared = True

    def __init__(self, kernel: Kernel, cores: SharedCores) -> None:
        self._sharing = ProcessorSharing(kernel, cores.speed)

    def busy(self, seconds: float) -> Event:
        return self._sharing.begin(seconds)


def cores_of(shared: SharedCores | None, kernel: Kernel) -> AbstractCores:
    """Return the processors of a cluster; `shared`: None if each process has its own."""
    return OwnCores(kernel) if shared is None else FairCores(kernel, shared)
