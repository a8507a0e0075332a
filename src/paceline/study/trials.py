"""Hyperparameter searches: which learning rates and momenta are tried, and which are the best.

The quasi-random search follows AlgoPerf's tuning rule (Dahl et al. 2023, arXiv:2306.07179): several
searches of equal budget with few trials each show how much the result depends on luck.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from paceline.errors import SettingError
from paceline.record.record import Result
from paceline.settings import Count, Positive, Whole, settings


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


class Searched(NamedTuple):
    """Configuration as its search sees it: the name of its scheme, and its results so far."""

    scheme: str
    result_of: ResultOf


class Tried(NamedTuple):
    """Trials of one configuration that are known so far, with the best one.

    `best`: the best trial; None until all known trials have results. `edge`: if the best trial is
    at an edge of the searched range, words for this edge, else "".
    """

    trials: tuple[Trial, ...]
    best: Trial | None
    edge: str


def best_trial(trials: Iterable[Trial], result_of: ResultOf) -> Trial | None:
    """Return the trial with the best final validation top-1; None if a result is missing.

    A trial that diverged or failed is worse than any finished one. Of trials with equal top-1, the
    one with the smallest effective rate is the best.
    """
    scored = list[tuple[float, float, Trial]]()
    for trial in trials:
        if (result := result_of(trial)) is None:
            return None
        score = np.nan_to_num(top1_of(result), nan=-1.0)
        scored.append((score, -trial.effective_rate, trial))
    return max(scored, key=lambda each: each[:2])[2]


def top1_of(result: Result) -> float:
    """Return the final validation top-1 of a trial; NaN if it did not finish."""
    return result["top1"] if result["status"] == "finished" else math.nan


class AbstractTuning(ABC):
    """Rule that chooses the trials of each configuration of a study.

    `at`: settings that have other values in trials than in the points of the study.
    """

    at: Mapping[str, Any]

    @abstractmethod
    def first(self, searched: Searched) -> Sequence[Trial]:
        """Return the trials of a configuration that do not depend on any result."""

    @abstractmethod
    def tried(self, searched: Searched, family: Sequence[Searched]) -> Tried:
        """Return a configuration's trials that follow from the results so far, with the best.

        `family`: the configurations that differ from `searched` in their scheme only, and itself.
        """

    def own_of(self, scheme: str, trial: Trial) -> Mapping[str, Any]:
        """Return the columns OWN of tuning.csv for a trial; none if it has no setting of its own.

        A trial has one if the search changes a setting of its scheme.
        """
        return {}

    def names(self, scheme: str) -> list[str]:
        """Return the dotted names of the settings that a trial sets, without the seed."""
        return list(self.first(Searched(scheme, lambda _: None))[0].settings)

    def require_other_seeds(self, seeds: Iterable[int]) -> None:
        """Raise SettingError if a trial has one of `seeds`, the seeds of reported points."""
        trials = self.first(Searched("", lambda _: None))
        if common := {trial.seed for trial in trials} & set(seeds):
            message = f"{min(common)} is also a seed of the study's own points"
            raise SettingError("tuning.seed", message)


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

    def beyond(self, side: Side, share: float) -> "tuple[SearchBox, SearchBox]":
        """Return the box that lies next to this one beyond `side`, and both boxes as one.

        Across this side, it has `share` times the logarithmic length of this box, but it ends at
        momentum 0.
        """
        bounds, name = self[side.axis], self._fields[side.axis]
        low, high = bounds.at(-share), bounds.at(1 + share)
        high = min(1.0, high) if side.axis == 1 else high
        part = Bounds(bounds.high, high) if side.is_high else Bounds(low, bounds.low)
        both = Bounds(min(part.low, bounds.low), max(part.high, bounds.high))
        return self._replace(**{name: part}), self._replace(**{name: both})


@settings("tuning")
class QuasiRandomSearch(AbstractTuning):
    """Tuning by `searches` searches of `trials` trials each, at points of one Sobol sequence.

    `at`: settings that have other values in trials than in the points of the study, so that points
    which differ only in these settings get the same learning rate. `effective_rate`: lowest and
    highest lr / (1 - momentum), before training.lr_rule changes the rate. `one_minus_momentum`:
    lowest and highest 1 - momentum. The runs of search k have the seed `seed` + k.

    The points of a configuration get the learning rate and momentum of the best trial of all
    searches. As long as the best trial is in the outer tenth of the search box, the box is extended
    at this side, by `extension_trials` more trials of each search, but at most `extensions` times.
    The new part has the same density of trials as the box.
    """

    effective_rate: Range
    one_minus_momentum: MomentumRange
    searches: Whole
    trials: Whole
    extensions: Count
    extension_trials: Whole
    seed: Count
    at: dict[str, Any] = field(default_factory=dict[str, Any])

    def first(self, searched: Searched) -> Sequence[Trial]:
        """Return the trials in the box that the settings define, search by search."""
        return self._first

    def tried(self, searched: Searched, family: Sequence[Searched]) -> Tried:
        """Return the trials in the box, and in the extensions that follow from results so far."""
        box, trials, each = self._box, list(self._first), self.trials
        for extension in range(self.extensions + 1):
            best = best_trial(trials, searched.result_of)
            side = box.edge(best.effective_rate, 1 - best.momentum) if best else None
            if side is None or extension == self.extensions:
                break
            part, box = box.beyond(side, self.extension_trials / each)
            trials += self._in(part, each, self.extension_trials)
            each += self.extension_trials
        return Tried(tuple(trials), best, str(side or ""))

    @property
    def _box(self) -> SearchBox:
        return SearchBox(Bounds(*self.effective_rate), Bounds(*self.one_minus_momentum))

    @cached_property
    def _first(self) -> list[Trial]:
        return self._in(self._box, 0, self.trials)

    def _in(self, box: SearchBox, before: int, count: int) -> list[Trial]:
        """Return `count` trials of each search in `box`.

        They use the next points of the Sobol sequence, after the first `before` of each search.
        """
        start = before * self.searches
        places = self._places[start : start + count * self.searches]
        return [
            box.trial(float(rate), float(rest), self.seed + index // count)
            for index, (rate, rest) in enumerate(places)
        ]

    @cached_property
    def _places(self) -> np.ndarray:
        """The points of the sequence, for the box and all extensions: [n, 2] in [0, 1)."""
        num = self.searches * (self.trials + self.extensions * self.extension_trials)
        from scipy.stats import qmc  # takes half a second, and few commands draw trials

        return qmc.Sobol(2, rng=self.seed).random_base2(math.ceil(math.log2(num)))
