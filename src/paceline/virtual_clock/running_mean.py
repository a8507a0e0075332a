"""A mean of vectors that come one by one."""

import torch
from torch import Tensor


class RunningMean:
    """The mean in one vector, however many are added; exact where all are equal."""

    def __init__(self) -> None:
        self.count = 0
        self.value = torch.empty(0)

    def add(self, vector: Tensor, times: int = 1) -> None:
        """Count `vector` so many times."""
        self.count += times
        if self.count == times:
            self.value = vector.clone()
        else:
            self.value.lerp_(vector, times / self.count)
