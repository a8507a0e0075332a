"""Computes the error that a finite test set adds to accuracies, the same for all seeds.

Seeds tell how much training varies; that all of them are scored on the same images, they cannot
tell. What is said of the test images themselves needs none of this.
"""

import numpy as np

from paceline.analysis.statistics.estimate import Numbers


def variance_of_accuracy(share: Numbers, images: int) -> Numbers:
    """Return the variance of an accuracy, a share, by the draw of the images.

    It is that of one binomial draw for all seeds, since they agree on most images; where they do
    not, the variance is smaller.
    """
    return share * (1 - np.asarray(share)) / images


def variance_of_logit(share: Numbers, images: int) -> Numbers:
    """Return the variance of the logit of an accuracy by the draw of the images."""
    inner = (np.asarray(share) * images + 0.5) / (images + 1)  # never 0 or 1
    return 1 / (inner * (1 - inner) * images)


def variance_of_difference(
    one: Numbers, other: Numbers, images: int, disagreement: Numbers | None = None
) -> Numbers:
    """Return the variance of a difference of accuracies on the same images by their draw.

    On images that both get right, or both wrong, the draw cancels. `disagreement` is the share of
    images on which one of the two alone is right (McNemar 1947); where it is unknown, it is taken
    to be that of independent errors. Networks that learned from the same images err together, so
    that this is too large by far, and never too small unless they avoid each other's errors.
    """
    one, other = np.asarray(one), np.asarray(other)
    if disagreement is None:
        disagreement = one * (1 - other) + other * (1 - one)
    return (disagreement - (one - other) ** 2) / images
