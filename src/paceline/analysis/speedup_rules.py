"""Rules 1 to 3 of comparison: what stands on the two sides of each speed-up."""

import pandas as pd

from paceline.analysis.configuration import (
    SPLIT,
    Configuration,
    configurations,
    matching,
    one_process,
    paired,
)
from paceline.analysis.equal_accuracy import equal_accuracy, top1_difference
from paceline.analysis.frames import Frame
from paceline.analysis.intervals import interval
from paceline.analysis.rule_finding import NO_SPEEDUP, RuleFinding, name_of
from paceline.analysis.scaling import speedups
from paceline.analysis.statistics.space import POSITIVE
from paceline.analysis.tables import Tables

_HARDWARE = ("hardware.", "versions.")
_PLACES = ("cluster", "data", "model", "workload")  # groups of settings; a baseline shares them
_NETWORK = ("model", "num_parameters", "workload")


def accuracy_rule(tables: Tables) -> RuleFinding:
    """Judge rule 1: a speed-up is of equal accuracy, or of throughput only.

    It is broken where accuracies are shown to differ.
    """
    rows = equal_accuracy(tables)
    if rows.empty:
        return NO_SPEEDUP
    equal, different = (rows[rows["verdict"] == name] for name in ("equal", "different"))
    evidence = (
        f"{len(equal)} of {len(rows)} speed-ups are at equal accuracy (top-1 within "
        f"{tables.about['margin']:g} points), the others are of throughput only"
    )
    if len(different):
        worst = different.loc[different["top1_difference_mean"].fillna(-1).idxmin()]
        evidence += (
            f"; {len(different)} are at an accuracy that differs, the lowest: "
            f"{name_of(worst, tables.axes)}, {_points(worst)}"
        )
    return RuleFinding(len(different), len(rows), evidence, "tables/equal_accuracy.csv")


def _points(row: Frame) -> str:
    mean, low, high = (100 * row[f"top1_difference_{part}"] for part in ("mean", "low", "high"))
    spread = "no interval" if pd.isna(low) else f"{low:+.2f} to {high:+.2f}"
    lost = f", {row['lost_seeds']:.0f} diverged" if row["lost_seeds"] else ""
    return f"{mean:+.2f} points ({spread}, n = {row['top1_difference_n']:.0f}{lost})"


def baseline_rule(tables: Tables) -> RuleFinding:
    """Judge rule 2: no one-worker run on the same hardware is faster than the baseline."""
    broken, num_speedups, better = [], 0, dict[tuple[str, ...], str]()
    for configuration, points, base in speedups(tables):
        num_speedups += 1
        keys = tuple(base["key"])
        if keys not in better:  # many speed-ups have the same baseline
            better[keys] = _better(tables, configuration, base)
        found = _unlike(points, base) or better[keys]
        if found:
            broken.append(f"{name_of(configuration, tables.axes)}: {found}")
    if not num_speedups:
        return NO_SPEEDUP
    first = f"; not {broken[0]}" if broken else ""
    evidence = (
        f"{num_speedups - len(broken)} of {num_speedups} speed-ups are against the best "
        f"one-worker run on the same hardware and versions{first}"
    )
    return RuleFinding(len(broken), num_speedups, evidence, "runs.csv")


def _unlike(points: Frame, base: Frame) -> str:
    """Name the hardware or version that differs between the sides; "" if none does.

    What a kernel keeps of the memory differs from start to start: a hundredth is no other machine.
    """
    for name in (column for column in base if column.startswith(_HARDWARE)):
        both = pd.concat([points[name], base[name]]).unique()
        alike = name == "hardware.memory_bytes" and max(both) <= 1.01 * min(both)
        if len(both) > 1 and not alike:
            return f"{name} is {' and '.join(sorted(map(str, both)))}"
    return ""


def _better(tables: Tables, configuration: Configuration, base: Frame) -> str:
    """Describe the one-worker run that is faster than the baseline by most; "" if none is."""
    alone = one_process(configuration)
    places = [name for name in alone if name.split(".")[0] in _PLACES]
    same = {name: alone[name] for name in ("kind", *places)}
    same |= {name: base[name].iloc[0] for name in ("data", "model", "cluster") if name in base}
    found = []
    of_one = matching(tables.finished, same | {"workers": 1})
    for other, points in configurations(of_one, tables.axes):
        pairs = paired(points, base, "images_per_second")
        ratio = interval(pairs["value"] / pairs["base"], POSITIVE)
        faster = ratio.low > 1 and not _unlike(points, base)
        if faster and not top1_difference(points, base)[0].high < -tables.margin:
            found.append((ratio, other))
    if not found:
        return ""
    ratio, other = max(found, key=lambda each: each[0].mean)
    return (
        f"one worker is {ratio.mean:.2f} times as fast ({ratio.low:.2f} to {ratio.high:.2f}, "
        f"n = {ratio.n}) by {name_of(other, tables.axes)}"
    )


def network_rule(tables: Tables) -> RuleFinding:
    """Judge rule 3: both sides train the same network, by its name, settings and weights."""
    names = [name for name in tables.runs if name in _NETWORK or name.startswith("model.")]
    names = [name for name in names if name not in SPLIT]
    unlike, sizes = [], set()
    sides = list(speedups(tables))
    if not sides:
        return NO_SPEEDUP
    for configuration, points, base in sides:
        both = pd.concat([points[points["status"] == "finished"], base])
        differs = [name for name in names if len(both[name].unique()) > 1]
        differs += ["num_parameters"] if "num_parameters" not in names else []
        if differs:
            unlike.append(f"{name_of(configuration, tables.axes)}: {', '.join(differs)}")
        else:
            sizes |= {
                f"{row['model']} of {row['num_parameters']:,.0f}" for _, row in both.iterrows()
            }
    evidence = f"{len(sides) - len(unlike)} of {len(sides)} speed-ups are of one network"
    evidence += f" ({', '.join(sorted(sizes))} parameters)" if sizes else ""
    evidence += f"; not {unlike[0]}" if unlike else ""
    return RuleFinding(len(unlike), len(sides), evidence, "runs.csv")
