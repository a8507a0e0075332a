"""Declares the tables of results on the page of a study: their columns, with units and formats."""

import math
from collections.abc import Sequence

import pandas as pd

from paceline.analysis.analyse import CONCLUSIONS, Conclusion
from paceline.analysis.axes import implied_by_scheme
from paceline.analysis.clocks import LITTLE
from paceline.analysis.configuration_table import NAME
from paceline.analysis.frames import Frame, Row
from paceline.analysis.predicted import EXCHANGE_NEAR, SIZE
from paceline.analysis.scaling import unequal_samples
from paceline.analysis.statistics.crossing import IN_A_ROW
from paceline.record.numbers import NUMBERS, Section, shown_numbers
from paceline.report.agreement import agreement, has_twins, predictions
from paceline.report.findings import StudyFindings
from paceline.report.number_format import (
    MISSING,
    Form,
    count,
    decimals,
    form_of,
    general,
    percent,
    percent_points,
    seconds,
    setting,
    signed,
    with_interval,
)
from paceline.report.phrases import say
from paceline.report.summary import fault_sentences
from paceline.report.table import Column, Table, concluded, mean, value
from paceline.report.target_origin import target_metric, target_origin, validation_images

_PREDICTED = (
    value("images/s, observed", "rate_observed", count),
    Column("images/s of a seed", lambda row: _of_seeds(row)),
    value("images/s, predicted", "rate_predicted", count),
    value("error", "rate_error", lambda error: f"{100 * error:+.0f} %"),
    value("verdict", "rate_verdict", str),
)
_FAULTS = (
    Column("finished", lambda row: f"{row['n_finished']} of {row['n']}"),
    mean("seconds, ratio", "fault_seconds_ratio", decimals),
    mean("top-1 on test, points", "fault_test_top1_difference", percent_points),
    value("images lost", "fault_images_lost", count),
    value("seconds until it ended", "fault_seconds_to_end", seconds),
    value("reason", "fault_reason", str),
)
_COUNTS = Column(
    "finished / diverged / failed",
    lambda row: " / ".join(f"{row[f'n_{s}']:.0f}" for s in ("finished", "diverged", "failed")),
)
_SCALING = (
    value("baseline", "baseline", str),
    mean("speed-up", "speedup", decimals),
    mean("efficiency", "efficiency", percent),
)
_CROSSOVERS = (
    value("compared with", "reference", str),
    Column("sooner from", lambda row: _judged(row, _workers(row["ahead_from"], row))),
    Column("95 % interval", lambda row: _judged(row, _interval(row))),
    Column("compared at", lambda row: f"{row['least']} to {row['most']} workers"),
)
_COMPARISON = (
    value("compared with", "reference", str),
    mean("images/s, ratio", "reference_speed_ratio", decimals),
    mean("top-1 on test, points", "reference_test_top1_difference", percent_points),
    mean("top-1 on validation, points", "reference_top1_difference", percent_points),
)
_EQUAL_BUDGETS = (
    mean("at equal samples", "top1_equal_samples", percent),
    mean("at equal time", "top1_equal_time", percent),
    value("that time, seconds", "common_seconds", seconds),
    mean("at equal updates", "top1_equal_updates", percent),
    value("those updates", "common_updates", count),
)
_TIME_TO_TARGET = (
    Column("reached", lambda row: _reached(row)),
    mean("seconds, mean", "target_seconds", seconds),
    value("seconds, median", "target_seconds_median", seconds),
    mean("samples, mean", "target_samples", count),
    value("samples, median", "target_samples_median", count),
)


_EXCHANGE = [
    value(name, f"exchange_{name}", general)
    for name in ["n", "half", "observed", "predicted", "error", "verdict"]
]
_EXCHANGE += [
    value(name, f"exchange_{name}", general)
    for name in ("staleness_distance", "staleness_p", "staleness_verdict")
]


def page_tables(findings: StudyFindings) -> list[Table]:
    """Return the tables of results, including those without rows."""
    facts = _facts(findings)

    def shown(name: str, title: str, columns: Sequence[Column], rows=None, says=()) -> Table:
        text = say(f"caption_{name}", facts)
        table = name if name in findings.concluded else NAME
        return concluded(findings, table, title, text, columns, says, rows)

    twins = " and ".join(dict.fromkeys(findings.concluded["clocks"]["against"])) or "measured"
    target = value("target", "target", decimals if facts["side"] == "below" else percent)
    counts_as = Column("counts as", _counts_as)
    losses: Section = "Loss, time, staleness"
    rates, faults = findings.known("rate_n"), findings.known("fault_seconds_ratio_n")
    compared, reached = findings.known("reference"), findings.known("target")
    blocks, exchanged = findings.known("block_ratio_n"), findings.known("exchange_n")
    tables = []
    if has_twins(findings):
        says = agreement(findings)
        tables.append(shown("clocks", f"Virtual against {twins}", _clocks(findings), says=says))
    if len(rates):
        title, says = "Predicted against observed", predictions(findings)
        tables.append(shown("predicted", title, _PREDICTED, rates, says))
    if len(faults):
        tables.append(shown("faults", "Faults", _FAULTS, faults, fault_sentences(findings)))
    return [
        *tables,
        shown("summary", "Summary", [*_numbers(findings, "Summary"), _COUNTS]),
        shown("scaling", "Scaling", [*_SCALING, counts_as]),
        shown("crossovers", "Crossovers in scale", _CROSSOVERS),
        shown("comparison", "Comparison", _COMPARISON, compared),
        shown("equal_time", "Equal budgets", _EQUAL_BUDGETS),
        shown("time_to_target", "Time to target", [target, *_TIME_TO_TARGET], reached),
        shown("losses", losses, _numbers(findings, losses)),
        shown("block_ratios", "Block ratios", [mean("ratio", "block_ratio", general)], blocks),
        shown("predicted_exchange", "Predicted exchange", _EXCHANGE, exchanged),
        *(_plain(findings, each) for each in CONCLUSIONS if each.caption),
    ]


def _facts(findings: StudyFindings) -> Row:
    """Return what captions say of the study."""
    known = findings.concluded[NAME]
    real = known.get("real_seconds_mean", pd.Series(dtype=float))
    return {
        "means": say("caption_means"),
        "real": real.notna().any() and "virtual" in set(findings.tables.runs["kind"]),
        "little": LITTLE,
        "halves": "rate_half" in known and known["rate_half"].any(),
        "near": EXCHANGE_NEAR,
        "size": SIZE,
        "strong": findings.tables.is_strong,
        "samples": unequal_samples(findings.tables),
        "images": validation_images(findings),
        "origin": target_origin(findings),
        "in_a_row": IN_A_ROW,
        "side": "below" if target_metric(findings) == "loss" else "above",
    }


def _plain(findings: StudyFindings, conclusion: Conclusion) -> Table:
    """Show a table of analysis with one column per number, or per mean with its interval."""
    axes = ("kind", "data", *findings.tables.axes, *implied_by_scheme(findings.tables))
    names = [name for name in findings.concluded[conclusion.name] if name not in axes]
    means = [name.removesuffix("_mean") for name in names if name.endswith("_mean")]
    parts = {f"{name}_{part}" for name in means for part in ("mean", "low", "high", "n")}
    columns = [mean(name, name, _form_of(name)) for name in means]
    columns += [value(name, name, _form_of(name)) for name in names if name not in parts]
    title = conclusion.name.replace("_", " ").capitalize()
    return concluded(findings, conclusion.name, title, conclusion.caption, columns)


def _form_of(name: str) -> Form:
    return next((form_of(number.unit) for number in NUMBERS if number.name == name), general)


def _clocks(findings: StudyFindings) -> list[Column]:
    return [
        Column("compared with", lambda row: _other_clock(row, findings.varying)),
        mean("images/s, ratio", "images_per_second_ratio", decimals),
        Column("staleness, ratio or ± updates", _staleness),
        mean("top-1 on test, points", "test_top1_difference", percent_points),
    ]


def _other_clock(row: Frame, varying: list[str]) -> str:
    """Name the kind that `row` is compared with, and its values of the axes that differ."""
    own = [axis for axis in varying if f"against_{axis}" in row]
    parts = [f"{axis} {setting(row[f'against_{axis}'])}" for axis in own]
    return f"{row['against']} ({', '.join(parts)})" if parts else str(row["against"])


def _staleness(row: Frame) -> str:
    ratio, difference = ("staleness_ratio", decimals), ("staleness_difference", signed)
    return with_interval(row, *(ratio if pd.notna(row["staleness_ratio_mean"]) else difference))


def _numbers(findings: StudyFindings, section: Section) -> list[Column]:
    """Return a column for each number of `section` of which any point has a value."""
    frame = findings.concluded[NAME]
    has_virtual = "virtual" in set(frame["kind"])
    return [
        mean(shown.label, number.name, form_of(number.unit))
        for number, shown in shown_numbers()
        if shown.section == section and (has_virtual or not shown.beside_virtual)
        if f"{number.name}_mean" in frame and frame[f"{number.name}_mean"].notna().any()
    ]


def _counts_as(row: Frame) -> str:
    """Say whether a speed-up is at equal accuracy; a dash if there is no speed-up."""
    verdict = row.get("baseline_verdict")
    if not verdict:
        return MISSING
    return "at equal accuracy" if verdict == "equal" else "throughput only"


def _of_seeds(row: Frame) -> str:
    least, most = count(row["rate_least"]), count(row["rate_most"])
    return f"{least} to {most}, n = {row['rate_n']:.0f}"


def _judged(row: Frame, text: str) -> str:
    return "not judged: its best trial is at the edge of the search" if row["at_edge"] else text


def _interval(row: Frame) -> str:
    return " to ".join(_workers(row[f"ahead_from_{end}"], row) for end in ("low", "high"))


def _workers(number: float, row: Frame) -> str:
    """Format a crossover between the numbers of workers that were compared, or beyond them."""
    if pd.isna(number):
        return MISSING
    if not number:
        return f"{row['least']} or fewer"
    return f"more than {row['most']}" if math.isinf(number) else f"{number:.3g}"


def _reached(row: Frame) -> str:
    reached, censored = row["target_n_reached"], row["target_n_censored"]
    late = f", {censored:.0f} censored" if censored else ""
    return f"{reached:.0f} of {reached + censored:.0f}{late}"
