"""Checks of a study: what a reader must know before trusting its numbers."""

from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from paceline.analysis.comparison import SPEED, one_worker
from paceline.analysis.configuration import (
    BUDGETS,
    configurations,
    finished,
    groups,
    matching,
    num_processes,
)
from paceline.analysis.configuration_table import NAME
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import ratio
from paceline.analysis.searches import best_trials, tuning_axes, untuned_schemes
from paceline.analysis.tables import LATE, late_share
from paceline.record.disturbance import disturbance
from paceline.report.answer import MOST_EFFICIENT
from paceline.report.findings import StudyFindings
from paceline.report.how_it_was_run import JITTER, SLOW_FACTOR
from paceline.report.number_format import listed, percent, plural, setting
from paceline.report.words import configuration_words, scheme_name

UNFAIR, CAUTION = "✗", "!"
_MACHINE = ("hardware.cpu", "hardware.cores", "hardware.gpus", "versions.", "num_parameters")
_CONDITIONS = ("jobs", "accelerator", "hardware.cpu", "hardware.cores")
UNLIKE = 1.25  # largest / smallest images/s of a configuration, whose repeats differ only by seed
_FEWEST_TRAINED = 0.5  # share of a search's trials below which it is unreliable


class Line(NamedTuple):
    """What a check found. `sign` is UNFAIR if runs are compared that must not be, else CAUTION."""

    sign: str
    text: str


def checks(findings: StudyFindings) -> list[Line]:
    """Return a line for each condition that weakens the meaning of the study's numbers."""
    unfair = [Line(UNFAIR, text) for check in _OF_FAIRNESS for text in check(findings)]
    return unfair + [Line(CAUTION, text) for check in _OF_CAUTION for text in check(findings)]


def _unlike_baselines(findings: StudyFindings) -> Iterator[str]:
    """Speed-ups against one worker on another machine, with another network or other versions."""
    tables, of, unlike = findings.tables, 0, list[str]()
    names = list(dict.fromkeys(["data", *tables.axes]))
    for configuration, points in configurations(tables.runs, names):
        base = one_worker(tables, configuration)
        if num_processes(configuration) == 1 or not ratio(finished(points), base, SPEED).n:
            continue
        of += 1
        if found := _unlike(points, base):
            unlike.append(f"{_named(findings, configuration)}: {found}")
    if unlike:
        yield (
            f"{len(unlike)} of {plural(of, 'speed-up')} over one worker must not be used, as that "
            f"of {unlike[0]}."
        )


def _unlike(points: Frame, base: Frame) -> str:
    """Name a property of the machine, a version or the network that differs; "" if none does.

    Simulated time is that of no machine.
    """
    is_modelled = len(base) and base["kind"].iloc[0] == "virtual"
    properties = _MACHINE[-2:] if is_modelled else _MACHINE
    for name in (column for column in base if column.startswith(properties)):
        both = pd.concat([points[name], base[name]]).dropna().unique()
        if len(both) > 1:
            return f"{name} is {' and '.join(sorted(map(str, both)))}"
    return ""


def _tuned_on_scored(findings: StudyFindings) -> Iterator[str]:
    tables = findings.tables
    scored = tables.finished[tables.finished["top1"].notna()]  # others measure throughput only
    if len(tables.tuning) and scored["test_top1"].isna().any():
        yield "Accuracies are of the validation images on which rates were tuned."


def _mixed_data(findings: StudyFindings) -> Iterator[str]:
    runs, axes = findings.tables.runs, findings.tables.axes
    names = ["data", *(name for name in axes if name.startswith("data."))]
    for group, same in groups(runs, names) if "data_digest" in runs else ():
        number = (
            same["data_digest"].replace("", None).nunique()
        )  # records of earlier code have none
        if number > 1:
            yield (
                f"{group['data']} was changed between runs, which are of {number} different "
                "contents of it: they cannot be compared."
            )


def _unsearched(findings: StudyFindings) -> Iterator[str]:
    if schemes := untuned_schemes(findings.tables):
        yield (
            f"Do not compare the accuracies of the {len(schemes)} schemes: all had one learning "
            "rate and momentum, tuned for none of them."
        )


def _assumed_times(findings: StudyFindings) -> Iterator[str]:
    runs, settings = findings.tables.runs, findings.tables.about["settings"]
    jitter, factor = settings.get(JITTER), settings.get(SLOW_FACTOR, 1)
    if "virtual" not in set(runs["kind"]) or not jitter:
        return
    has_slow = "cluster.slow_workers" in runs and runs["cluster.slow_workers"].max() > 0
    slow = (
        f", and that a straggler takes {setting(factor)} times as long"
        if has_slow and factor != 1
        else ""
    )
    yield (
        f"It is assumed that step times have a standard deviation of {percent(jitter)}{slow}. "
        "Measured were 5.5 and 13 % on two CPU cores, and 0.4 to 14 % in public traces "
        "(ByteDance's StragglerAnalysis)."
    )


def _crowded(findings: StudyFindings) -> Iterator[str]:
    """Say which measured points had more processes than cores; paced ones sleep, see `_late`."""
    runs = matching(findings.tables.runs, {"kind": "measured"})
    processes = runs["jobs"] * (num_processes(runs) + runs["servers"].fillna(0))
    short = runs.assign(processes=processes)[processes > runs["hardware.cores"]]
    pairs = sorted(set(zip(short["processes"], short["hardware.cores"], strict=True)))
    if pairs:
        value = ", ".join(f"{number:.0f} on {cores:.0f}" for number, cores in pairs)
        yield (
            f"{len(short)} of {plural(len(runs), 'measured run')} had more processes than cores "
            f"(workers and servers of all runs at once): {value}. Their images/s and "
            "speed-ups describe a crowded machine, not the scheme "
            f"({listed(map(scheme_name, short['scheme'].unique()))})."
        )


def _shared_gpu(findings: StudyFindings) -> Iterator[str]:
    runs, name = findings.tables.runs, "workers_per_accelerator"
    shared = runs[runs[name].astype(float) > 1] if name in runs else runs[:0]
    if len(shared):
        value = ", ".join(f"{each:.0f}" for each in sorted(set(shared[name].astype(float))))
        yield (
            f"{len(shared)} of {plural(len(runs), 'run')} had workers that shared a GPU ({value} "
            "on one), so their images/s describe that GPU, not workers with one each."
        )


def _late(findings: StudyFindings) -> Iterator[str]:
    paced = matching(findings.tables.runs, {"kind": "paced"})
    shares = late_share(paced)
    late = shares[shares > LATE]
    if len(late):
        yield (
            f"{len(late)} of {plural(len(paced), 'paced run')} did not keep the pace: real "
            f"computing took longer than the emulated step in up to {percent(late.max())} of the "
            "steps, so they are slower than the hardware that they stand for."
        )


def _disturbed(findings: StudyFindings) -> Iterator[str]:
    """Say which runs other programs or a stop of the machine made slower; see `disturbance`."""
    runs = findings.tables.runs
    known = [(row, words) for _, row in runs.iterrows() if (words := disturbance(row))]
    if known:
        load = runs.get("load_of_others", pd.Series(0, runs.index)).fillna(0)
        worst, words = max(known, key=lambda each: load[each[0].name])
        yield (
            f"{len(known)} of {plural(len(runs), 'run')} were disturbed, so their images/s may be "
            f"too low. The worst, {_named(findings, worst)}, seed {worst['seed']}: {words}."
        )


def _unlike_repeats(findings: StudyFindings) -> Iterator[str]:
    """Say which configurations were measured at images/s that differ by more than UNLIKE."""
    measured = matching(findings.tables.finished, {"kind": "measured"})
    measured = measured[measured["images_per_second"].notna()]
    speeds = [
        (points["images_per_second"].max() / points["images_per_second"].min(), points)
        for _, points in configurations(measured, findings.tables.axes)
    ]
    unlike = [each for each in speeds if each[0] > UNLIKE]
    if unlike:
        points = max(unlike, key=lambda each: each[0])[1]
        least, most = (f"{points['images_per_second'].agg(of):,.0f}" for of in ("min", "max"))
        yield (
            f"Images/s of {len(unlike)} of {plural(len(speeds), 'measured configuration')} differ "
            f"between repeats by more than {percent(UNLIKE - 1, 0)}, as on a machine that others "
            f"use: {_named(findings, points.iloc[0])}, {least} to {most}."
        )


def _unlike_conditions(findings: StudyFindings) -> Iterator[str]:
    """Say which properties differ, of the machine or of how the study was run."""
    for group, same in groups(findings.tables.runs, ["kind"]):
        values = {name: sorted(same[name].unique()) for name in _CONDITIONS if name in same}
        texts = [f"{n} {', '.join(map(setting, of))}" for n, of in values.items() if len(of) > 1]
        if texts:
            yield (
                f"{group['kind'].capitalize()} runs had different conditions, and their "
                f"{'real ' if group['kind'] == 'virtual' else ''}images/s are averaged all the "
                f"same: {'; '.join(texts)}."
            )


def _ended_badly(findings: StudyFindings) -> Iterator[str]:
    """Say how many runs did not finish or finished with a reason to doubt them, and name one."""
    runs = findings.tables.runs
    doubted = runs[(runs["reason"] != "") | (runs["status"] != "finished")]
    for group, points in groups(doubted, ["status", "kind"]):
        first = points.iloc[0]
        yield (
            f"{plural(len(points), group['kind'] + ' run')} "
            f"{group['status'].replace('untrained', 'did not learn')}, and "
            f"{'all' if group['status'] == 'finished' else 'no'} means have them, such as "
            f"{_named(findings, first)}, seed {first['seed']}: {first['reason'].partition(';')[0]}."
        )


def _unfit_records(findings: StudyFindings) -> Iterator[str]:
    if unfit := findings.tables.about["unfit"]:
        faults = "; ".join(f"{key} ({fault})" for key, fault in unfit.items())
        yield f"Records that are malformed or inconsistent are in no number: {faults}."


def _one_machine(findings: StudyFindings) -> Iterator[str]:
    """Say on which machine, and for how long, images/s were measured."""
    measured = matching(findings.tables.runs, {"kind": "measured"})
    measured = measured[measured["started"] != ""]
    for machine, points in groups(measured, ["hardware.cpu", "hardware.cores"]):
        starts = pd.to_datetime(points["started"], utc=True)
        ends = starts + pd.to_timedelta(points["wall_seconds"].to_numpy(float), unit="s")
        minutes = (ends.max() - starts.min()).total_seconds() / 60
        yield (
            f"Images/s of {plural(len(points), 'run')} were measured on one machine ("
            f"{machine['hardware.cpu']}, {machine['hardware.cores']:.0f} cores) within "
            f"{plural(max(minutes, 1), 'minute')} from {starts.min():%Y-%m-%d %H:%M} UTC. Their "
            "intervals do not include the variation between hours or machines."
        )


def _super_linear(findings: StudyFindings) -> Iterator[str]:
    rows = findings.concluded[NAME]
    several = rows[(num_processes(rows) > 1) & rows["efficiency_mean"].notna()]
    above = several[several["efficiency_mean"] > MOST_EFFICIENT]
    if len(above):
        worst = above.loc[above["efficiency_mean"].idxmax()]
        yield (
            f"{len(above)} of {plural(len(several), 'configuration')} with several workers had a "
            "super-linear speed-up: the single worker was slow, or more than workers was added. Do "
            f"not plan with it. The largest efficiency is {percent(worst['efficiency_mean'], 0)}: "
            f"{_named(findings, worst)}."
        )


def _untuned_budget(findings: StudyFindings) -> Iterator[str]:
    runs = findings.tables.runs
    is_one = runs["workers"] == 1
    for name in (name for name in BUDGETS if name in findings.tables.axes):
        alone, others = (set(runs.loc[own, name].dropna()) for own in (is_one, ~is_one))
        if len(alone) == 1 and others - alone:
            budget = setting(alone.pop())
            yield f"One worker's budget was not tuned: it ran with {name} {budget} only."


def _unreliable_search(findings: StudyFindings) -> Iterator[str]:
    tuning = findings.tables.tuning
    trained = int((tuning["status"] == "finished").sum())
    if trained < _FEWEST_TRAINED * len(tuning):
        yield f"Search unreliable: {trained} of {plural(len(tuning), 'trial')} trained."


def _few_seeds(findings: StudyFindings) -> Iterator[str]:
    rows = findings.concluded[NAME]
    if few := int((rows["n_finished"] == 1).sum()):
        yield (
            f"{few} of {plural(len(rows), 'configuration')} had only one finished seed: without an "
            "interval, the role of chance is unknown."
        )


def _at_edge(findings: StudyFindings) -> Iterator[str]:
    best, names = best_trials(findings.tables), tuning_axes(findings.tables)
    at_edge = [trial for _, trial in best.iterrows() if trial["at_edge"]]
    if at_edge:
        settings = ", ".join(f"{n} {at_edge[0][n]}" for n in names if pd.notna(at_edge[0][n]))
        yield (
            f"The best trial of {len(at_edge)} of {plural(len(best), 'tuned configuration')} is at "
            "the edge of the search range, so a better rate may exist. The first: "
            f"{settings}, {at_edge[0]['at_edge']}."
        )


def _unknown_code(findings: StudyFindings) -> Iterator[str]:
    commits = findings.tables.finished["commit"].astype(str)
    unknown = (commits == "") | commits.str.endswith("+dirty")
    if unknown.any():
        yield (
            f"{plural(unknown.sum(), 'run')} without a commit of the code: the settings of this "
            "code cannot all be looked up."
        )


def _named(findings: StudyFindings, row: Row | Frame) -> str:
    return configuration_words(row, ["workers", *findings.varying])


_OF_FAIRNESS = (_unlike_baselines, _tuned_on_scored, _mixed_data, _unsearched)
_OF_CAUTION = (_assumed_times, _crowded, _disturbed, _unlike_repeats, _shared_gpu, _late)
_OF_CAUTION += (_unlike_conditions, _ended_badly)
_OF_CAUTION += (_unfit_records, _one_machine, _super_linear, _untuned_budget, _few_seeds, _at_edge)
_OF_CAUTION += (_unreliable_search, _unknown_code)
