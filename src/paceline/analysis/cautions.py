"""Detects conditions of a study that weaken the meaning of its numbers."""

from collections.abc import Iterator

import pandas as pd

from paceline.analysis.comparison import scaling
from paceline.analysis.configuration import configurations, counts, groups, num_processes
from paceline.analysis.frames import Frame, Row
from paceline.analysis.searches import best_trials, tuning_axes
from paceline.analysis.tables import Tables

LATE = 0.01  # share of the steps of workers with emulated step times
MOST_EFFICIENT = 1.05  # mean efficiency above which the number of workers cannot be the only cause
_CONDITIONS = ("jobs", "accelerator", "hardware.cpu", "hardware.cores")
_COLUMNS = ["what", "kind", "scheme", "workers", "name", "value", "share", "points", "of"]
_COLUMNS += ["started", "minutes"]


def cautions(tables: Tables) -> Frame:
    """Return one row per caution: a condition that weakens the meaning of some numbers.

    The condition applies to `points` out of `of` points (single runs); for super_linear, few_seeds
    and at_edge, these two columns count configurations. The column `what` names the condition:

    - virtual: the time of the points is computed by a model, not measured;
    - mixed_data: the points of the data set `name` were made of `value` different contents of it;
    - crowded: the points had more processes than the machine had cores; `value` lists the pairs of
      both numbers, as "8 on 4, 9 on 4";
    - shared_gpu: workers of the points shared a GPU; `value` lists how many did;
    - late: workers with emulated step times exceeded them in more than the share LATE of their
      steps; `share` is the largest share of a point;
    - unlike: the points were run with different values of `name`, a property of the machine or of
      how the study was run, which the study did not vary on purpose; `value` lists the values;
    - uncertified: the certificate of a run (whether its workers shared updates as its scheme
      claims) contradicts the scheme; `value` is the certificate;
    - one_machine: the measured points ran on the machine `name`, in `value` different hours;
      `started` is the start of the first run, and `minutes` is the time from it to the end of the
      last;
    - super_linear: the efficiency of these configurations (speed-up per worker) is above 1 by its
      whole interval, or by more than 5 % in the mean; `value` lists them;
    - few_seeds: these configurations have only one finished seed;
    - at_edge: the best trial of these configurations is at the edge of the range of their search,
      so that a better setting may lie outside the range; `value` lists them.
    """
    rows = [row for find in _FOUND for row in find(tables)]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _row(what: str, found: Frame | list[Row], of: Frame | list[Row], **more: object) -> Row:
    return {"what": what, **more, "points": len(found), "of": len(of)}


def _virtual(tables: Tables) -> Iterator[Row]:
    virtual = tables.runs[tables.runs["kind"] == "virtual"]
    if len(virtual):
        yield _row("virtual", virtual, tables.runs, kind="virtual")


def _mixed_data(tables: Tables) -> Iterator[Row]:
    """Yield a row per data set, with its settings, whose content has changed between points."""
    settings = ["data", *(name for name in tables.axes if name.startswith("data."))]
    for group, same in groups(tables.runs, settings) if "data_digest" in tables.runs else ():
        number = same["data_digest"].replace("", None).nunique()
        if number > 1:
            yield _row("mixed_data", same, tables.runs, name=group["data"], value=str(number))


def _crowded(tables: Tables) -> Iterator[Row]:
    """Yield a row per scheme with measured points that had more processes than cores, and a row for
    all such paced points. Virtual runs have one process and are not checked.
    """
    runs = tables.runs
    runs = runs.assign(processes=runs["jobs"] * (num_processes(runs) + runs["servers"].fillna(0)))
    runs["scheme"] = runs["scheme"].where(runs["kind"] == "measured", "")
    for group, same in groups(runs[runs["kind"] != "virtual"], ["kind", "scheme"]):
        short = same[same["processes"] > same["hardware.cores"]]
        pairs = sorted(set(zip(short["processes"], short["hardware.cores"], strict=True)))
        value = ", ".join(f"{processes:.0f} on {cores:.0f}" for processes, cores in pairs)
        if len(short):
            yield _row("crowded", short, same, **group, value=value)


def _shared_gpu(tables: Tables) -> Iterator[Row]:
    runs, name = tables.runs, "workers_per_accelerator"
    if name in runs:
        shared = runs[runs[name].astype(float) > 1]
        for group, points in groups(shared, ["kind"]):
            values = sorted(set(points[name].astype(float)))
            value = ", ".join(f"{each:.0f}" for each in values)
            same = runs[runs["kind"] == group["kind"]]
            yield _row("shared_gpu", points, same, **group, value=value)


def late_share(runs: Frame) -> Frame:
    """Return for each run the share of its workers' steps that exceeded their emulated times."""
    images = runs["samples"].astype(float) + runs["dropped_samples"].astype(float)
    return runs["late_steps"].astype(float) * runs["batch_size"] / images


def _late(tables: Tables) -> Iterator[Row]:
    paced = tables.runs[tables.runs["kind"] == "paced"]
    shares = late_share(paced)
    late = shares[shares > LATE]
    if len(late):
        yield _row("late", late, paced, kind="paced", share=late.max())


def _unlike(tables: Tables) -> Iterator[Row]:
    for group, same in groups(tables.runs, ["kind"]):
        for name in _CONDITIONS:
            if name in same and same[name].nunique() > 1:
                value = ", ".join(str(value) for value in sorted(same[name].unique()))
                yield _row("unlike", same, same, **group, name=name, value=value)


def _uncertified(tables: Tables) -> Iterator[Row]:
    finished = tables.finished
    uncertified = finished[finished["certificate"].astype(str).str.startswith("not ")]
    for group, points in groups(uncertified, ["scheme", "workers", "certificate"]):
        value = group.pop("certificate")
        yield _row("uncertified", points, points, **group, value=value)


def _minutes(runs: Frame) -> float:
    """Return the minutes from the earliest start of these runs to the latest end of any of them."""
    starts = pd.to_datetime(runs["started"])
    ends = starts + pd.to_timedelta(runs["wall_seconds"].to_numpy(float), unit="s")
    return (ends.max() - starts.min()).total_seconds() / 60


def _one_machine(tables: Tables) -> Iterator[Row]:
    """Yield a row per machine on which images/s were measured."""
    runs = tables.runs
    measured = runs[(runs["kind"] == "measured") & (runs["started"] != "")]
    for machine, points in groups(measured, ["hardware.cpu", "hardware.cores"]):
        starts = pd.to_datetime(points["started"])
        yield _row(
            "one_machine",
            points,
            runs,
            kind="measured",
            name=f"{machine['hardware.cpu']}, {machine['hardware.cores']:.0f} cores",
            value=str(starts.dt.floor("h").nunique()),
            started=points.loc[starts.idxmin(), "started"],
            minutes=_minutes(points),
        )


def _super_linear(tables: Tables) -> Iterator[Row]:
    """Yield a row if speed-ups exceed the number of workers."""
    several, texts = list[Row](), list[str]()
    for configuration, points in configurations(tables.runs, tables.axes):
        row = scaling(tables, configuration, points)
        if row["baseline"] == "itself":
            continue
        several.append(row)
        if row["efficiency_low"] > 1 or row["efficiency_mean"] > MOST_EFFICIENT:
            parts = [configuration["scheme"], f"{configuration['workers']} workers"]
            parts += _settings(configuration, tables.facets)
            texts.append(f"{', '.join(parts)}: {100 * row['efficiency_mean']:.0f} %")
    if texts:
        yield _row("super_linear", texts, several, value="; ".join(texts))


def _few_seeds(tables: Tables) -> Iterator[Row]:
    found = [counts(points) for _, points in configurations(tables.runs, tables.axes)]
    few = [each for each in found if each["n_finished"] == 1]
    if few:
        yield _row("few_seeds", few, found)


def _at_edge(tables: Tables) -> Iterator[Row]:
    best = best_trials(tables)
    texts = [
        ", ".join([*_settings(trial, tuning_axes(tables)), trial["at_edge"]])
        for _, trial in best.iterrows()
        if trial["at_edge"]
    ]
    if texts:
        yield _row("at_edge", texts, best, value="; ".join(texts))


def _settings(row: Row | Frame, names: list[str]) -> list[str]:
    """Describe those settings in `names` that have a value in the row."""
    known = [name for name in names if not pd.isna(row[name])]
    return [str(row[name]) if name == "scheme" else f"{name} {row[name]}" for name in known]


_FOUND = (_virtual, _mixed_data, _crowded, _late, _unlike, _uncertified, _one_machine)
_FOUND += (_shared_gpu, _super_linear, _few_seeds, _at_edge)
