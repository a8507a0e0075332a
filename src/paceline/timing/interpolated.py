"""Values that were measured at some numbers, and are needed at others."""

from collections.abc import Mapping

import numpy as np


def interpolated(values: Mapping[int, float], at: int) -> float:
    """Return a value by its number: linear between known ones, and that of the nearest beyond."""
    known = sorted(values)
    return float(np.interp(at, known, [values[each] for each in known]))
