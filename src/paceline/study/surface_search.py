"""Hyperparameter search in rounds, of which each learns from the trials of all schemes before it.

Gaussian processes are the usual model of such searches (Snoek et al. 2012, arXiv:1206.2944); trials
of one task tell about related ones (Swersky et al. 2013, Multi-task Bayesian optimization).
"""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import yaml
from pydantic import Field

from paceline.errors import SettingError
from paceline.record.rows import OWN
from paceline.settings import Count, Whole, settings
from paceline.study.trials import (
    Bounds,
    MomentumRange,
    Range,
    SearchBox,
    Searched,
    Trial,
    Tried,
    top1_of,
)

if TYPE_CHECKING:
    from paceline.study.surfaces import Surfaces

_GRID = (33, 17, 5)  # places along each axis that the later rounds choose from
_DIGITS = 9  # of an expected improvement, so that every machine chooses the same place
Own = Annotated[Mapping[str, list[Any]], Field(min_length=1, max_length=1)]


@settings("tuning")
class SurfaceSearch:
    """Search of `rounds` rounds of `trials` trials for each configuration, all with seed `seed`.

    `effective_rate`: lowest and highest lr / (1 - momentum), before training.lr_rule changes the
    rate. `one_minus_momentum`: lowest and highest 1 - momentum. `own`: for a scheme, one setting of
    its own that is searched as well: its lowest and highest number, or all its values as texts.
    `at`: settings that have other values in trials than in the points of the study.

    The first round is a Sobol sequence, another one for each scheme. Each later round has the
    largest expected improvements on the surfaces of a family, the configurations that differ in
    their scheme only. Trials that diverged bound the region in which later rounds search; while few
    trials of a family trained, a round stays near those of the scheme that did. The best
    trial is the one with the largest expected score, so that one lucky run is not enough.
    """

    effective_rate: Range
    one_minus_momentum: MomentumRange
    rounds: Whole
    trials: Whole
    seed: Count
    own: dict[str, Own] = field(default_factory=dict[str, Any])
    at: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        for scheme, (name, values) in self._owns.items():
            numbers = all(isinstance(v, int | float) and v > 0 for v in values)
            texts = all(isinstance(v, str) for v in values) and len(set(values)) == len(values) > 1
            if not texts and not (numbers and len(values) == 2 and values[0] < values[1]):
                message = f"two rising numbers, or texts that differ, are needed, not {values}"
                raise SettingError(f"tuning.own.{scheme}.{name}", message)

    def first(self, searched: Searched) -> Sequence[Trial]:
        """Return the trials of a configuration that do not depend on any result."""
        if searched.scheme not in self._first:
            from scipy.stats import qmc  # takes half a second, and few commands draw trials

            rng = np.random.default_rng([self.seed, zlib.crc32(searched.scheme.encode())])
            count = 2 ** math.ceil(math.log2(self.trials))
            places = qmc.Sobol(3, rng=rng).random(count)[: self.trials]
            made = [self._trial(searched.scheme, *place) for place in places]
            self._first[searched.scheme] = made
        return self._first[searched.scheme]

    def tried(self, searched: Searched, family: Sequence[Searched]) -> Tried:
        """Return the trials of the rounds whose earlier rounds all have results in the family.

        `family`: the configurations that differ from `searched` in their scheme only, and itself.
        """
        if searched.ended:
            return searched.ended
        place = family.index(searched)
        trials = [list(each.ended.trials if each.ended else self.first(each)) for each in family]
        for _ in range(self.rounds - 1):
            if (surfaces := self._surfaces(family, trials)) is None:
                return Tried(tuple(trials[place]), None, "")
            for member, each in enumerate(family):
                if not each.ended:
                    trials[member] += self._next(surfaces, member, each.scheme, len(family))
        best, surfaces = None, self._surfaces(family, trials)
        if surfaces is not None:
            best = _best(surfaces, place, trials)
        side = None
        if best is not None:
            box = self._box if self.rounds == 1 else self._wide
            side = box.edge(best.effective_rate, 1 - best.momentum)
        return Tried(tuple(trials[place]), best, str(side or ""))

    def names(self, scheme: str) -> list[str]:
        """Return the dotted names of the settings that a trial sets, without the seed."""
        return ["training.lr", "training.momentum", *self.own.get(scheme, ())]

    def require_other_seeds(self, seeds: Iterable[int]) -> None:
        """Raise SettingError if the trials have one of `seeds`, the seeds of reported points."""
        if self.seed in seeds:
            message = f"{self.seed} is also a seed of the study's own points"
            raise SettingError("tuning.seed", message)

    def own_of(self, scheme: str, trial: Trial) -> Mapping[str, Any]:
        """Return the columns OWN of tuning.csv for a trial; none if it has no setting of its own.

        A trial has one if the search changes a setting of its scheme.
        """
        if not trial.own:
            return {}
        text = " ".join(f"{name}={value}" for name, value in trial.own)
        return dict(zip(OWN, (text, self.place_of(scheme, trial)), strict=True))

    def trial_of(self, row: Mapping[str, str]) -> Trial:
        """Return the trial in a row of tuning.csv. Raises ValueError for values of no trial."""
        name, _, text = (row.get(OWN[0]) or "").partition("=")
        own = ((name, yaml.safe_load(text)),) if name else ()
        rate, momentum, seed = float(row["lr"]), float(row["momentum"]), int(row["seed"])
        return Trial(lr=rate, momentum=momentum, seed=seed, own=own)

    def place_of(self, scheme: str, trial: Trial) -> float:
        """Return the place of the trial's own setting, from 0 to 1; 0 without one."""
        if not trial.own:
            return 0.0
        (_, values), ((_, value),) = self._owns[scheme], trial.own
        if isinstance(value, str):
            return values.index(value) / (len(values) - 1)
        return Bounds(*values).place(value)

    @cached_property
    def _first(self) -> dict[str, list[Trial]]:
        return {}

    @cached_property
    def _grids(self) -> dict[str, tuple[list[Trial], np.ndarray]]:
        return {}

    @cached_property
    def _known(self) -> dict[Any, list[Trial]]:
        return {}

    @property
    def _owns(self) -> dict[str, tuple[str, list[Any]]]:
        return {scheme: next(iter(own.items())) for scheme, own in self.own.items()}

    @cached_property
    def _box(self) -> SearchBox:
        return SearchBox(Bounds(*self.effective_rate), Bounds(*self.one_minus_momentum))

    @cached_property
    def _wide(self) -> SearchBox:
        """The box of later rounds: longer by a quarter at each side, up to momentum 0."""
        rate, rest = self._box
        wide = Bounds(rest.at(-0.25), min(1.0, rest.at(1.25)))
        return SearchBox(Bounds(rate.at(-0.25), rate.at(1.25)), wide)

    def _next(self, surfaces: "Surfaces", member: int, scheme: str, of: int) -> list[Trial]:
        """Return the trials of one more round of a member, each as if the ones before had run."""
        key = surfaces.gains.tobytes(), surfaces.places.tobytes(), member, of
        if key not in self._known:
            choice, places = self.choice(scheme)
            found, far = list[Trial](), ~surfaces.in_reach(places, member)
            for _ in range(self.trials):
                gains = surfaces.improvement(places, member).round(_DIGITS)
                gains[far | [trial in found for trial in choice]] = -np.inf
                index = int(gains.argmax())
                found.append(choice[index])
                surfaces = surfaces.believing(places[index], member)
            self._known[key] = found
        return self._known[key]

    def choice(self, scheme: str) -> tuple[list[Trial], np.ndarray]:
        """Return the trials that later rounds choose from, with their places."""
        if scheme not in self._grids:
            axes = [np.linspace(0, 1, number) for number in _GRID]
            grid = product(*axes[: 3 if scheme in self.own else 2])
            trials = list(dict.fromkeys(self._trial(scheme, *at, box=self._wide) for at in grid))
            self._grids[scheme] = trials, self._places(scheme, trials)
        return self._grids[scheme]

    def _surfaces(
        self, family: Sequence[Searched], trials: Sequence[Sequence[Trial]]
    ) -> "Surfaces | None":
        """Return the surfaces after these trials of each member; None if a result is missing."""
        from paceline.study.surfaces import Surfaces  # scipy takes a second

        top1 = list[float]()
        for each, own in zip(family, trials, strict=True):
            for trial in own:
                if (result := each.result_of(trial)) is None:
                    return None
                top1.append(top1_of(result))
        pairs = zip(family, trials, strict=True)
        places = np.vstack([self._places(each.scheme, own) for each, own in pairs])
        members = np.repeat(np.arange(len(family)), [len(own) for own in trials])
        return Surfaces.of_top1(places, members, np.array(top1))

    def _places(self, scheme: str, trials: Sequence[Trial]) -> np.ndarray:
        own = [self.place_of(scheme, trial) for trial in trials]
        rates = [math.log10(trial.effective_rate) for trial in trials]
        rests = [math.log10(1 - trial.momentum) for trial in trials]
        return np.column_stack([rates, rests, own])

    def _trial(
        self, scheme: str, rate: float, rest: float, own: float = 0.0, box: SearchBox | None = None
    ) -> Trial:
        """Return the trial at these places in a box, from 0 to 1."""
        settings = ()
        if scheme in self.own:
            name, values = self._owns[scheme]
            settings = ((name, _value_at(values, own)),)
        return (box or self._box).trial(rate, rest, self.seed, settings)


def _best(surfaces: "Surfaces", member: int, trials: Sequence[Sequence[Trial]]) -> Trial:
    index = surfaces.best(member)
    if index is None:  # none trained: the true best is most likely at smaller rates
        return min(trials[member], key=lambda trial: trial.effective_rate)
    return [trial for own in trials for trial in own][index]


def _value_at(values: Sequence[Any], place: float) -> Any:
    if isinstance(values[0], str):
        return values[min(int(place * len(values)), len(values) - 1)]
    value = Bounds(*values).at(place)
    if all(isinstance(each, int) for each in values):
        return round(value)
    return float(f"{value:.3g}")
