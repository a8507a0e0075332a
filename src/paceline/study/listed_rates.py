"""Tuning by a list of learning rates, the momentum as the study sets it."""

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from paceline.settings import Count, Positive, settings
from paceline.study.abstract_tuning import AbstractTuning, ResultOf, Trial, Tried, best_trial


@settings("tuning")
class ListedRates(AbstractTuning):
    """Tuning that tries every learning rate of `values` once, with `seed`."""

    values: Annotated[list[Positive], Field(min_length=1)]
    seed: Count
    at: dict[str, Any] = field(default_factory=dict[str, Any])

    @cached_property
    def first(self) -> Sequence[Trial]:
        """Return a trial for each rate."""
        return [Trial(lr=lr, momentum=None, seed=self.seed) for lr in dict.fromkeys(self.values)]

    def tried(self, result_of: ResultOf) -> Tried:
        """Return one trial for each rate; the smallest and the largest rate are edges."""
        best = best_trial(self.first, result_of)
        return Tried(tuple(self.first), best, self._edge(best))

    def _edge(self, best: Trial | None) -> str:
        if best is None or len(self.first) == 1:
            return ""
        ends = {min(self.values): "smallest training.lr", max(self.values): "largest training.lr"}
        return ends.get(best.lr, "")
