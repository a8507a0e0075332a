"""Vectors that are recycled. A new one of 45 MB costs 27 ms in page faults, a recycled one 5 ms."""

import weakref

from torch import Tensor


class Lender:
    """Lends vectors of one size, type and device. Each is lent anew when nothing refers to it or to
    a view of it any more; a detached one does not count. `made`: number of vectors that have been
    allocated.
    """

    def __init__(self, like: Tensor) -> None:
        self._like, self._shape = like.new_empty(0), like.shape
        self._free: list[Tensor] = []
        self.made = 0

    def lend(self) -> Tensor:
        """Return a vector with undefined content."""
        if not self._free:
            self.made += 1
        memory = self._free.pop() if self._free else self._like.new_empty(self._shape)
        lent = memory.detach()
        weakref.finalize(lent, self._free.append, memory)
        return lent

    def copy(self, vector: Tensor) -> Tensor:
        return self.lend().copy_(vector)

    def new(self, length: int) -> Tensor:
        """Return a vector of another length, which is not recycled."""
        return self._like.new_empty(length)
