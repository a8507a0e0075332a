"""Hyperparameter search of one configuration: a grid of learning rates, whose best are repeated.

Shallue et al. 2019 (arXiv:1811.03600) tune learning rate and momentum anew for each batch size. As
in AlgoPerf and MLPerf, the protocol of tuning is a part of what is compared.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import Field

from paceline.errors import SettingError
from paceline.record.result import Result
from paceline.settings import Below1, Count, Positive, Whole, settings

FACTOR, WIDER = 2, 3  # between neighbouring rates; rates that are tried at most beyond a grid
Values = Annotated[list[Any], Field(min_length=1)]
OneSetting = Annotated[dict[str, Values], Field(min_length=1, max_length=1)]
ResultOf = Callable[["Trial"], Result | None]  # result.json of a trial; None without a record


@settings("trial")
class Trial:
    """Values of training.lr, training.momentum and the seed that a search tries in one run.

    `own`: names and values of settings of the scheme that the search changes.
    """

    lr: Positive
    momentum: Below1
    seed: Count
    own: tuple[tuple[str, Any], ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The values that the trial sets, without the seed, by dotted name."""
        return {"training.lr": self.lr, "training.momentum": self.momentum, **dict(self.own)}

    @property
    def override(self) -> str:
        """The trial as a value of the setting `trial` on the command line."""
        own = ",".join(f"[{name},{value}]" for name, value in self.own)
        own = f",own:[{own}]" if own else ""
        return f"{{lr:{self.lr!r},momentum:{self.momentum!r},seed:{self.seed}{own}}}"

    @property
    def own_text(self) -> str:
        """The settings of the scheme as the column `own` of tuning.csv has them."""
        return " ".join(f"{name}={value}" for name, value in self.own)


def trial_of(row: Mapping[str, str]) -> Trial:
    """Return the trial in a row of tuning.csv. Raises ValueError for values of no trial."""
    name, _, text = (row.get("own") or "").partition("=")
    own = ((name, yaml.safe_load(text)),) if name else ()
    rate, momentum, seed = float(row["lr"]), float(row["momentum"]), int(row["seed"])
    return Trial(lr=rate, momentum=momentum, seed=seed, own=own)


class Tried(NamedTuple):
    """Trials of one configuration that are known so far, in the order of their runs.

    `best`: the chosen trial; None until all known trials have results. `edge`: if its learning rate
    is the lowest or the highest of its grid, words for this, else "".
    """

    trials: tuple[Trial, ...]
    best: Trial | None
    edge: str


@settings("tuning")
class GridSearch:
    """Search of the learning rate, the momentum, and one setting of the scheme.

    For each momentum, and each value in `own`, a grid of `rates` learning rates a factor of two
    apart is tried. Its middle has lr / (1 - momentum) = `effective_rate`, before training.lr_rule
    changes the rate. While the best rate of a grid is its lowest or its highest, one more is tried
    beyond, at most three times; so is a lower one if none trained. The `finalists` most accurate
    trials of all grids are then run again with `repeats` fresh seeds each, and the one whose fresh
    runs have the highest mean accuracy on validation images is chosen.

    `seed`: of the grids; the fresh seeds follow it. `own`: for a scheme, one of its settings and
    the values that are tried. `at`: settings that have other values in trials than in the points of
    the study.
    """

    effective_rate: Positive
    momentum: Annotated[list[Below1], Field(min_length=1)]
    seed: Count
    rates: Whole = 5
    finalists: Whole = 3
    repeats: Whole = 3
    own: dict[str, OneSetting] = field(default_factory=dict[str, Any])
    at: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for scheme, own in self.own.items():
            for name, values in own.items():
                for value in values:
                    read_back = yaml.safe_load(str(value))  # from tuning.csv
                    if isinstance(value, list) or read_back != value:
                        message = f"numbers such as 0.001, or words, are needed, not {value!r}"
                        raise SettingError(f"tuning.own.{scheme}.{name}", message)

    def tried(self, scheme: str, result_of: ResultOf) -> Tried:
        """Return the trials of a configuration that follow from the results that there are."""
        grids = [
            _Grid(self, momentum, own) for momentum in self.momentum for own in self._own(scheme)
        ]
        trials = [grid.trial(step) for grid in grids for step in grid.steps]
        for _ in range(WIDER):
            if _lacks(trials, result_of):
                return Tried(tuple(trials), None, "")
            trials += [grid.trial(step) for grid in grids for step in grid.widened(result_of)]
        if _lacks(trials, result_of):
            return Tried(tuple(trials), None, "")

        finalists = sorted(trials, key=lambda trial: -_top1(result_of(trial)))[: self.finalists]
        finals = {
            trial: [replace(trial, seed=seed) for seed in self.seeds[1:]] for trial in finalists
        }
        trials += [final for of_trial in finals.values() for final in of_trial]
        if _lacks(trials, result_of):
            return Tried(tuple(trials), None, "")
        means = [sum(_top1(result_of(final)) for final in finals[trial]) for trial in finalists]
        best = finalists[means.index(max(means))]
        if not max(means):  # none trained: the true best is most likely at a lower rate
            best = min(trials, key=lambda trial: trial.lr / (1 - trial.momentum))
        ends = {grid.trial(grid.steps[0]): "lowest" for grid in grids}
        ends |= {grid.trial(grid.steps[-1]): "highest" for grid in grids}
        return Tried(tuple(trials), best, f"{ends[best]} learning rate" if best in ends else "")

    @property
    def seeds(self) -> range:
        """The seeds of all trials: that of the grids, then those of the finals."""
        return range(self.seed, self.seed + 1 + self.repeats)

    def names(self, scheme: str) -> list[str]:
        """Return the dotted names of the settings that a trial sets, without the seed."""
        return ["training.lr", "training.momentum", *self.own.get(scheme, ())]

    def require_other_seeds(self, seeds: Iterable[int]) -> None:
        """Raise SettingError if a trial has one of `seeds`, the seeds of reported points."""
        if common := sorted({*self.seeds} & {*seeds}):
            message = f"trials have the seed {common[0]}, which is also one of the study's points"
            raise SettingError("tuning.seed", message)

    def _own(self, scheme: str) -> list[tuple[tuple[str, Any], ...]]:
        """Return the values of the searched setting of the scheme, as trials have them."""
        for name, values in self.own.get(scheme, {}).items():
            return [((name, value),) for value in values]
        return [()]


class _Grid:
    """Learning rates for one momentum and one value of the scheme's own setting.

    `steps`: how often each rate is multiplied by FACTOR from the middle, in rising order.
    """

    def __init__(
        self, search: GridSearch, momentum: float, own: tuple[tuple[str, Any], ...]
    ) -> None:
        low = -(search.rates // 2)
        self.steps = [*range(low, low + search.rates)]
        self._search, self._momentum, self._own = search, momentum, own

    def trial(self, step: int) -> Trial:
        """Return the trial, whose rate has 4 digits, so that its key is the same everywhere."""
        rate = self._search.effective_rate * (1 - self._momentum) * FACTOR**step
        return Trial(float(f"{rate:.4g}"), self._momentum, self._search.seed, self._own)

    def widened(self, result_of: ResultOf) -> list[int]:
        """Add a rate beyond the edge at which the best one is, if it is at one; return its step.

        Of equally good rates the one nearest to the middle counts as the best.
        """
        top1 = {step: _top1(result_of(self.trial(step))) for step in self.steps}
        best = max(self.steps, key=lambda step: (top1[step], -abs(step)))
        if best == self.steps[0] or not any(top1.values()):
            self.steps.insert(0, self.steps[0] - 1)
            return self.steps[:1]
        if best == self.steps[-1]:
            self.steps.append(best + 1)
            return self.steps[-1:]
        return []


def _lacks(trials: Sequence[Trial], result_of: ResultOf) -> bool:
    """Return whether a trial has no result."""
    return any(result_of(trial) is None for trial in trials)


def _top1(result: Result | None) -> float:
    """Return the final validation top-1 of a trial; 0 if it did not train to the end."""
    return result["top1"] or 0.0 if result and result["status"] == "finished" else 0.0
