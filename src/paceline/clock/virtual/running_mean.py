"""Mean of vectors that are added one by one."""

import torch
from torch import Tensor


class RunningMean:
    """Mean in a single vector for any number of vectors; exact if all are equal."""

    def __init__(self) -> None:
        self.count = 0
        self.value = torch.empty(0)

    def add(self, vector: Tensor, times: int = 1) -> None:
        """Add `vector` with the weight `times`."""
        self.count += times
        if self.count == times:
            self.value = vector.clone()
        else:
            self.value.lerp_(vector, times / self.count)
