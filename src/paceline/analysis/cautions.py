"""Detects conditions of a study that weaken the meaning of its numbers."""

from collections.abc import Iterator

import pandas as pd

from paceline.analysis.configuration import groups, num_processes
from paceline.analysis.frames import Frame, Row
from paceline.analysis.speed_cautions import dropped, one_machine, super_linear
from paceline.analysis.summary import summary
from paceline.analysis.tables import Tables
from paceline.analysis.tuned import best_trials
from paceline.analysis.tuning_curve import tuning_axes

LATE = 0.01  # share of the steps of a paced worker
_CONDITIONS = ("jobs", "accelerator", "hardware.cpu", "hardware.cores")
_COLUMNS = ["what", "kind", "scheme", "workers", "name", "value", "share", "points", "of"]
_COLUMNS += ["started", "minutes"]


def cautions(tables: Tables) -> Frame:
    """Return one row per condition that applies to `points` out of `of` points.

    The column `what` is the condition:

    - virtual: the time of the points is modelled;
    - crowded: the points had more processes than cores; `value` lists them: "8 on 4, 9 on 4";
    - late: paced workers were late in more than LATE of their steps; `share` is the maximum;
    - unlike: the points differ in the condition `name`, which is no axis; `value` lists its values;
    - uncertified: a run contradicts the claim of its scheme; `value` says how;
    - one_machine: the measured points ran on the machine `name` in `value` hours of the clock;
      `started` is the first of them, and `minutes` passed until the last had ended;
    - dropped: blocks (counted instead of points) do not count in throughput; `value` says why;
    - super_linear: configurations (likewise) have an efficiency above 1, beyond its interval or by
      more than 5 %; `value` lists them;
    - few_seeds: configurations (counted instead of points) have one finished seed;
    - at_edge: configurations (likewise) are tuned to a trial at an edge of what was tried, where a
      better one may lie beyond; `value` lists them.
    """
    runs = tables.runs
    rows = [
        *_virtual(runs),
        *_crowded(runs),
        *_late(tables),
        *_unlike(runs),
        *_uncertified(tables.finished),
        *one_machine(runs),
        *dropped(tables),
        *super_linear(tables),
        *_few_seeds(summary(tables)),
        *_at_edge(tables),
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _virtual(runs: Frame) -> Iterator[Row]:
    points = int((runs["kind"] == "virtual").sum())
    if points:
        yield {"what": "virtual", "kind": "virtual", "points": points, "of": len(runs)}


def _crowded(runs: Frame) -> Iterator[Row]:
    """Yield rows of kinds with more processes than cores; a virtual run has one process."""
    if "hardware.cores" not in runs:
        return
    servers = runs["servers"].fillna(0) if "servers" in runs else 0
    runs = runs.assign(processes=runs.get("jobs", 1) * (num_processes(runs) + servers))
    for kind in ("measured", "paced"):
        same = runs[runs["kind"] == kind]
        short = same[same["processes"] > same["hardware.cores"]]
        pairs = sorted(set(zip(short["processes"], short["hardware.cores"], strict=True)))
        value = ", ".join(f"{processes:.0f} on {cores:.0f}" for processes, cores in pairs)
        row = {"what": "crowded", "kind": kind, "value": value}
        if len(short):
            yield row | {"points": len(short), "of": len(same)}


def _late(tables: Tables) -> Iterator[Row]:
    runs = tables.runs
    if "late_steps" not in runs:
        return
    steps = tables.phases.groupby("key")["steps"].sum()
    paced = runs[runs["kind"] == "paced"]
    shares = paced["late_steps"].astype(float) / paced["key"].map(steps).astype(float)
    late = shares[shares > LATE]
    row = {"what": "late", "kind": "paced", "points": len(late), "of": len(paced)}
    if len(late):
        yield row | {"share": late.max()}


def _unlike(runs: Frame) -> Iterator[Row]:
    for group, same in groups(runs, ["kind"]):
        for name in _CONDITIONS:
            if name in same and same[name].nunique() > 1:
                value = ", ".join(str(value) for value in sorted(same[name].unique()))
                row = {"what": "unlike", "name": name, "value": value}
                yield group | row | {"points": len(same), "of": len(same)}


def _uncertified(finished: Frame) -> Iterator[Row]:
    if "certificate" not in finished:
        return
    uncertified = finished[finished["certificate"].astype(str).str.startswith("not ")]
    for group, points in groups(uncertified, ["scheme", "workers", "certificate"]):
        value = group.pop("certificate")
        row = {"what": "uncertified", "value": value, "points": len(points), "of": len(points)}
        yield group | row


def _few_seeds(means: Frame) -> Iterator[Row]:
    points = int((means["n_finished"] == 1).sum())
    if points:
        yield {"what": "few_seeds", "points": points, "of": len(means)}


def _at_edge(tables: Tables) -> Iterator[Row]:
    best = best_trials(tables)
    if best.empty:
        return
    at_edge = best[best["at_edge"] != ""]
    value = "; ".join(_place(row, tuning_axes(tables)) for _, row in at_edge.iterrows())
    if len(at_edge):
        yield {"what": "at_edge", "value": value, "points": len(at_edge), "of": len(best)}


def _place(trial: Frame, axes: list[str]) -> str:
    known = [name for name in axes if not pd.isna(trial[name])]
    settings = [str(trial[n]) if n == "scheme" else f"{n} {trial[n]}" for n in known]
    return ", ".join([*settings, trial["at_edge"]])
