"""Box of effective rates and momenta, in which tuning searches uniformly in the logarithms."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from paceline.study.abstract_tuning import Trial

_EDGE = 0.1  # share of the length of the box, in logarithms, at each of its sides
_NAMES = ("effective_rate", "one_minus_momentum")


class Side(NamedTuple):
    """Side of a box: the lowest or the highest values of one of its two settings."""

    axis: int
    is_high: bool

    def __str__(self) -> str:
        return f"{'highest' if self.is_high else 'lowest'} {_NAMES[self.axis]}"


class Bounds(NamedTuple):
    """Lowest and highest value of a setting, both above 0."""

    low: float
    high: float

    def at(self, place: float) -> float:
        """Return the value at `place`, from 0 at `low` to 1 at `high`, in logarithms."""
        return self.low * (self.high / self.low) ** place

    def place(self, value: float) -> float:
        """Return the inverse of `at`."""
        return math.log(value / self.low) / math.log(self.high / self.low)


class SearchBox(NamedTuple):
    """Bounds of lr / (1 - momentum) and of 1 - momentum (Shallue et al. 2019, arXiv:1811.03600)."""

    effective_rate: Bounds
    one_minus_momentum: Bounds

    def trial(self, places: Sequence[float], seed: int) -> Trial:
        """Return the trial at two `places` from 0 to 1, with 4 and 3 significant digits.

        So many digits do not depend on how a machine rounds logarithms, on which keys of records
        would depend otherwise.
        """
        rest = float(f"{self.one_minus_momentum.at(places[1]):.3g}")
        lr = float(f"{self.effective_rate.at(places[0]) * rest:.4g}")
        return Trial(lr=lr, momentum=round(1 - rest, 6), seed=seed)

    def edge(self, trial: Trial) -> Side | None:
        """Return the side in whose outer tenth `trial` lies, the nearer of two; None inside.

        Momentum 0 is no edge: there is nothing beyond it.
        """
        values = (trial.effective_rate, 1 - (trial.momentum or 0))
        places = [bounds.place(value) for bounds, value in zip(self, values, strict=True)]
        depths = [(place, Side(axis, False)) for axis, place in enumerate(places)]
        depths += [(1 - place, Side(axis, True)) for axis, place in enumerate(places)]
        near = [(depth, side) for depth, side in depths if depth < _EDGE and self._is_open(side)]
        return min(near)[1] if near else None

    def beyond(self, side: Side, share: float) -> "SearchBox":
        """Return the box beside this one at `side`, `share` of its length long, in logarithms.

        It ends at momentum 0.
        """
        bounds = self[side.axis]
        if side.is_high:
            added = Bounds(bounds.high, bounds.at(1 + share))
        else:
            added = Bounds(bounds.at(-share), bounds.low)
        if side.axis == _NAMES.index("one_minus_momentum"):
            added = Bounds(added.low, min(1.0, added.high))
        return self._with(side, added)

    def joined(self, part: "SearchBox", side: Side) -> "SearchBox":
        """Return this box together with `part`, the one beyond its `side`."""
        ends = (*self[side.axis], *part[side.axis])
        return self._with(side, Bounds(min(ends), max(ends)))

    def _with(self, side: Side, bounds: Bounds) -> "SearchBox":
        return self._replace(**{_NAMES[side.axis]: bounds})

    def _is_open(self, side: Side) -> bool:
        return side != Side(1, True) or self.one_minus_momentum.high < 1
