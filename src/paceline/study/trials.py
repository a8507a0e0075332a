"""Trials of hyperparameter searches: their settings and results, and the box they are in."""

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from paceline.record.result import Result
from paceline.settings import Count, Positive, settings


def _rising(values: list[float]) -> list[float]:
    if values[0] >= values[1]:
        raise ValueError("should rise")
    return values


def _at_most_1(values: list[float]) -> list[float]:
    if values[1] > 1:
        raise ValueError("at most 1 is needed, where momentum is 0")
    return values


Range = Annotated[
    list[Positive], Field(min_length=2, max_length=2), AfterValidator(_rising)
]  # lowest and highest value
MomentumRange = Annotated[Range, AfterValidator(_at_most_1)]  # of 1 - momentum
_EDGE = 0.1  # share of the length of a search's box, in logarithms, at each of its sides


@settings("trial")
class Trial:
    """Values of training.lr, training.momentum and the seed that a search tries in one run.

    `own`: names and values of settings of the scheme that the search changes.
    """

    lr: Positive
    momentum: Annotated[float, Field(strict=True, ge=0, lt=1)]
    seed: Count
    own: tuple[tuple[str, Any], ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The values that the trial sets, without the seed, by dotted name."""
        return {"training.lr": self.lr, "training.momentum": self.momentum, **dict(self.own)}

    @property
    def effective_rate(self) -> float:
        """Step length lr / (1 - momentum) to which a constant gradient of 1 leads."""
        return self.lr / (1 - self.momentum)

    @property
    def override(self) -> str:
        """The trial as a value of the setting `trial` on the command line."""
        own = ",".join(f"[{name},{value}]" for name, value in self.own)
        own = f",own:[{own}]" if own else ""
        return f"{{lr:{self.lr!r},momentum:{self.momentum!r},seed:{self.seed}{own}}}"


ResultOf = Callable[[Trial], Result | None]  # result.json of a trial; None without a record


class Tried(NamedTuple):
    """Trials of one configuration that are known so far, with the best one.

    `best`: the best trial; None until all known trials have results. `edge`: if the best trial is
    at an edge of the searched range, words for this edge, else "".
    """

    trials: tuple[Trial, ...]
    best: Trial | None
    edge: str


class Searched(NamedTuple):
    """Configuration as its search sees it: the name of its scheme, and its results so far.

    `ended`: its search, if it has ended and is kept as it was; else None.
    """

    scheme: str
    result_of: ResultOf
    ended: Tried | None = None


def top1_of(result: Result) -> float:
    """Return the final validation top-1 of a trial; NaN if it did not finish."""
    return result["top1"] if result["status"] == "finished" else math.nan


class Side(NamedTuple):
    """Side of a SearchBox: the end with the lowest or the highest values of one of its axes."""

    axis: int
    is_high: bool

    def __str__(self) -> str:
        return f"{'highest' if self.is_high else 'lowest'} {SearchBox._fields[self.axis]}"


class Bounds(NamedTuple):
    """Lowest and highest value of a setting, both above 0."""

    low: float
    high: float

    def at(self, place: float) -> float:
        """Return the value at `place`, from 0 (`low`) to 1 (`high`) on a logarithmic scale."""
        return self.low * (self.high / self.low) ** place

    def place(self, value: float) -> float:
        """Return the inverse of `at`."""
        return math.log(value / self.low) / math.log(self.high / self.low)


class SearchBox(NamedTuple):
    """Bounds of lr / (1 - momentum) and of 1 - momentum (Shallue et al. 2019, arXiv:1811.03600).

    A search draws each of these two values uniformly on a logarithmic scale.
    """

    effective_rate: Bounds
    one_minus_momentum: Bounds

    def trial(self, rate: float, rest: float, seed: int, own: tuple[Any, ...] = ()) -> Trial:
        """Return the trial at these places in the box, from 0 to 1.

        The learning rate is rounded to 4 significant digits, and 1 - momentum to 3. Without this,
        the values, and so the keys of records, would depend on how a machine rounds logarithms.
        """
        left = float(f"{self.one_minus_momentum.at(rest):.3g}")
        lr = float(f"{self.effective_rate.at(rate) * left:.4g}")
        return Trial(lr=lr, momentum=round(1 - left, 6), seed=seed, own=own)

    def edge(self, effective_rate: float, one_minus_momentum: float) -> Side | None:
        """Return the nearest side if these values are in the outer tenth of the box, else None.

        A side at momentum 0 is never returned, because no momentum lies beyond it.
        """
        values = (effective_rate, one_minus_momentum)
        places = [bounds.place(value) for bounds, value in zip(self, values, strict=True)]
        depths = [(place, Side(axis, False)) for axis, place in enumerate(places)]
        depths += [(1 - place, Side(axis, True)) for axis, place in enumerate(places)]
        closed = [Side(1, True)] if self.one_minus_momentum.high >= 1 else []
        near = [(depth, side) for depth, side in depths if depth < _EDGE and side not in closed]
        return min(near)[1] if near else None
