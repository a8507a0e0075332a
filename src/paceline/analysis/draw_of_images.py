"""Computes how much another draw of the test images would change a difference of accuracies.

All runs of a study are scored on the same images, so that their seeds cannot tell it. What two
configurations both get right, or both wrong, cancels: an image counts by how much more often the
one is right on it than the other (McNemar 1947, for means over seeds).
"""

import numpy as np

from paceline.analysis.statistics.estimate import Array
from paceline.analysis.tables import Frame, Tables


def variance_of_draw(tables: Tables, one: Frame, other: Frame) -> float:
    """Return the variance of the difference of two mean accuracies by the draw of the images.

    `one`, `other`: rows of finished runs. 0 if records do not tell which images were right.
    """
    first, second = _shares(tables, one), _shares(tables, other)
    if first is None or second is None:
        return 0.0
    difference = first - second
    return float(difference.var() / len(difference))


def _shares(tables: Tables, own: Frame) -> Array | None:
    """Return the share of runs that were right, by image."""
    known = [right for key in own["key"] if (right := tables.right(key)) is not None]
    return np.mean(known, axis=0) if known else None
