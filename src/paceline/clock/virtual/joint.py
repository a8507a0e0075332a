"""Joint execution of requests that several processes make at one instant."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from paceline.clock.links import Process
from paceline.clock.virtual.kernel import Event, Kernel

Item = TypeVar("Item")


class Joint(Generic[Item]):
    """Collects the items of processes at one instant; `carry_out` gets all of them, in order."""

    def __init__(self, kernel: Kernel, carry_out: Callable[[Sequence[Item]], None]) -> None:
        self._kernel, self._carry_out = kernel, carry_out
        self._items: list[Item] = []
        self._done = Event()

    def join(self, item: Item) -> Process[None]:
        """Wait until `item` has been carried out together with those of the others."""
        if not self._items:
            self._done = Event()
            self._kernel.start(self._close())
        self._items.append(item)
        yield self._done

    def _close(self) -> Process[None]:
        yield None  # all processes that continue at this instant may join
        items, self._items = self._items, []
        self._carry_out(items)
        self._kernel.happen(self._done)
