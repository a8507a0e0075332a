"""Ways to tune: which learning rates and momenta are tried, and which of them is the best."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from pydantic import Field

from paceline.errors import SettingError
from paceline.record.record import Result
from paceline.settings import Count, Positive, settings


@settings("trial")
class Trial:
    """Settings that tuning tries: training.lr, training.momentum and the seed of the run.

    `momentum` is None if it stays as the study sets it.
    """

    lr: Positive
    momentum: Annotated[float, Field(strict=True, ge=0, lt=1)] | None
    seed: Count

    @property
    def settings(self) -> dict[str, float]:
        """Return the values of the settings in conf/ that the trial decides, besides the seed."""
        own = {} if self.momentum is None else {"training.momentum": self.momentum}
        return {"training.lr": self.lr, **own}

    @property
    def effective_rate(self) -> float:
        """Return lr / (1 - momentum): the length to which a lasting gradient adds up."""
        return self.lr / (1 - (self.momentum or 0))

    def is_in(self, cfg: DictConfig) -> bool:
        """Return True if `cfg` has the rate and the momentum of the trial."""
        return all(OmegaConf.select(cfg, name) == value for name, value in self.settings.items())

    @property
    def override(self) -> str:
        """Return the trial as a value of the setting `trial` on the command line."""
        momentum = "null" if self.momentum is None else repr(self.momentum)
        return f"{{lr:{self.lr!r},momentum:{momentum},seed:{self.seed}}}"


ResultOf = Callable[[Trial], Result | None]  # result.json of a trial; None without a record


class Tried(NamedTuple):
    """Trials of one configuration, as far as their results decide which there are.

    `best`: None until all of them have results. `edge`: the side of what was tried at which the
    best lies, in words, or "" if it lies inside.
    """

    trials: tuple[Trial, ...]
    best: Trial | None
    edge: str


class AbstractTuning(ABC):
    """Way to choose the trials of a configuration; equal for all configurations of a study.

    `at`: settings that trials have in place of a point's own.
    """

    at: Mapping[str, Any]

    @property
    @abstractmethod
    def first(self) -> Sequence[Trial]:
        """Return the trials that every configuration has."""

    @abstractmethod
    def tried(self, result_of: ResultOf) -> Tried:
        """Return the trials that follow from the results that there are."""

    @property
    def names(self) -> list[str]:
        """Return the names of the settings in conf/ that a trial decides, besides the seed."""
        return list(self.first[0].settings)

    def require_other_seeds(self, seeds: Iterable[int]) -> None:
        """Raise SettingError if a trial has one of `seeds`, those of the reported points."""
        common = {trial.seed for trial in self.first} & set(seeds)
        if common:
            message = f"{min(common)} is a seed of the study's own points too"
            raise SettingError("tuning.seed", message)


def best_trial(trials: Iterable[Trial], result_of: ResultOf) -> Trial | None:
    """Return the trial with the best final top-1 on validation.

    A trial that diverged or failed is worse than any other; of equals the one with the smaller
    effective rate is taken. Returns None if a result is missing.
    """
    results = [(trial, result_of(trial)) for trial in trials]
    known = [(_score(result), -trial.effective_rate, trial) for trial, result in results if result]
    return max(known, key=lambda each: each[:2])[2] if len(known) == len(results) else None


def _score(result: Result) -> float:
    return result["top1"] if result["status"] == "finished" else -1.0


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
