"""Lemmas of Zou 2017 (doi 10.1007/978-3-319-69179-4_2) on the number of workers and of servers.

A step of a batch takes one worker T_C + T_O, and G workers that share the batch T_C / G + T_O: T_C
computing, T_O overhead that computing does not hide, R = T_O / T_C. So

    speed-up = G alpha,   alpha = (1 + R) / (1 + G R)

The premise is that T_O does not depend on G: over a ring it grows by less than 2, over one server
in proportion (a test holds the cost models to that). The formulas are derived anew from these
times, since the paper's text was not at hand.
"""

import math

_ROUNDING = 1e-9  # relative; less than that is not a server more


def efficiency(overhead: float, workers: float) -> float:
    """Return alpha for R = `overhead`."""
    return (1 + overhead) / (1 + workers * overhead)


def largest_overhead(efficiency: float, workers: float) -> float:
    """Return the greatest R with which `workers` have at least this efficiency, inf for any."""
    if efficiency * workers <= 1:
        return math.inf
    return (1 - efficiency) / (efficiency * workers - 1)


def most_workers(efficiency: float, overhead: float) -> float:
    """Return the greatest number of workers, not rounded, with at least this efficiency."""
    if not overhead:
        return math.inf
    return (1 + overhead - efficiency) / (efficiency * overhead)


def limit_of_speedup(overhead: float) -> float:
    """Return the speed-up that no number of workers exceeds."""
    return (1 + overhead) / overhead if overhead else math.inf


def servers_needed(num_bytes: float, workers: int, bandwidth: float, seconds: float) -> int:
    """Return the fewest servers whose links carry all pushes and answers during computing.

    `num_bytes`: of the weights, spread evenly; `bandwidth`: of a server [bytes/s]; `seconds`: that
    a worker computes between two pushes.
    """
    return max(1, math.ceil(2 * num_bytes * workers / (bandwidth * seconds) * (1 - _ROUNDING)))


def workers_served(num_bytes: float, servers: int, bandwidth: float, seconds: float) -> int:
    """Return the most workers for which so many servers suffice; `servers_needed` inverted."""
    return math.floor(servers * bandwidth * seconds / (2 * num_bytes) * (1 + _ROUNDING))
