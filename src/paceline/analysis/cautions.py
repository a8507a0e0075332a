"""Finds conditions of a study under which its numbers mean less than they seem to."""

from collections.abc import Iterator

import pandas as pd

from paceline.analysis.configuration import groups
from paceline.analysis.summary import summary
from paceline.analysis.tables import Frame, Row, Tables

LATE = 0.01  # of the steps of a paced worker
_CONDITIONS = ("jobs", "accelerator", "hardware.cpu", "hardware.cores")
_COLUMNS = ["what", "kind", "scheme", "workers", "name", "value", "share", "points", "of"]


def cautions(tables: Tables) -> Frame:
    """Return a row per condition that holds. `points`: of which it does, `of` so many. `what`:

    - virtual: their time is modelled;
    - crowded: they had more processes than cores; `value`: "8 on 4, 9 on 4";
    - late: paced workers came too late in more than LATE of their steps; `share`: at most;
    - unlike: they differ in the condition `name`, which is no axis; `value`: its values;
    - uncertified: a run was not what its scheme claims; `value`: in what;
    - few_seeds: configurations (not points) have one finished seed.
    """
    runs = tables.runs
    rows = [
        *_virtual(runs),
        *_crowded(runs),
        *_late(tables),
        *_unlike(runs),
        *_uncertified(tables.finished),
        *_few_seeds(summary(tables)),
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _virtual(runs: Frame) -> Iterator[Row]:
    points = int((runs["kind"] == "virtual").sum())
    if points:
        yield {"what": "virtual", "kind": "virtual", "points": points, "of": len(runs)}


def _crowded(runs: Frame) -> Iterator[Row]:
    """Compare processes with the cores of the machine; a virtual run has one process."""
    if "hardware.cores" not in runs:
        return
    servers = runs["servers"].fillna(0) if "servers" in runs else 0
    runs = runs.assign(processes=runs.get("jobs", 1) * (runs["workers"] + servers))
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
    for where, same in groups(runs, ["kind"]):
        for name in _CONDITIONS:
            if name in same and same[name].nunique() > 1:
                value = ", ".join(str(value) for value in sorted(same[name].unique()))
                row = {"what": "unlike", "name": name, "value": value}
                yield where | row | {"points": len(same), "of": len(same)}


def _uncertified(finished: Frame) -> Iterator[Row]:
    if "certificate" not in finished:
        return
    uncertified = finished[finished["certificate"].astype(str).str.startswith("not ")]
    for where, points in groups(uncertified, ["scheme", "workers", "certificate"]):
        value = where.pop("certificate")
        row = {"what": "uncertified", "value": value, "points": len(points), "of": len(points)}
        yield where | row


def _few_seeds(means: Frame) -> Iterator[Row]:
    points = int((means["n_finished"] == 1).sum())
    if points:
        yield {"what": "few_seeds", "points": points, "of": len(means)}
