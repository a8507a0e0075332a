"""The short answer, in plain words made from the numbers."""

from typing import Any

import pandas as pd

from paceline.analysis.configuration import matching
from paceline.analysis.tables import Frame
from paceline.report.clock_agreement import agreement
from paceline.report.findings import Findings, groups
from paceline.report.number_format import (
    decimals,
    percent,
    percent_points,
    plural,
    setting,
    with_interval,
)

HEDGE = (
    "Two schemes are told apart here only if the 95 % interval of their difference, paired by "
    "seed, leaves out 'no difference', and their own 95 % intervals do not overlap."
)
_MOST = 12


def answer(findings: Findings) -> list[str]:
    """Sentences; each names its kind of number and n."""
    if findings.tables.finished.empty:
        return ["No point has finished yet, so there is no answer: see below what happened."]
    scaled, compared = _scaled(findings), _compared(findings)
    found = [*agreement(findings), *_fastest(findings), *_lost(findings)]
    found += [*compared[:_MOST], *scaled[:_MOST]]
    if max(len(scaled), len(compared)) > _MOST:
        found.append("Further settings are in the tables below.")
    if not scaled:
        found.append("What more workers bring cannot be said: no pair of runs with one and more.")
    if not compared:
        found.append("Nothing can be said between schemes: no two of them share workers and seeds.")
    return found


def _fastest(findings: Findings) -> list[str]:
    """Per kind: which scheme has the highest mean images/s at the most workers, how often."""
    rows = findings.summary[findings.summary["images_per_second_mean"].notna()]
    found = []
    for where, same in groups(rows, ["kind"]):
        most = same[same["workers"] == same["workers"].max()]
        settings = [best for _, best in groups(most, findings.tables.facets)]
        settings = [best for best in settings if best["scheme"].nunique() > 1]
        if not settings:
            continue
        first = [best.loc[best["images_per_second_mean"].idxmax(), "scheme"] for best in settings]
        times = "; ".join(
            f"{scheme} in {first.count(scheme)} of {plural(len(first), 'setting')}"
            for scheme in dict.fromkeys(first)
        )
        found.append(
            f"Highest mean images/s at {plural(int(most['workers'].max()), 'worker')} "
            f"({where['kind']}, n = {_range(most['images_per_second_n'])}): {times}."
        )
    return found


def _lost(findings: Findings) -> list[str]:
    """Where every seed diverged: such a point is missing from all that compares means."""
    rows = findings.summary
    rows = rows[(rows["n_diverged"] == rows["n"])]
    found = []
    for where, same in groups(rows, ["kind", "scheme", *findings.varying]):
        parts = [f"{axis} {setting(where[axis])}" for axis in findings.varying]
        counts = " and ".join(str(count) for count in sorted(same["workers"]))
        found.append(
            f"{', '.join([where['scheme'], *parts])}: every seed diverged at {counts} workers "
            f"({where['kind']}, n = {_range(same['n'])})."
        )
    return found


def _range(counts: Frame) -> str:
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low} to {high}"


def _scaled(findings: Findings) -> list[str]:
    """Against runs of the same scheme with one worker; the tables have the others."""
    rows = findings.scaling
    rows = rows[(rows["workers"] > 1) & rows["speedup_mean"].notna()]
    rows = rows[rows["baseline_scheme"] == rows["scheme"]]
    return [_speedup(findings, row) for _, row in _at_most_workers(findings, rows, ["scheme"])]


def _speedup(findings: Findings, row: Any) -> str:
    ratio = f"{decimals(row['speedup_mean'])} times the images/s of one worker"
    text = f"{row['scheme']}, {_where(findings, row)}: {ratio} {_spread(row, 'speedup', decimals)}"
    return f"{text}{_gain(row)} {_accuracies(findings, row)}".strip()


def _gain(row: Any) -> str:
    if pd.isna(row["speedup_low"]):
        return "; one seed cannot tell this from chance."
    if row["speedup_low"] > 1:
        return ": more workers are faster."
    slower = row["speedup_high"] < 1
    return ": more workers are slower." if slower else ": no gain can be told from noise."


def _accuracies(findings: Findings, row: Any) -> str:
    """With one worker and with these; empty where one of them is unknown."""
    where = {name: row[name] for name in ["kind", *findings.tables.axes]}
    one, these = (
        matching(findings.summary, where | {"workers": workers}).iloc[0]
        for workers in (1, row["workers"])
    )
    if pd.isna(one["test_top1_mean"]) or pd.isna(these["test_top1_mean"]):
        return ""
    before, after = (with_interval(side, "test_top1", percent) for side in (one, these))
    return f"Test top-1 ({row['kind']}): {before} with one worker; {after} with these."


def _compared(findings: Findings) -> list[str]:
    rows = findings.comparison
    if not len(rows):
        return []
    rows = rows[rows["speed_ratio_mean"].notna()]
    return [_against(findings, row) for _, row in _at_most_workers(findings, rows, ["scheme"])]


def _against(findings: Findings, row: Any) -> str:
    ratio = f"{decimals(row['speed_ratio_mean'])} times the images/s of {row['reference']}"
    speed = _verdict(findings, row, "speed_ratio", "images_per_second", ("faster", "slower"))
    text = (
        f"{row['scheme']}, {_where(findings, row)}: {ratio} "
        f"{_spread(row, 'speed_ratio', decimals)}: {speed}"
    )
    metric = "test_top1" if pd.notna(row["test_top1_difference_mean"]) else "top1"
    name = f"{metric}_difference"
    if pd.isna(row[f"{name}_mean"]):
        return f"{text}. Their accuracies cannot be compared."
    accuracy = _verdict(findings, row, name, metric, ("more accurate", "less accurate"))
    split = "test" if metric == "test_top1" else "validation"
    return (
        f"{text}. Its {split} top-1 differs by {percent_points(row[f'{name}_mean'])} points "
        f"{_spread(row, name, percent_points)}: {accuracy}."
    )


def _verdict(findings: Findings, row: Any, name: str, metric: str, words: tuple[str, str]) -> str:
    if pd.isna(row[f"{name}_low"]):
        return "one seed in common cannot tell them apart"
    none = 1.0 if name == "speed_ratio" else 0.0
    same = row[f"{name}_low"] <= none <= row[f"{name}_high"]
    n = int(row[f"{name}_n"])
    if same or _own_intervals_overlap(findings, row, metric):
        return f"{n} seeds cannot tell them apart"
    return words[0] if row[f"{name}_mean"] > none else words[1]


def _own_intervals_overlap(findings: Findings, row: Any, metric: str) -> bool:
    names = ["kind", *findings.tables.axes]
    where = {name: row[name] for name in names}
    both = [
        matching(findings.summary, where | {"scheme": scheme}).iloc[0]
        for scheme in (row["scheme"], row["reference"])
    ]
    low, high = (max(b[f"{metric}_low"] for b in both), min(b[f"{metric}_high"] for b in both))
    return not low > high


def _at_most_workers(findings: Findings, rows: Frame, more: list[str]):
    """Of each setting the rows with the most workers."""
    names = ["kind", *findings.tables.facets, *more]
    for _, same in groups(rows, names) if len(rows) else []:
        yield from same[same["workers"] == same["workers"].max()].iterrows()


def _where(findings: Findings, row: Any) -> str:
    parts = [f"{axis} {setting(row[axis])}" for axis in findings.varying]
    return ", ".join([f"{row['workers']:.0f} workers", *parts])


def _spread(row: Any, name: str, form) -> str:
    n = int(row[f"{name}_n"])
    label = f"{row['kind']}, n = {n}"
    if pd.isna(row[f"{name}_low"]):
        return f"({label}, no interval)"
    low, high = form(row[f"{name}_low"]), form(row[f"{name}_high"])
    return f"({label}, 95 % interval {low} to {high})"
