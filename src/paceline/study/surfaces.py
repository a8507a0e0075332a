"""Gaussian process of how accuracy depends on the learning rate and the momentum of a search.

The schemes of a family are trained at different places: vectors of log10(lr / (1 - momentum)),
log10(1 - momentum), and the place of the scheme's own setting, from 0 to 1. The gain of a trial is
minus the logarithm of its error. A member's gain at a place is the sum of a constant, a parabola
and a smooth part that all members share, and a smooth part of its own (Matern 5/2; Rasmussen and
Williams 2006, chapters 2 and 4). The ratios of these parts make 318 earlier trials of 11 schemes
with 1 to 256 workers likely; their common scale follows from the trials of the family.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist
from scipy.stats import norm

Array: TypeAlias = np.ndarray
_LENGTHS = np.array([0.6, 1.2, 0.5])  # of the smooth parts, along each axis of a place
_MIDDLE = np.array([-0.8, -0.5, 0.5])  # of the parabola
_CONSTANT, _CURVED, _OWN, NOISE = 10.0, 3.0, 2.5, 1.0  # standard deviations; 1 is the shared part
_SCALE, _TRUST = 0.028, 4  # of gains before any trial, and the number of trials that it counts for
_POOR = 1.6  # times the smallest error of its member, beyond which a trial did not train
LEAST = 0.001  # added to errors, which may be 0
_FAR = 1e9  # distance to a trial that is not there
_CLIFF = np.array([0.75, 1.5, 1.0])  # lengths by which a place is near a trial that did not train
_NEAR = 0.5  # of these lengths: how far from a trial that trained a round goes if few did,
_FEW = (
    0.45  # a share; 0.4 of the family's trials trained in rounds that went astray, 0.46 in others
)


def points_of(gain: ArrayLike, top1: ArrayLike) -> Array:
    """Return by how much the accuracy `top1`, a share, rises if its gain rises by `gain`."""
    return -np.expm1(-np.asarray(gain)) * (1 + LEAST - np.asarray(top1))


@dataclass(frozen=True)
class Surfaces:
    """Surfaces of a family after its trials.

    `places` [trials, 3], `members` [trials] (indices), `gains` [trials]: NaN for trials that tell
    nothing. `trained` [trials]: whether a trial trained. `few`: few of them did.
    """

    places: Array
    members: Array
    gains: Array
    trained: Array
    few: bool = False

    @classmethod
    def of_top1(cls, places: Array, members: Array, top1: Array) -> "Surfaces":
        """Return the surfaces of accuracies; `top1` is NaN for trials that did not finish.

        A trial did not train either if its error is far above the smallest one of its member. Such
        a trial tells nothing, unless few trials of the family trained so far. In this case it tells
        that its place is poor, since otherwise a parabola through the few promises most at the
        farthest corner. How poor it is does not count, since accuracy falls there as at a cliff.
        """
        error = np.where(np.isnan(top1), np.inf, 1 + LEAST - top1)
        least = np.full(members.max(initial=-1) + 1, np.inf)
        np.minimum.at(least, members, error)
        poor = _POOR * least[members]
        trained = np.isfinite(error) & (error <= poor)
        few = bool(trained.sum() < _FEW * len(trained))
        told = np.isfinite(error) if few else trained
        gains = np.where(told, -np.log(np.fmin(error, poor)), np.nan)
        return cls(places, members, gains, trained, few)

    def towards_cliff(self, places: Array, member: int) -> Array:
        """Return how far `places` are on the way from the nearest trial that trained, at 0, to the
        nearest one that did not, at 1.

        Without a trial that trained, only the place that is farthest from all trials is at 0.
        """
        own = self.members == member
        near, far = (
            cdist(places / _CLIFF, self.places[own & which] / _CLIFF).min(1, initial=_FAR)
            for which in (self.trained, ~self.trained)
        )
        if not (own & self.trained).any():
            return np.where(far == far.max(), 0.0, 1.0)
        return near / (near + far)

    def within(self, places: Array, member: int) -> Array:
        """Return whether `places` are nearer to a trial that trained than to one that did not."""
        return self.towards_cliff(places, member) <= 0.5

    def in_reach(self, places: Array, member: int) -> Array:
        """Return whether `places` are near a trial that trained.

        All are, unless few trials of the family trained, and one of this member did.
        """
        own = self.trained & (self.members == member)
        if not self.few or not own.any():
            return np.full(len(places), True)
        return cdist(places / _CLIFF, self.places[own] / _CLIFF).min(1) <= _NEAR

    def grid(self, steps: tuple[int, int, int] = (17, 9, 4)) -> Array:
        """Return places [n, 3] that fill a box around all trials evenly, with a margin of a tenth.

        No momentum is below 0, and no place of an own setting is outside of 0 to 1.
        """
        low, high = self.places.min(axis=0), self.places.max(axis=0)
        margin = 0.1 * (high - low) * [1, 1, 0]
        ends = zip(low - margin, np.minimum(high + margin, [np.inf, 0, 1]), steps, strict=True)
        axes = [np.linspace(low, high, n if high > low else 1) for low, high, n in ends]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)

    def predict(self, places: Array, member: int) -> tuple[Array, Array]:
        """Return mean and standard deviation of the gain of `member` at `places`."""
        members = np.full(len(places), member)
        across = _covariance(places, members, *self._inputs)
        rest = 1 + _OWN**2 + _CONSTANT**2 + _CURVED**2 * (_parabola(places) ** 2).sum(1)
        variance = rest - (across * cho_solve(self._factor, across.T).T).sum(1)
        return across @ self._weights, self.scale * np.sqrt(np.maximum(variance, 1e-9))

    def best(self, member: int) -> int | None:
        """Return the trial of `member` with the largest expected gain; None if none trained."""
        (own,) = np.nonzero(self.trained & (self.members == member))
        return int(own[self.predict(self.places[own], member)[0].argmax()]) if len(own) else None

    def improvement(self, places: Array, member: int) -> Array:
        """Return the expected improvement of the best trial by one more at each of `places`."""
        mean, deviation = self.predict(places, member)
        (own,) = np.nonzero(self.trained & (self.members == member))
        most = self.predict(self.places[own], member)[0].max() if len(own) else mean.min()
        ratio = (mean - most) / deviation
        found = deviation * (ratio * norm.cdf(ratio) + norm.pdf(ratio))
        return np.where(self.within(places, member), found, -1.0)

    def believing(self, place: Array, member: int) -> "Surfaces":
        """Return the surfaces as if a trial at `place` had its expected gain."""
        (mean,), _ = self.predict(place[None], member)
        places = np.vstack([self.places, place])
        members, gains = np.append(self.members, member), np.append(self.gains, mean)
        return Surfaces(places, members, gains, np.append(self.trained, True), self.few)

    def draws(self, rng: Generator, places: Array, number: int) -> Array:
        """Draw surfaces given the trials: gains [members, places, number].

        By Matheron's rule: surfaces and trials are drawn before any trial, and then corrected by
        what the trials tell. The scale, which is uncertain, is drawn too.
        """
        seen, members = self._inputs
        every = np.vstack([places, seen])
        smooth = np.linalg.cholesky(_matern(every, every) + 1e-8 * np.eye(len(every)))
        count = self.members.max() + 1
        normal = rng.standard_normal
        shared = smooth @ normal((len(every), number))
        shared += _CURVED * _parabola(every) @ normal((3, number))
        prior = np.stack(
            [
                shared + _OWN * smooth @ normal((len(every), number)) + _CONSTANT * normal(number)
                for _ in range(count)
            ]
        )
        tried = prior[members, len(places) + np.arange(len(seen))]
        tried = tried + NOISE * normal(tried.shape)
        degrees = self._degrees + _TRUST
        scale = self.scale * np.sqrt(degrees / rng.chisquare(degrees, number))
        wrong = cho_solve(self._factor, self._gains[:, None] - scale * tried)
        across = [_covariance(places, np.full(len(places), m), seen, members) for m in range(count)]
        return np.stack([scale * prior[m, : len(places)] + across[m] @ wrong for m in range(count)])

    @cached_property
    def scale(self) -> float:
        """Standard deviation of the shared smooth part, as the trials tell."""
        if not len(self._gains):
            return _SCALE
        inner = self._gains - self._gains.mean()
        square = float(inner @ cho_solve(self._factor, inner))
        return float(np.sqrt((square + _TRUST * _SCALE**2) / (self._degrees + _TRUST)))

    @property
    def _degrees(self) -> int:
        """Degrees of freedom of the scale, less those of constants and of the parabola."""
        members = self._inputs[1]
        return max(len(members) - len(np.unique(members)) - 3, 0)

    @property
    def _inputs(self) -> tuple[Array, Array]:
        return self.places[self._told], self.members[self._told]

    @property
    def _gains(self) -> Array:
        return self.gains[self._told]

    @property
    def _told(self) -> Array:
        return ~np.isnan(self.gains)

    @cached_property
    def _factor(self) -> tuple[Array, bool]:
        inputs = self._inputs
        return cho_factor(_covariance(*inputs, *inputs) + NOISE**2 * np.eye(len(inputs[0])))

    @cached_property
    def _weights(self) -> Array:
        return cho_solve(self._factor, self._gains)


def _covariance(places: Array, members: Array, others: Array, of: Array) -> Array:
    """Return the covariance of gains, relative to the variance of the shared smooth part."""
    same = members[:, None] == of[None]
    curved = _CURVED**2 * _parabola(places) @ _parabola(others).T
    return _matern(places, others) * (1 + _OWN**2 * same) + _CONSTANT**2 * same + curved


def _parabola(places: Array) -> Array:
    moved = (places - _MIDDLE)[:, :2]
    return np.column_stack([moved, moved[:, 0] ** 2])


def _matern(places: Array, others: Array) -> Array:
    root = np.sqrt(5) * cdist(places / _LENGTHS, others / _LENGTHS)
    return (1 + root + root**2 / 3) * np.exp(-root)
