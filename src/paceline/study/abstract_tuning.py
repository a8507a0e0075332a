"""Tuning of a study: trials of learning rate and momentum, and the best of a configuration's."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

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

    def overrides(self) -> list[str]:
        """Return the overrides that turn a study into one of each configuration, to be tried."""
        decided = [f"{name}=null" for name in self.names]
        elsewhere = [
            f"{name}={'null' if value is None else value}" for name, value in self.at.items()
        ]
        return ["training.rate=by_rule", *decided, f"seed={self.first[0].seed}", *elsewhere]


def trial_override(trials: Iterable[Trial]) -> str:
    """Return the override that sweeps over `trials`."""
    return f"trial={','.join(trial.override for trial in trials)}"


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
