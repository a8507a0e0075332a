"""Judges contrasts by a margin that was declared before: two one-sided tests (TOST).

Schuirmann 1987, J. Pharmacokinet. Biopharm. 15. Difference and equivalence are two questions: a
contrast may be shown not to be zero, and to be too small to matter.
"""

from typing import NamedTuple

import numpy as np

from paceline.analysis.statistics.estimate import Array, Estimate

BETTER, WORSE, EQUIVALENT, NOT_TOLD = "better", "worse", "equivalent", "not told"


class Judgement(NamedTuple):
    """Verdicts [...], and whether each contrast is shown to lie within the margin [...].

    A verdict is `better` or `worse` where a difference is shown, even a small one; `equivalent`
    where none is shown, but that it lies within the margin; else `not told`.
    """

    verdict: Array
    within: Array


def judge(
    difference: Estimate, equivalence: Estimate, margin: tuple[float, float], neutral: float = 0.0
) -> Judgement:
    """Judge contrasts of which more is better.

    `difference` has intervals of level 1 - alpha, `equivalence` those of two one-sided tests at
    alpha, simultaneous if both families are. `margin` has the two ends between which a contrast
    does not matter: -m and m of differences, 1 / m and m of ratios. `neutral` is 'no difference':
    0, or 1 for ratios.
    """
    least, most = margin
    within = (np.asarray(equivalence.low) > least) & (np.asarray(equivalence.high) < most)
    better, worse = difference.low > neutral, difference.high < neutral
    verdict = np.select([better, worse, within], [BETTER, WORSE, EQUIVALENT], NOT_TOLD)
    return Judgement(verdict, within)
