"""Quasi-random search of learning rate and momentum, repeated, with a box that can grow.

After AlgoPerf's tuning rule (Dahl et al. 2023, arXiv:2306.07179): several searches of equal budget,
each with few quasi-random trials, show how much luck there is in a search.
"""

import math
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from scipy.stats import qmc

from paceline.errors import SettingError
from paceline.settings import Count, Positive, Whole, settings
from paceline.study.abstract_tuning import AbstractTuning, ResultOf, Trial, Tried, best_trial
from paceline.study.search_box import Bounds, SearchBox

Range = Annotated[list[Positive], Field(min_length=2, max_length=2)]


@settings("tuning")
class QuasiRandomSearch(AbstractTuning):
    """Tuning by `searches` searches of `trials` trials each, at points of one Sobol sequence.

    `at`: settings that trials have in place of a point's own, so that points which differ in these
    alone share a rate: what somebody has who tunes once, before a worker is slow or a link is.
    `effective_rate`: lowest and highest lr / (1 - momentum), before any training.lr_rule.
    `one_minus_momentum`: likewise, at most 1. The runs of search k have seed `seed` + k.

    The best of the trials of all searches is the configuration's: reported points have other seeds
    and images, so its luck does not reach them, and a choice by fewer trials would be worse. While
    it lies in the outer tenth of the box, the box is extended there, at most `extensions` times, by
    `extension_trials` trials of each search. The new part is as long as keeps trials equally dense,
    so that all trials of a search are drawn alike from the whole box.
    """

    effective_rate: Range
    one_minus_momentum: Range
    searches: Whole
    trials: Whole
    extensions: Count
    extension_trials: Whole
    seed: Count
    at: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for name, (low, high) in (
            ("effective_rate", self.effective_rate),
            ("one_minus_momentum", self.one_minus_momentum),
        ):
            if low >= high:
                raise SettingError(f"tuning.{name}", f"should rise, not {[low, high]}")
        if self.one_minus_momentum[1] > 1:
            message = f"at most 1 is needed, where momentum is 0, not {self.one_minus_momentum}"
            raise SettingError("tuning.one_minus_momentum", message)

    @cached_property
    def first(self) -> Sequence[Trial]:
        """Return the trials in the box as it is set, search by search."""
        return self._in(self._box, 0, self.trials)

    def tried(self, result_of: ResultOf) -> Tried:
        """Return the trials in the box, and in the extensions to which their results lead."""
        box, trials, each = self._box, list(self.first), self.trials
        for extension in range(self.extensions + 1):
            best = best_trial(trials, result_of)
            side = box.edge(best) if best else None
            if side is None or extension == self.extensions:
                break
            part = box.beyond(side, self.extension_trials / each)
            trials += self._in(part, each, self.extension_trials)
            box, each = box.joined(part, side), each + self.extension_trials
        return Tried(tuple(trials), best, str(side or ""))

    @property
    def _box(self) -> SearchBox:
        return SearchBox(Bounds(*self.effective_rate), Bounds(*self.one_minus_momentum))

    def _in(self, box: SearchBox, before: int, count: int) -> list[Trial]:
        """Return `count` trials of each search in `box`, at the points after `before` of each."""
        start = before * self.searches
        places = self._places[start : start + count * self.searches]
        return [box.trial(each, self.seed + index // count) for index, each in enumerate(places)]

    @cached_property
    def _places(self) -> np.ndarray:
        """Return the points of the sequence, for the box and all extensions: [n, 2] in [0, 1)."""
        num = self.searches * (self.trials + self.extensions * self.extension_trials)
        return qmc.Sobol(2, rng=self.seed).random_base2(math.ceil(math.log2(num)))
