"""Checks whether a study keeps five rules of fair comparison, after FireCaffe (2016).

The paper (Iandola et al. 2016, arXiv:1511.00175) has a list of such rules for ImageNet. The wording
here is ours, and applies to studies of any size.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from paceline.analysis.comparison import EqualAccuracy, equal_accuracy, speedups, top1_difference
from paceline.analysis.configuration import (
    SPLIT,
    Configuration,
    configurations,
    counts,
    finished,
    matching,
    one_process,
)
from paceline.analysis.decision import best_and_faster, decision
from paceline.analysis.frames import Frame, Row, setting
from paceline.analysis.intervals import ratio
from paceline.analysis.tables import Tables

RULES = (
    "Rules of comparison (after FireCaffe, arXiv:1511.00175). Rule 1 is broken by a scheme that is "
    "first at the target, but ends at an accuracy that is shown to be lower than that of one "
    "worker by more than the margin. Ratios of images/s say nothing about accuracy. Rule 2 is "
    "broken where another one-worker run is shown to be faster, at an accuracy that is not shown "
    "to be lower, and no ratio to it is given."
)
_HARDWARE = ("hardware.", "versions.", "data_digest")
_PLACES = ("cluster", "data", "model", "workload")  # groups of settings that a baseline must share
_NETWORK = ("model", "num_parameters", "workload")
_SETTINGS = ("batch_size", "samples", "seed", "lr", "momentum")
_MACHINE = ("hardware.cpu", "hardware.cores", "hardware.memory_bytes")
_CODE = ("versions.python", "versions.torch", "source_digest", "commit")
_DIRTY = "+dirty"  # at the end of a commit: files differed from it
_TABLE, _RUNS = "tables/configurations.csv", "runs.csv"
Sides = Sequence[tuple[Configuration, Frame, Frame]]  # each with a speed-up, its points, baseline


class RuleFinding(NamedTuple):
    """Result of checking one rule: `broken` of `of` cases break it.

    A case is a speed-up, a configuration or a point, depending on the rule. `evidence` is a
    sentence with numbers. `place` is the table in reports/<study> from which these numbers are.
    """

    broken: int
    of: int
    evidence: str
    place: str

    @property
    def verdict(self) -> str:
        if not self.of:
            return "not applicable"
        return "broken" if self.broken else "holds"


_NO_SPEEDUP = RuleFinding(0, 0, "no speed-up against one worker", _TABLE)


def rules(tables: Tables) -> Frame:
    """Return one row per rule: what it `asks`, its `verdict`, and the fields of RuleFinding.

    The verdict is broken if any case breaks the rule, holds if none does, and not applicable if
    there is no case.
    """
    sides = list(speedups(tables))
    found = {asks: find(tables, sides) for asks, find in _OF_SPEEDUPS.items() if sides}
    found = found or dict.fromkeys(_OF_SPEEDUPS, _NO_SPEEDUP)
    found |= {asks: find(tables) for asks, find in _OF_POINTS.items()}
    return pd.DataFrame(
        {"rule": number, "asks": asks, "verdict": each.verdict} | each._asdict()
        for number, (asks, each) in enumerate(found.items(), 1)
    )


def _accuracy_rule(tables: Tables, sides: Sides) -> RuleFinding:
    """Check rule 1: a scheme that is first at the target is as accurate as one worker at the end.

    The rule is broken by a scheme whose accuracy is shown to be lower by more than the margin, or
    of which a run diverged.
    """
    first = best_and_faster(decision(tables))
    found = [
        (configuration, equal_accuracy(tables, points, base))
        for configuration, points, base in sides
        if len(matching(first, configuration))
    ]
    lower = [
        (own, accuracy)
        for own, accuracy in found
        if accuracy.verdict == "different"
        and (accuracy.lost_seeds or not accuracy.difference.low > 0)
    ]
    equal = sum(accuracy.verdict == "equal" for _, accuracy in found)
    evidence = (
        f"of {len(found)} schemes that are first at the target, {equal} end within "
        f"{tables.about['margin']:g} points of one worker"
    )
    if lower:
        means = [accuracy.difference.mean for _, accuracy in lower]  # NaN if no seed has one
        worst, accuracy = lower[int(np.argmin(np.nan_to_num(means, nan=-1.0)))]
        evidence += f"; {len(lower)} end lower: {name_of(worst, tables.axes)}, {_points(accuracy)}"
    return RuleFinding(len(lower), len(found), evidence, _TABLE)


def _points(accuracy: EqualAccuracy) -> str:
    mean, low, high = (100 * end for end in accuracy.difference[:3])
    spread = "no interval" if pd.isna(low) else f"{low:+.2f} to {high:+.2f}"
    lost = f", {accuracy.lost_seeds} diverged" if accuracy.lost_seeds else ""
    return f"{mean:+.2f} points ({spread}, n = {accuracy.difference.n}{lost})"


def _baseline_rule(tables: Tables, sides: Sides) -> RuleFinding:
    """Check rule 2: no one-worker run on the same hardware is faster than the baseline used."""
    broken, better = [], dict[tuple[str, ...], str]()
    for configuration, points, base in sides:
        keys = tuple(base["key"])
        if keys not in better:  # many speed-ups have the same baseline
            better[keys] = _better(tables, configuration, base)
        if found := _unlike(points, base) or better[keys]:
            broken.append(f"{name_of(configuration, tables.axes)}: {found}")
    return _of_sides(
        sides, broken, "are against the best one-worker run on the same hardware and versions"
    )


def _of_sides(sides: Sides, broken: Sequence[str], what: str) -> RuleFinding:
    """Return the finding on a rule of speed-ups; its evidence names the first one in `broken`."""
    evidence = f"{len(sides) - len(broken)} of {len(sides)} speed-ups {what}"
    evidence += f"; not {broken[0]}" if broken else ""
    return RuleFinding(len(broken), len(sides), evidence, _RUNS)


def _unlike(points: Frame, base: Frame) -> str:
    """Name a property of hardware, a version or the content of the data that differs between both
    tables; "" if none does.

    The memory that the kernel reserves varies from boot to boot, so sizes within 1 % count as
    equal.
    """
    for name in (column for column in base if column.startswith(_HARDWARE)):
        both = pd.concat([points[name], base[name]]).unique()
        if name == "data_digest":  # records of earlier code have none
            both = [digest for digest in both if digest]
        alike = name == "hardware.memory_bytes" and max(both) <= 1.01 * min(both)
        if len(both) > 1 and not alike:
            return f"{name} is {' and '.join(sorted(map(str, both)))}"
    return ""


def _better(tables: Tables, configuration: Configuration, base: Frame) -> str:
    """Describe the fastest one-worker run that beats the baseline; "" if there is none.

    It must be shown to be faster, on the same hardware, and must not be shown to be less accurate.
    """
    one = one_process(configuration)
    places = [name for name in one if name.split(".")[0] in _PLACES]
    same = {name: one[name] for name in ("kind", *places)}
    same |= {name: base[name].iloc[0] for name in ("data", "model", "cluster")}
    found = []
    of_one = matching(tables.finished, same | {"workers": 1})
    for other, points in configurations(of_one, tables.axes):
        speed = ratio(points, base, "images_per_second")
        faster = speed.low > 1 and not _unlike(points, base)
        if faster and not top1_difference(tables, points, base)[0].high < -tables.margin:
            found.append((speed, other))
    if not found:
        return ""
    speed, other = max(found, key=lambda each: each[0].mean)
    return (
        f"one worker is {speed.mean:.2f} times as fast ({speed.low:.2f} to {speed.high:.2f}, "
        f"n = {speed.n}) by {name_of(other, tables.axes)}"
    )


def _network_rule(tables: Tables, sides: Sides) -> RuleFinding:
    """Check rule 3: each speed-up and its baseline train the same network.

    Networks are compared by name, settings and number of parameters.
    """
    names = [name for name in tables.runs if name in _NETWORK or name.startswith("model.")]
    names = [name for name in names if name not in SPLIT]
    unlike, sizes = [], set()
    for configuration, points, base in sides:
        both = pd.concat([finished(points), base])
        differs = [name for name in names if len(both[name].unique()) > 1]
        if differs:
            unlike.append(f"{name_of(configuration, tables.axes)}: {', '.join(differs)}")
        else:
            pairs = zip(both["model"], both["num_parameters"], strict=True)
            sizes |= {f"{model} of {size:,.0f}" for model, size in pairs}
    known = f" ({', '.join(sorted(sizes))} parameters)" if sizes else ""
    return _of_sides(sides, unlike, f"are of one network{known}")


def _evaluation_rule(tables: Tables) -> RuleFinding:
    """Check rule 4: accuracies are measured on images on which no learning rate was tuned, and over
    more than one seed.
    """
    found = configurations(tables.runs, tables.axes)
    seeds = [(each, number) for each, own in found if (number := counts(own)["n_finished"])]
    single = [each for each, number in seeds if number == 1]
    reasons, whole = list[str](), list[str]()
    if single:
        first = name_of(single[0], tables.axes)
        reasons.append(f"{len(single)} of {len(seeds)} configurations have one seed, as {first}")
    scored = tables.finished[tables.finished["top1"].notna()]  # others measure throughput only
    if scored["test_top1"].isna().any():
        whole.append("there are no top-1 on test images")
    if tables.finished["key"].isin(tables.tuning["key"]).any():
        whole.append("there are points that a rate was tuned on")
    tuned = (
        f"rates were tuned on validation images by {len(tables.tuning)} runs that are not "
        "reported, and accuracies are of test images"
    )
    most = tables.finished.groupby("data")["distinct_samples"].max()
    sizes = [f"{name}: trained on {number:,.0f} images" for name, number in most.items()]
    told = tuned if len(tables.tuning) else "no rate was tuned by the study"
    evidence = "; ".join([*reasons, *whole, told, *sizes])
    broken = len(seeds) if whole else len(single)
    return RuleFinding(broken, len(seeds), evidence, f"{_RUNS}, tuning.csv")


def _reporting_rule(tables: Tables) -> RuleFinding:
    """Check rule 5: settings, hardware, versions and code of each finished point are known.

    A setting that has no column in runs.csv is known from the commit, if no file differed from it.
    """
    columns: Frame = tables.finished.reindex(columns=[*_SETTINGS, *_MACHINE, *_CODE])
    lacks: Frame = columns.replace("", None).isna()
    if "optimizer" in tables.finished:  # one whose class is known may have no momentum
        lacks["momentum"] &= tables.finished["optimizer"].replace("", None).isna()
    dirty: Frame = columns["commit"].astype(str).str.endswith(_DIRTY)
    reasons = [f"{count} points without {name}" for name, count in lacks.sum().items() if count]
    if dirty.any():
        reasons.append(f"{dirty.sum()} points by files that differ from the commit they name")
    settings = f"{', '.join(_SETTINGS)} are columns, other settings are the commit's"
    machines = columns["hardware.cpu"].dropna().unique()
    evidence = "; ".join([*reasons, settings, f"hardware: {', '.join(map(str, machines))}"])
    broken: Frame = lacks.any(axis=1) | dirty
    return RuleFinding(int(broken.sum()), len(columns), evidence, _RUNS)


def name_of(row: Row, axes: Sequence[str]) -> str:
    """Name a configuration in words: sync_allreduce, workers 4, batch_size 32."""
    parts = [f"{axis} {setting(row[axis])}" for axis in axes if axis != "scheme"]
    return ", ".join([str(row["scheme"]), *parts])


_OF_SPEEDUPS: dict[str, Callable[[Tables, Sides], RuleFinding]] = {
    "the first at the target ends as accurate as one worker": _accuracy_rule,
    "the baseline is the best one-worker run on the same machine and versions": _baseline_rule,
    "both sides train the same network": _network_rule,
}
_OF_POINTS: dict[str, Callable[[Tables], RuleFinding]] = {
    "accuracies are of images nothing was tuned on, and of several seeds": _evaluation_rule,
    "settings, hardware, versions and code are known": _reporting_rule,
}
