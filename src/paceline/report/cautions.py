"""What a reader must know before believing the numbers."""

from typing import Any

from paceline.analysis.tables import Frame
from paceline.report.findings import Findings, groups
from paceline.report.number_format import plural, setting

_CONDITIONS = ("jobs", "accelerator", "hardware.cpu", "hardware.cores")


def cautions(findings: Findings) -> list[str]:
    """Sentences; none where nothing is wrong."""
    return [
        *_contended(findings.tables.runs),
        *_unlike(findings.tables.runs),
        *_ended_badly(findings),
        *_about(findings.tables.about),
        *_certificates(findings.tables.finished),
        *_few_seeds(findings.summary),
    ]


def _contended(runs: Frame) -> list[str]:
    """Processes against the cores of the machine; a virtual run has one process."""
    if "hardware.cores" not in runs:
        return []
    runs = runs[runs["kind"] != "virtual"]
    jobs = runs.get("jobs", 1)
    servers = runs["servers"].fillna(0) if "servers" in runs else 0
    processes = jobs * (runs["workers"] + servers)
    short = processes > runs["hardware.cores"]
    if not short.any():
        return []
    worst = runs[short].assign(processes=processes[short])
    cells = (f"{n:.0f} on {cores:.0f}" for n, cores in _pairs(worst))
    return [
        f"{int(short.sum())} of {len(runs)} points had more processes (workers and servers of all "
        f"points that ran at once) than cores: {', '.join(cells)}. They shared cores, so their "
        "images/s and speed-ups are those of a crowded machine, not of the scheme."
    ]


def _unlike(runs: Frame) -> list[str]:
    """Conditions that are no axis of the study, yet differ between its points."""
    names = [name for name in _CONDITIONS if name in runs and runs[name].nunique() > 1]
    return [
        f"Points ran under unlike conditions, and their images/s are averaged all the same: {name} "
        f"{', '.join(str(value) for value in sorted(runs[name].unique()))}."
        for name in names
    ]


def _pairs(runs: Frame) -> list[tuple]:
    return sorted(set(zip(runs["processes"], runs["hardware.cores"], strict=True)))


def _ended_badly(findings: Findings) -> list[str]:
    runs = findings.tables.runs
    found = []
    for status in ("diverged", "failed"):
        for where, points in groups(runs[runs["status"] == status], ["scheme", "reason"]):
            names = "; ".join(_point(findings, row) for _, row in points.iterrows())
            found.append(
                f"Of {where['scheme']}, {plural(len(points), 'point')} {status} ({names}), left "
                f"out of every mean: {where['reason']}"
            )
    return found


def _point(findings: Findings, row: Any) -> str:
    parts = [f"{axis} {setting(row[axis])}" for axis in findings.varying]
    return ", ".join([f"workers {row['workers']}", *parts, f"seed {row['seed']}"])


def _about(about: dict) -> list[str]:
    missing, others, stale = about["missing"], about["other_records"], about["stale_code"]
    found = []
    if missing:
        found.append(
            f"No record yet of {len(missing)} of {about['num_points']} points: "
            f"{', '.join(missing)}."
        )
    if others:
        found.append(
            f"Left out, of earlier settings in the same folder: {plural(len(others), 'record')}, "
            f"{', '.join(others)}."
        )
    if stale:
        found.append(f"Made by other code than the latest: {plural(stale, 'record')}.")
    return found


def _certificates(finished: Frame) -> list[str]:
    if "certificate" not in finished:
        return []
    doubtful = finished[finished["certificate"].astype(str).str.startswith("not ")]
    return [
        f"Of {where['scheme']} with {where['workers']} workers, {plural(len(points), 'point')}: "
        f"{where['certificate']}."
        for where, points in groups(doubtful, ["scheme", "workers", "certificate"])
    ]


def _few_seeds(summary: Frame) -> list[str]:
    single = int((summary["n_finished"] == 1).sum())
    if not single:
        return []
    return [
        f"{single} of {len(summary)} configurations have one finished seed alone: no interval, and "
        "nothing can be said of chance."
    ]
