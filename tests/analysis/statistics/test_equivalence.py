import pytest

from paceline.analysis.statistics.means import Estimate
from paceline.analysis.statistics.multiple_comparisons import judge


@pytest.mark.parametrize(
    ("low", "high", "verdict", "within"),
    [
        (1.2, 3.0, "better", False),
        (-3.0, -1.2, "worse", False),
        (-0.5, 0.6, "equivalent", True),
        (-1.5, 0.6, "not told", False),
        (0.1, 0.6, "better", True),  # different, and too little to matter
        (-0.6, -0.1, "worse", True),
        (float("nan"), float("nan"), "not told", False),
    ],
)
def test_difference_and_margin_are_two_questions(low, high, verdict, within):
    found = Estimate((low + high) / 2, low, high)
    judgement = judge(found, found, margin=1)
    assert (str(judgement.verdict), bool(judgement.within)) == (verdict, within)


def test_the_narrower_interval_decides_on_the_margin_alone():
    judgement = judge(Estimate(0.4, -0.3, 1.1), Estimate(0.4, -0.1, 0.9), margin=1)
    assert str(judgement.verdict) == "equivalent"
