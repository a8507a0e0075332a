"""Lemma of Zou 2017 (doi 10.1007/978-3-319-69179-4_2) on the number of workers.

One worker needs T_C + T_O for a step, and G workers that share the batch need T_C / G + T_O. T_C is
the time to compute, T_O the overhead (of exchanges) that does not overlap with computing. So

    speed-up = G alpha,   efficiency alpha = (1 + R) / (1 + G R),   R = T_O / T_C

The formula assumes that T_O does not depend on G. The formulas were derived from the times above,
without the paper's text.
"""

import math


def efficiency(overhead: float, workers: float) -> float:
    """Return the efficiency alpha for R = `overhead`."""
    return (1 + overhead) / (1 + workers * overhead)


def largest_overhead(efficiency: float, workers: float) -> float:
    """Return the largest R with at least this efficiency; inf if every R has it."""
    if efficiency * workers <= 1:
        return math.inf
    return (1 - efficiency) / (efficiency * workers - 1)
