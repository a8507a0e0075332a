"""What happens on the virtual clock, in order of time; what is planned first goes first."""

import heapq
from collections.abc import Callable
from itertools import count

Happening = Callable[[], None]


class EventQueue:
    def __init__(self) -> None:
        self.now = 0.0  # virtual seconds
        self._planned: list[tuple[float, int, Happening]] = []
        self._order = count()

    def plan(self, time: float, happening: Happening) -> None:
        """`time` must not lie before now."""
        if time < self.now:
            raise ValueError(f"planned for {time}, and it is {self.now}")
        heapq.heappush(self._planned, (time, next(self._order), happening))

    def __len__(self) -> int:
        return len(self._planned)

    def go_on(self) -> None:
        """To the next event."""
        self.now, _, happening = heapq.heappop(self._planned)
        happening()
