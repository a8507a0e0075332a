"""Which tables a page has, and what is in their cells."""

from typing import Any

import pandas as pd

from paceline.analysis.clocks import LITTLE
from paceline.analysis.summary import REAL
from paceline.report.clock_agreement import agreement, has_twins
from paceline.report.findings import Findings, groups
from paceline.report.number_format import (
    count,
    decimals,
    percent,
    percent_points,
    seconds,
    setting,
    shown,
)
from paceline.report.table import Table, cell, spread, table_of

_TUNING = ("key", "lr", "top1", "status", "chosen")  # columns of tuning.csv that are no axes
_SOURCES = ("hardware.", "versions.")
_REAL = {
    "real seconds": spread("real_seconds", seconds),
    "real images/s": spread("real_images_per_second", count),
}


def page_tables(findings: Findings) -> list[Table]:
    """Those of results; a table without rows keeps its caption."""
    twins = [clocks] if has_twins(findings) else []
    made = (*twins, summary, scaling, comparison, equal_budgets, time_to_target, losses)
    return [make(findings) for make in made]


def origin_tables(findings: Findings) -> list[Table]:
    """Where the results come from; without tuning where no rate was tuned."""
    tuned = [tuning] if len(findings.tuning) else []
    return [make(findings) for make in (*tuned, evaluated, sources)]


def clocks(findings: Findings) -> Table:
    """Of the virtual clock against the wall clock."""
    cells = {
        "against": lambda row: _against(row, findings.varying),
        "images/s, ratio": spread("images_per_second_ratio", decimals),
        "staleness, ratio or ± updates": _staleness,
        "top-1 on test, points": spread("test_top1_difference", percent_points),
    }
    kinds = " and ".join(dict.fromkeys(findings.clocks["against"])) or "measured"
    caption = (
        "Virtual over the other, or virtual minus the other, paired by seed, at equal settings; "
        "means with 95 % t-intervals. Staleness has a difference, with its sign, where the other "
        f"has less than {LITTLE} updates of it."
    )
    name = f"Virtual against {kinds}"
    return table_of(
        findings, name, caption, "clocks.csv", findings.clocks, cells, agreement(findings)
    )


def equal_budgets(findings: Findings) -> Table:
    cells = {
        "at equal samples": spread("top1", percent),
        "at equal time": spread("top1_equal_time", percent),
        "that time, seconds": cell("common_seconds", seconds),
        "at equal updates": spread("top1_equal_updates", percent),
        "those updates": cell("common_updates", count),
    }
    caption = (
        "Top-1 on validation. Equal samples: at the end of the budget. Equal time: when the first "
        "finished run with as many workers ended, whatever its scheme and rate; equal updates "
        "likewise. Each run by its last evaluation until then, so that seeds may differ by one."
    )
    return table_of(
        findings, "Equal budgets", caption, "equal_time.csv", findings.equal_time, cells
    )


def summary(findings: Findings) -> Table:
    cells = {
        "images/s": spread("images_per_second", count),
        "top-1, test": spread("test_top1", percent),
        "top-1, validation": spread("top1", percent),
        "finished / diverged / failed": lambda row: " / ".join(
            f"{row[f'n_{status}']:.0f}" for status in ("finished", "diverged", "failed")
        ),
    }
    caption = "Means over finished seeds with 95 % t-intervals; diverged and failed are counted."
    return table_of(findings, "Summary", caption, "summary.csv", findings.summary, cells)


def losses(findings: Findings) -> Table:
    runs = findings.tables.runs
    real = "virtual" in set(runs["kind"]) and runs.reindex(columns=REAL).notna().any(axis=None)
    caption = "Means over finished seeds with 95 % t-intervals, at the end of the budget."
    if real:
        caption += (
            " Seconds of the training clock are of the kind in the last column; real seconds and "
            "images/s are measured: what the run itself took, on the machine that made it."
        )
    cells = {
        "validation loss": spread("validation_loss", lambda value: f"{value:.3f}"),
        "seconds of the training clock" if real else "seconds": spread("seconds", seconds),
        **(_REAL if real else {}),
        "staleness": spread("staleness_mean", decimals),
    }
    return table_of(
        findings, "Loss, time, staleness", caption, "summary.csv", findings.summary, cells
    )


def scaling(findings: Findings) -> Table:
    cells = {
        "baseline": lambda row: str(row["baseline"]),
        "speed-up": spread("speedup", decimals),
        "efficiency": spread("efficiency", percent),
    }
    caption = f"Against one worker, paired by seed. {scaling_kind(findings)}"
    return table_of(findings, "Scaling", caption, "scaling.csv", findings.scaling, cells)


def scaling_kind(findings: Findings) -> str:
    batch = "Weak scaling in batch: images per worker constant"
    samples = findings.tables.finished["samples"].dropna()
    if samples.empty or samples.max() <= 1.01 * samples.min():  # the last global batch is whole
        return f"{batch}, samples in total constant."
    return f"{batch}; samples in total from {count(samples.min())} to {count(samples.max())}."


def comparison(findings: Findings) -> Table:
    cells = {
        "against": lambda row: str(row["reference"]),
        "images/s, ratio": spread("speed_ratio", decimals),
        "top-1 on test, points": spread("test_top1_difference", percent_points),
        "top-1 on validation, points": spread("top1_difference", percent_points),
    }
    caption = "Scheme against scheme at the same workers and settings, paired by seed."
    return table_of(findings, "Comparison", caption, "comparison.csv", findings.comparison, cells)


def time_to_target(findings: Findings) -> Table:
    frame = findings.time_to_target
    cells = {
        "target": lambda row: percent(row["target"]),
        "reached": _reached,
        "seconds, mean": spread("seconds", seconds),
        "seconds, median": lambda row: shown(row["seconds_median"], seconds),
        "samples, mean": spread("samples", count),
        "samples, median": lambda row: shown(row["samples_median"], count),
    }
    how = (
        "First evaluation at or above the target, two points of validation top-1 below the best "
        "mean of one worker"
    )
    best = "; ".join(dict.fromkeys(frame["set_by"])) if len(frame) else ""
    rule = (
        f"{how} ({best}). A run that ended before is counted as not reached (right-censored): "
        "then there is no mean, and the median takes it as later than all that got there."
    )
    caption = rule if best else "No target: no finished point with one worker."
    return table_of(findings, "Time to target", caption, "time_to_target.csv", frame, cells)


def all_points(findings: Findings) -> Table:
    runs = findings.tables.runs
    cells = {
        "seed": lambda row: setting(row["seed"]),
        "status": lambda row: (
            f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
        ),
        "images/s": cell("images_per_second", count),
        "top-1, test": cell("test_top1", lambda value: f"{100 * value:.2f} %"),
        "top-1, validation": cell("top1", lambda value: f"{100 * value:.2f} %"),
        "seconds": cell("seconds", seconds),
        "staleness": cell("staleness_mean", decimals),
        "key": lambda row: str(row["key"]),
    }
    return table_of(findings, "All points", "One row per point, as run.", "runs.csv", runs, cells)


def tuning(findings: Findings) -> Table:
    """A row per rate and configuration, as tried."""
    frame = findings.tuning
    axes = [name for name in frame if name not in _TUNING]
    cells = {
        "training.lr": lambda row: setting(row["lr"]),
        "top-1, validation": cell("top1", lambda value: f"{100 * value:.2f} %"),
        "status": lambda row: row["status"],
        "chosen": lambda row: "yes" if row["chosen"] == "true" else "",
    }
    rows = [
        [*(setting(row[axis]) for axis in axes), *(c(row) for c in cells.values())]
        for _, row in frame.iterrows()
    ]
    caption = (
        "Each rate that was tried, by one run with a seed that no reported run has. When all rates "
        "of a configuration have run, its tuned points take the one with the best top-1; one that "
        "diverged or failed is worse than any other, and of equals the smaller is taken."
    )
    return Table("Tuning", caption, "tuning.csv", (*axes, *cells), rows)


def sources(findings: Findings) -> Table:
    """Hardware, versions, commit: what all points share, or how many points have which."""
    runs = findings.tables.runs
    names = [name for name in runs if name.startswith(_SOURCES)]
    names += ["data", "model", "cluster", *findings.told_by_kind, "commit", "source_digest", "jobs"]
    rows = [(name, _values(runs[name])) for name in dict.fromkeys(names) if name in runs]
    return Table("Made with", "Hardware, versions, code.", "runs.csv", ("what", "value"), rows)


def evaluated(findings: Findings) -> Table:
    """What was evaluated, and what each scheme was seen to be."""
    finished = findings.tables.finished
    names = [name for name in ("scheme", "evaluated", "certificate") if name in finished]
    found = groups(finished, names) if len(finished) else []
    rows = [[*map(setting, where.values()), str(len(points))] for where, points in found]
    caption = "Which weights were evaluated, and what the run was seen to be."
    return Table("What was evaluated", caption, "runs.csv", (*names, "points"), rows)


def _reached(row: Any) -> str:
    late = f", {row['n_censored']:.0f} censored" if row["n_censored"] else ""
    return f"{row['n_reached']:.0f} of {row['n_reached'] + row['n_censored']:.0f}{late}"


def _against(row: Any, varying: list[str]) -> str:
    """The kind of the other side, and what the columns of axes do not say of it."""
    own = [axis for axis in varying if f"against_{axis}" in row]
    parts = [f"{axis} {setting(row[f'against_{axis}'])}" for axis in own]
    return f"{row['against']} ({', '.join(parts)})" if parts else str(row["against"])


def _staleness(row: Any) -> str:
    ratio, difference = ("staleness_ratio", decimals), ("staleness_difference", _signed)
    return spread(*(ratio if pd.notna(row["staleness_ratio_mean"]) else difference))(row)


def _signed(value: float) -> str:
    return f"{value:+.2f}"


def _gibibytes(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


def _values(column: pd.Series) -> str:
    form = _gibibytes if str(column.name).endswith("_bytes") else setting
    counts = column.map(form).replace("[]", "none").value_counts(sort=False)
    if len(counts) == 1:
        return str(counts.index[0])
    return "; ".join(f"{value} ({n} points)" for value, n in counts.items())
