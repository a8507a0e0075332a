"""Worlds of accuracies: a reference and ten schemes, of a few seeds each."""

from collections.abc import Sequence

import numpy as np
from scipy.special import expit, ndtr, ndtri

from benchmarks.planted_world import Aim, Found, found
from paceline.analysis.statistics.means import (
    POSITIVE,
    Space,
    intervals_of_means,
    logit_of,
    pooled,
    variance_of_logit,
)
from paceline.analysis.statistics.multiple_comparisons import (
    EQUIVALENT,
    against_reference,
    for_equivalence,
    holm,
    judge,
    unadjusted,
)

SIZES = {"n 3": (3,) * 11, "n 8": (8,) * 11, "n 8, reference 24": (24,) + (8,) * 10}
SPREAD = np.linspace(-4, 4, 11)  # of true means, in standard deviations
IMAGES = 2000


def families(
    seed: int, draws: int, sizes: Sequence[int], means: np.ndarray, deviations: float = 1.0
) -> list[np.ndarray]:
    """Normal groups [draws, n]."""
    rng = np.random.default_rng(seed)
    scales = np.broadcast_to(deviations, len(sizes))
    return [
        rng.normal(mean, scale, (draws, n))
        for mean, scale, n in zip(means, scales, sizes, strict=True)
    ]


def simultaneous(draws: int) -> list[Found]:
    rows = []
    for name, sizes in SIZES.items():
        family = pooled(families(1, draws, sizes, SPREAD))
        means, all_ten = intervals_of_means(family), against_reference(family, 0)
        covered = all_ten.covers(SPREAD[1:] - SPREAD[0]).all(axis=1)
        equal = against_reference(pooled(families(2, draws, sizes, 0 * SPREAD)), 0)
        told = ~equal.covers(0.0).all(axis=1)
        rows += [
            found(f"a mean, pooled variance, {name}", means.covers(SPREAD), Aim.COVERAGE),
            found(f"all 10 differences from the reference, {name}", covered, Aim.COVERAGE),
            found(f"any of 10 equal schemes significantly different, {name}", told, Aim.SIZE),
        ]
    return rows


def power(draws: int) -> list[Found]:
    """One scheme of ten is worse, by so many points; standard deviation 0.5 points."""
    rows = []
    for name, n, differences in (("n 3", 3, (0.5, 1.0, 1.5)), ("n 8", 8, (0.5, 0.75, 1.0))):
        for points in differences:
            means = np.array([0.0] * 10 + [-points])
            ten = against_reference(pooled(families(3, draws, (n,) * 11, means, 0.5)), 0)
            text = f"a scheme worse by {points} points found, s.d. 0.5, {name}"
            rows.append(found(text, np.asarray(ten.high)[:, -1] < 0, Aim.POWER))
    return rows


def skewed_times(draws: int) -> list[Found]:
    """Log-normal, with medians from 1 to 4: a third of the times is 35 % off."""
    means = np.linspace(0, np.log(4), 11)
    rows = []
    for name, sizes in SIZES.items():
        groups = [np.exp(g) for g in families(4, draws, sizes, means, 0.3)]
        rows.append(_family(f"all 10 ratios of skewed times, {name}", groups, POSITIVE, means))
    return rows


def shares_near_one(draws: int) -> list[Found]:
    """From 97.1 to 98.9 %, each seed scored on images of its own."""
    means, rng = np.linspace(3.5, 4.5, 11), np.random.default_rng(5)
    rows = []
    for name, sizes in SIZES.items():
        logits = families(6, draws, sizes, means, 0.3)
        groups = [rng.binomial(IMAGES, expit(g)) / IMAGES for g in logits]
        text = f"all 10 ratios of odds of shares near 1, {name}"
        rows.append(_family(text, groups, logit_of(IMAGES), means))
    return rows


def _family(name: str, groups: list[np.ndarray], space: Space, means: np.ndarray) -> Found:
    ten = against_reference(pooled(groups, space), 0)
    truth = space.contrast(means[1:] - means[0])
    return found(name, ten.covers(truth).all(axis=1), Aim.COVERAGE)


def unequal_variance(draws: int) -> list[Found]:
    """A limit: the variance is pooled, and the last scheme has another."""
    rows = []
    for times in (2.0, 3.0):
        deviations = np.array([1.0] * 10 + [times])
        groups = families(7, draws, (8,) * 11, SPREAD, deviations)  # type: ignore[arg-type]
        ten = against_reference(pooled(groups), 0).covers(SPREAD[1:] - SPREAD[0])
        text = f"one scheme's s.d. is {times:g} times that of the others, n 8"
        rows += [
            found(f"all 10 differences, {text}", ten.all(axis=1), Aim.LIMIT),
            found(f"the 9 others' differences, {text}", ten[:, :-1].all(axis=1), Aim.LIMIT),
        ]
    return rows


def pairs_by_holm(draws: int) -> list[Found]:
    rows = []
    for name, n in (("n 3", 3), ("n 8", 8)):
        p = holm(unadjusted(pooled(families(8, draws, (n,) * 10, np.zeros(10)))))
        text = f"any of 45 pairs of equal schemes significantly different (Holm), {name}"
        rows.append(found(text, (p <= 0.05).any(axis=1), Aim.SIZE))
    return rows


def equivalence(draws: int) -> list[Found]:
    """Margin of 1 point, standard deviation 0.5 points."""
    rows = []
    edge = np.array([0.0] + [1.0, -1.0] * 5)
    for name, sizes in SIZES.items():
        for true, aim in ((edge, Aim.SIZE), (0 * edge, Aim.POWER)):
            family = pooled(families(9, draws, sizes, true, 0.5))
            sides = (against_reference(family, 0), for_equivalence(family, 0))
            judgement = judge(*sides, margin=1)
            if aim is Aim.SIZE:
                hits, what = judgement.within.any(axis=1), "any of 10 on the margin called within"
            else:
                hits, what = judgement.verdict == EQUIVALENT, "an equal scheme called equivalent"
            rows.append(found(f"{what} 1 point, s.d. 0.5, {name}", hits, aim))
    return rows


def finite_test_set(draws: int) -> list[Found]:
    """Images differ in difficulty (95 % of the latent variance), seeds in skill."""
    rng, images, skill, alike = np.random.default_rng(10), 1000, 0.88, 0.95
    threshold, seeds = ndtri(skill), 8
    truth = ndtr(threshold / np.sqrt(1 + 0.05**2))
    shares = np.empty((draws, seeds))
    for draw in range(draws):
        image = np.sqrt(alike) * rng.standard_normal(images)
        own = np.sqrt(1 - alike) * rng.standard_normal((seeds, images))
        bars = threshold + 0.05 * rng.standard_normal((seeds, 1))
        shares[draw] = (image + own < bars).mean(axis=1)
    family = pooled([shares], logit_of(images))
    extra = variance_of_logit(shares.mean(axis=1, keepdims=True), images)
    text = f"accuracy 88 % on other images than the {images} of the test, n {seeds}"
    return [
        found(f"{text}, test-set error added", _covers(family, truth, extra), Aim.AT_LEAST),
        found(f"{text}, of the seeds alone", _covers(family, truth, 0.0), Aim.LIMIT),
    ]


def _covers(family, truth, extra) -> np.ndarray:
    return intervals_of_means(family, extra_variance=extra).covers(truth)


PROMISED = (
    simultaneous,
    skewed_times,
    shares_near_one,
    pairs_by_holm,
    equivalence,
    finite_test_set,
)
SHOWN = (power, unequal_variance)
