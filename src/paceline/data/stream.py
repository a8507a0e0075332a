"""Defines the order of data: one endless stream of sample indices per run."""

from collections import OrderedDict

import torch
from torch import Tensor

from paceline.random_bits import random_permutation

_KEPT_PERMUTATIONS = 8  # workers far apart on a virtual clock read different epochs


class SampleStream:
    """Concatenation of seeded permutations of the training set, one per epoch.

    A batch may span the end of one permutation and the start of the next. The stream is a function
    of (num_samples, seed) alone, so that all processes agree on it.
    """

    def __init__(self, num_samples: int, seed: int) -> None:
        if num_samples < 1:
            raise ValueError(f"a stream needs samples, not {num_samples}")
        self.num_samples = num_samples
        self.seed = seed
        self._permutations: OrderedDict[int, Tensor] = OrderedDict()

    def indices(self, first: int, count: int) -> Tensor:
        """Return the data set's indices at positions first to first + count - 1: int64 [count]."""
        epoch, offset = divmod(first, self.num_samples)
        pieces = [self._permutation(epoch)[offset : offset + count]]
        while (missing := count - sum(map(len, pieces))) > 0:
            epoch += 1
            pieces.append(self._permutation(epoch)[:missing])
        return torch.cat(pieces) if len(pieces) > 1 else pieces[0]

    def _permutation(self, epoch: int) -> Tensor:
        if epoch not in self._permutations:
            order = random_permutation(self.num_samples, "order", self.seed, epoch)
            self._permutations[epoch] = torch.from_numpy(order)
            if len(self._permutations) > _KEPT_PERMUTATIONS:
                self._permutations.popitem(last=False)
        self._permutations.move_to_end(epoch)
        return self._permutations[epoch]
