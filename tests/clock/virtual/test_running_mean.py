"""Means that are taken one vector after another, whatever the grouping."""

import numpy as np
import pytest
import torch

from paceline.clock.virtual.virtual_own_weights import RunningMean


@pytest.mark.parametrize("seed", range(4))
def test_any_grouping_of_equal_vectors_has_the_mean_of_all(seed):
    """In any order, and whether equal vectors come one by one or at once with their number."""
    rng = np.random.default_rng(seed)
    vectors, counts = rng.standard_normal((4, 5)), rng.integers(1, 6, 4)
    expected = np.repeat(vectors, counts, axis=0).mean(0)
    for parts in (counts.tolist(), [1] * 4):
        mean, left = RunningMean(), counts.tolist()
        while any(left):
            place = int(rng.choice(np.flatnonzero(left)))
            times = min(parts[place], left[place])
            mean.add(torch.from_numpy(vectors[place]), times)
            left[place] -= times
        assert mean.count == counts.sum()
        np.testing.assert_allclose(mean.value.numpy(), expected, rtol=1e-12)


def test_the_mean_of_equal_vectors_is_exactly_that_vector():
    vector, mean = torch.tensor([0.1, 1e-30, 3.0]), RunningMean()
    for times in (1, 3, 7, 2):
        mean.add(vector, times)
    assert torch.equal(mean.value, vector)
