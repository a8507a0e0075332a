import numpy as np
import pytest

from paceline.analysis.statistics.finite_test_set import (
    variance_of_accuracy,
    variance_of_difference,
    variance_of_logit,
)


def test_ten_thousand_images_leave_a_third_of_a_point():
    assert np.sqrt(variance_of_accuracy(0.88, 10_000)) == pytest.approx(0.00325, abs=1e-5)


def test_the_logit_has_the_same_error_by_its_slope():
    slope = 1 / (0.88 * 0.12)
    by_slope = variance_of_accuracy(0.88, 10_000) * slope**2
    assert variance_of_logit(0.88, 10_000) == pytest.approx(by_slope, rel=1e-3)
    assert np.isfinite(variance_of_logit(1.0, 10_000))


def test_what_both_get_right_or_wrong_cancels():
    """Images drawn again: 6 % right by one alone, 4 % by the other alone."""
    rng, images = np.random.default_rng(0), 1000
    kinds = rng.multinomial(images, [0.06, 0.04, 0.90], 20_000)
    differences = (kinds[:, 0] - kinds[:, 1]) / images
    found = variance_of_difference(0.90, 0.88, images, disagreement=0.10)
    assert differences.var() == pytest.approx(found, rel=0.03)  # 3 standard errors
    assert variance_of_difference(0.9, 0.9, images, disagreement=0.0) == 0


def test_without_the_images_errors_are_taken_as_independent():
    unknown = variance_of_difference(0.90, 0.88, 1000)
    both = variance_of_accuracy(0.90, 1000) + variance_of_accuracy(0.88, 1000)
    assert unknown == pytest.approx(both)
    assert unknown > variance_of_difference(0.90, 0.88, 1000, disagreement=0.10)
