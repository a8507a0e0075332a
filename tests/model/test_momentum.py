import pytest

from paceline.model.learning_rate import corrected_momentum


@pytest.mark.parametrize(
    ("momentum", "staleness", "left"),
    [(0.9, 0, 0.9), (0.9, 1, 8 / 9), (0.9, 8, 0.5), (0.9, 9, 0), (0.9, 63, 0), (0, 3, 0)],
)
def test_ages_of_gradients_add_up(momentum, staleness, left):
    assert corrected_momentum(momentum, staleness) == pytest.approx(left, abs=1e-12)
