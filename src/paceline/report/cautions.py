"""What a reader must know before believing the numbers."""

from paceline.analysis.tables import Frame
from paceline.report.findings import Findings, groups
from paceline.report.number_format import percent, plural, setting

_CROWDED = {
    "measured": "They shared cores, so their images/s and speed-ups are those of a crowded "
    "machine, not of the scheme.",
    "paced": "As expected of paced: they sleep most of the time.",
}
_LATE = 0.01  # of the steps
_MOST_REASONS = 3
_CONDITIONS = ("jobs", "accelerator", "hardware.cpu", "hardware.cores")


def cautions(findings: Findings) -> list[str]:
    """Sentences; none where nothing is wrong."""
    runs = findings.tables.runs
    return [
        *_virtual(runs),
        *_contended(runs),
        *_late(findings),
        *_unlike(runs),
        *_ended_badly(findings),
        *_without_a_worker(findings.tables.finished),
        *_about(findings.tables.about),
        *_certificates(findings.tables.finished),
        *_few_seeds(findings.summary),
    ]


def _virtual(runs: Frame) -> list[str]:
    num = int((runs["kind"] == "virtual").sum())
    if not num:
        return []
    return [
        f"{num} of {plural(len(runs), 'point')} {'is' if num == 1 else 'are'} virtual: "
        "time is modelled from the cluster profile, gradients are real."
    ]


def _contended(runs: Frame) -> list[str]:
    """Processes against the cores of the machine; a virtual run has one process."""
    if "hardware.cores" not in runs:
        return []
    servers = runs["servers"].fillna(0) if "servers" in runs else 0
    runs = runs.assign(processes=runs.get("jobs", 1) * (runs["workers"] + servers))
    found = []
    for kind, conclusion in _CROWDED.items():
        same = runs[runs["kind"] == kind]
        short = same[same["processes"] > same["hardware.cores"]]
        if len(short):
            cells = ", ".join(f"{n:.0f} on {cores:.0f}" for n, cores in _pairs(short))
            found.append(
                f"{len(short)} of {plural(len(same), f'{kind} point')} had more processes "
                "(workers and servers of all points that ran at once) than cores: "
                f"{cells}. {conclusion}"
            )
    return found


def _late(findings: Findings) -> list[str]:
    """Paced workers that could not keep the pace."""
    runs = findings.tables.runs
    if "late_steps" not in runs:
        return []
    steps = findings.tables.phases.groupby("key")["steps"].sum()
    paced = runs[runs["kind"] == "paced"]
    shares = paced["late_steps"].astype(float) / paced["key"].map(steps).astype(float)
    late = shares[shares > _LATE]
    if late.empty:
        return []
    return [
        f"{len(late)} of {plural(len(paced), 'paced point')} did not keep the pace: real compute "
        f"took longer than the emulated in up to {percent(late.max())} of the steps, so they are "
        "slower than what they stand for."
    ]


def _unlike(runs: Frame) -> list[str]:
    """Conditions that are no axis of the study, yet differ between its points of one kind."""
    found = []
    for where, same in groups(runs, ["kind"]):
        number = "real images/s" if where["kind"] == "virtual" else "images/s"
        names = [name for name in _CONDITIONS if name in same and same[name].nunique() > 1]
        found += [
            f"{where['kind'].capitalize()} points ran under unlike conditions, and their {number} "
            f"are averaged all the same: {name} "
            f"{', '.join(str(value) for value in sorted(same[name].unique()))}."
            for name in names
        ]
    return found


def _pairs(runs: Frame) -> list[tuple]:
    return sorted(set(zip(runs["processes"], runs["hardware.cores"], strict=True)))


def _ended_badly(findings: Findings) -> list[str]:
    runs = findings.tables.runs
    found = []
    for status in ("diverged", "failed"):
        for where, points in groups(runs[runs["status"] == status], ["scheme", "kind"]):
            what = plural(len(points), f"{where['kind']} point")
            reasons = list(dict.fromkeys(points["reason"]))
            more = len(reasons) - _MOST_REASONS
            found.append(
                f"Of {where['scheme']}, {what} {status} "
                f"({'; '.join(_places(findings, points))}), left out of every mean: "
                f"{'; '.join(reasons[:_MOST_REASONS])}"
                f"{f'; {more} more' if more > 0 else ''}"
            )
    return found


def _without_a_worker(finished: Frame) -> list[str]:
    """A finished run has a reason where it lost a worker on the way."""
    return [
        f"Of {where['scheme']} with {where['workers']} workers, seed {where['seed']}, counted in "
        f"every mean all the same: {where['reason']}."
        for where, _ in groups(
            finished[finished["reason"] != ""], ["scheme", "workers", "seed", "reason"]
        )
    ]


def _places(findings: Findings, points: Frame) -> list[str]:
    """For each setting: at how many workers, with which seeds."""
    found = []
    for where, same in groups(points, ["workers", *findings.varying]):
        parts = [f"{axis} {setting(value)}" for axis, value in where.items()]
        seeds = ", ".join(str(seed) for seed in sorted(same["seed"]))
        found.append(", ".join([*parts, f"seed{'s' if len(same) > 1 else ''} {seeds}"]))
    return found


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
