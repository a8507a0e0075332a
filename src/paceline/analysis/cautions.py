"""Detects conditions of a study that weaken the meaning of its numbers."""

from collections.abc import Iterator

import pandas as pd

from paceline.analysis.block_drift import KEPT, minutes_of
from paceline.analysis.configuration import configurations, counts, groups, num_processes
from paceline.analysis.frames import Frame, Row
from paceline.analysis.scaling import scaling
from paceline.analysis.searches import best_trials, tuning_axes
from paceline.analysis.tables import Tables

LATE = 0.01  # share of the steps of a paced worker
MOST_EFFICIENT = 1.05  # mean above which more than the workers must have helped
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
    - at_edge: configurations (likewise) are tuned to a trial at the edge of the search range: a
      better one may lie beyond; `value` lists them.
    """
    runs = tables.runs
    rows = [
        *_virtual(runs),
        *_crowded(runs),
        *_late(tables),
        *_unlike(runs),
        *_uncertified(tables.finished),
        *_one_machine(runs),
        *_dropped(tables),
        *_super_linear(tables),
        *_few_seeds(tables),
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


def _one_machine(runs: Frame) -> Iterator[Row]:
    """Yield a row per machine whose images/s were measured."""
    if "started" not in runs or "hardware.cpu" not in runs:
        return
    measured = runs[(runs["kind"] == "measured") & (runs["started"] != "")]
    for machine, points in groups(measured, ["hardware.cpu", "hardware.cores"]):
        starts = pd.to_datetime(points["started"])
        yield {
            "what": "one_machine",
            "kind": "measured",
            "name": f"{machine['hardware.cpu']}, {machine['hardware.cores']:.0f} cores",
            "value": str(starts.dt.floor("h").nunique()),
            "started": points.loc[starts.idxmin(), "started"],
            "minutes": minutes_of(points),
            "points": len(points),
            "of": len(runs),
        }


def _dropped(tables: Tables) -> Iterator[Row]:
    """Yield a row if blocks were dropped."""
    bad = tables.blocks[tables.blocks["verdict"] != KEPT]
    value = "; ".join(_block(row) for _, row in bad.iterrows())
    if len(bad):
        yield {"what": "dropped", "value": value, "points": len(bad), "of": len(tables.blocks)}


def _super_linear(tables: Tables) -> Iterator[Row]:
    """Yield a row if speed-ups exceed what their workers can give."""
    row_of = scaling(tables)
    rows = [each | row_of(each, own) for each, own in configurations(tables.runs, tables.axes)]
    table: Frame = pd.DataFrame(rows)
    several = table[table["baseline"] != "itself"]
    mean, low = several["efficiency_mean"], several["efficiency_low"]
    found = several[(low > 1) | (mean > MOST_EFFICIENT)]
    value = "; ".join(_efficiency(row, tables) for _, row in found.iterrows())
    if len(found):
        yield {"what": "super_linear", "value": value, "points": len(found), "of": len(several)}


def _block(row: Frame) -> str:
    reason = row["verdict"].removeprefix("dropped: ")
    return f"block {row['block']}: {reason}{_percent_of(row['drift'])}"


def _percent_of(drift: float) -> str:
    return "" if pd.isna(drift) else f", {100 * drift:+.1f} %"


def _efficiency(row: Frame, tables: Tables) -> str:
    known = [name for name in tables.facets if not pd.isna(row[name])]
    settings = [f"{name} {row[name]}" for name in known]
    parts = [row["scheme"], f"{row['workers']} workers", *settings]
    return f"{', '.join(parts)}: {100 * row['efficiency_mean']:.0f} %"


def _few_seeds(tables: Tables) -> Iterator[Row]:
    found = [counts(points) for _, points in configurations(tables.runs, tables.axes)]
    points = sum(each["n_finished"] == 1 for each in found)
    if points:
        yield {"what": "few_seeds", "points": points, "of": len(found)}


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
