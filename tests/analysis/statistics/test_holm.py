from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ttest_ind

from paceline.analysis.statistics.means import pooled
from paceline.analysis.statistics.multiple_comparisons import holm, unadjusted


def test_holm_s_steps_by_hand():
    """0.01 x 4, 0.02 x 3, then 0.03 x 2 = 0.06 and 0.04 x 1, which may not be smaller."""
    assert holm(np.array([0.04, 0.01, 0.03, 0.02])) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm(np.array([0.9, 0.8])) == pytest.approx([1.0, 1.0])


def test_two_groups_have_the_p_value_of_student():
    first, second = [1.0, 2.0, 4.0], [3.0, 5.0, 9.0, 4.0]
    assert unadjusted(pooled([first, second])) == pytest.approx([ttest_ind(first, second).pvalue])


def test_p_values_are_in_the_order_of_combinations():
    p = holm(unadjusted(pooled([[0.0, 0.1], [0.0, 0.1], [9.0, 9.1]])))
    different = [
        pair for pair, each in zip(combinations(range(3), 2), p, strict=True) if each < 0.05
    ]
    assert different == [(0, 2), (1, 2)]
