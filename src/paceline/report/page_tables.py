"""Makes the tables of results on the page of a study."""

import pandas as pd

from paceline.analysis.analyse import CONCLUSIONS, Conclusion
from paceline.analysis.axes import implied_by_scheme
from paceline.analysis.clocks import LITTLE
from paceline.analysis.configuration import matching
from paceline.analysis.configuration_table import PARTS, Part, identity
from paceline.analysis.scaling import unequal_samples
from paceline.analysis.statistics.crossing import IN_A_ROW
from paceline.analysis.tables import Frame
from paceline.measurement.numbers import NUMBERS, Section, Shown, shown_numbers
from paceline.report.agreement_sentences import agreement, has_twins
from paceline.report.crossover_table import crossovers
from paceline.report.fault_table import faults
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
    shown,
)
from paceline.report.prediction_sentences import about_predictions, predictions
from paceline.report.table import Cell, Table, cell, concluded_table, spread
from paceline.report.target_sentences import (
    is_of_loss,
    side,
    target_origin,
    validation_images,
)

_MEANS = (
    "Means over finished seeds with 95 % intervals: geometric ones of rates, times and losses; "
    "accuracies by their logits, where the intervals contain the draw of the scored images"
)


def page_tables(findings: StudyFindings) -> list[Table]:
    """Return the tables of results, including those without rows."""
    twins = [clocks] if has_twins(findings) else []
    twins += [predicted] if len(findings.concluded["predicted"]) else []
    twins += [faults] if len(findings.concluded["faults"]) else []
    made = (*twins, summary, scaling, crossovers, comparison, equal_budgets, time_to_target, losses)
    plain = [plain_table(findings, each) for each in (*PARTS, *CONCLUSIONS) if each.caption]
    return [*(make(findings) for make in made), *plain]


def plain_table(findings: StudyFindings, conclusion: Conclusion | Part) -> Table:
    """Show a table of analysis with one column per number, or per mean with its interval."""
    axes = (*identity(findings.tables), *implied_by_scheme(findings.tables))
    columns = [name for name in findings.concluded[conclusion.name] if name not in axes]
    means = [name.removesuffix("_mean") for name in columns if name.endswith("_mean")]
    parts = {f"{name}_{part}" for name in means for part in ("mean", "low", "high", "n")}
    cells = {name: spread(name, _form_of(name)) for name in means}
    cells |= {name: cell(name, _form_of(name)) for name in columns if name not in parts}
    title = conclusion.name.replace("_", " ").capitalize()
    return concluded_table(findings, conclusion.name, title, conclusion.caption, cells)


def _form_of(name: str) -> Form:
    return next((form_of(number.unit) for number in NUMBERS if number.name == name), general)


def clocks(findings: StudyFindings) -> Table:
    """Compare the virtual clock with the wall clock."""
    cells = {
        "against": lambda row: _against(row, findings.varying),
        "images/s, ratio": spread("images_per_second_ratio", decimals),
        "staleness, ratio or ± updates": _staleness,
        "top-1 on test, points": spread("test_top1_difference", percent_points),
    }
    kinds = " and ".join(dict.fromkeys(findings.concluded["clocks"]["against"])) or "measured"
    caption = (
        "Virtual over the other, or virtual minus the other, paired by seed, at equal settings; "
        "means with 95 % t-intervals. Staleness has a difference, with its sign, where the other "
        f"has less than {LITTLE} updates of it."
    )
    name = f"Virtual against {kinds}"
    return concluded_table(findings, "clocks", name, caption, cells, agreement(findings))


def predicted(findings: StudyFindings) -> Table:
    """Compare what a modelled cluster predicts with real processes."""
    cells = {
        "images/s, observed": cell("observed", count),
        "of a seed": lambda row: f"{count(row['least'])} to {count(row['most'])}, n = {row['n']}",
        "images/s, predicted": cell("predicted", count),
        "error": lambda row: f"{100 * row['error']:+.0f} %",
        "": lambda row: str(row["verdict"]),
    }
    caption = f"Harmonic means over seeds. {about_predictions(findings)}"
    name = "Predicted against observed"
    return concluded_table(findings, "predicted", name, caption, cells, predictions(findings))


def equal_budgets(findings: StudyFindings) -> Table:
    """Compare accuracies at equal samples, equal time and equal updates."""
    cells = {
        "at equal samples": spread("top1_equal_samples", percent),
        "at equal time": spread("top1_equal_time", percent),
        "that time, seconds": cell("common_seconds", seconds),
        "at equal updates": spread("top1_equal_updates", percent),
        "those updates": cell("common_updates", count),
    }
    caption = (
        f"Top-1 on {validation_images(findings)}. Equal samples: at the end of the budget. Equal "
        "time: when the first finished run with as many workers ended, whatever its scheme and "
        "rate; equal updates likewise. Each run by its last evaluation until then, so that seeds "
        "may differ by one."
    )
    return concluded_table(findings, "equal_time", "Equal budgets", caption, cells)


def summary(findings: StudyFindings) -> Table:
    """Show the numbers of the section "Summary" and the counts of points by status."""
    cells = _shown_cells(findings, "Summary")
    cells["finished / diverged / failed"] = lambda row: " / ".join(
        f"{row[f'n_{status}']:.0f}" for status in ("finished", "diverged", "failed")
    )
    caption = f"{_MEANS}. Diverged and failed seeds are counted."
    return concluded_table(findings, "summary", "Summary", caption, cells)


def losses(findings: StudyFindings) -> Table:
    """Show the numbers of the section "Loss, time, staleness"."""
    cells = _shown_cells(findings, "Loss, time, staleness")
    caption = f"{_MEANS}, at the end of the budget."
    if "real seconds" in cells:
        caption += (
            " Seconds of the training clock are of the kind in the last column; real seconds and "
            "images/s are measured: what the run itself took, on the machine that made it."
        )
    return concluded_table(findings, "summary", "Loss, time, staleness", caption, cells)


def _shown_cells(findings: StudyFindings, section: Section) -> dict[str, Cell]:
    """Make a cell for each number of `section`, as the number itself declares."""
    return {
        shown.label: spread(number.name, form_of(number.unit))
        for number, shown in shown_numbers()
        if shown.section == section and _has(findings, number.name, shown)
    }


def _has(findings: StudyFindings, name: str, shown: Shown) -> bool:
    """Return True if the summary has the number of any point, and the page shows it."""
    frame, column = findings.concluded["summary"], f"{name}_mean"
    if column not in frame or not frame[column].notna().any():
        return False
    return not shown.beside_virtual or "virtual" in set(frame["kind"])


def scaling(findings: StudyFindings) -> Table:
    """Show speed-up and efficiency against one worker."""
    cells = {
        "baseline": lambda row: str(row["baseline"]),
        "speed-up": spread("speedup", decimals),
        "efficiency": spread("efficiency", percent),
        "counts as": lambda row: _counts_as(findings, row),
    }
    caption = f"Against one worker, paired by seed. {scaling_kind(findings)}"
    return concluded_table(findings, "scaling", "Scaling", caption, cells)


def _counts_as(findings: StudyFindings, row: Frame) -> str:
    """Say whether a speed-up is at equal accuracy; a dash if there is no speed-up."""
    configuration = {name: row[name] for name in ("kind", *findings.tables.axes)}
    same = matching(findings.concluded["equal_accuracy"], configuration)
    if same.empty:
        return MISSING
    return "at equal accuracy" if same["verdict"].iloc[0] == "equal" else "throughput only"


def scaling_kind(findings: StudyFindings) -> str:
    """State the quantities that are constant when workers are added."""
    batch = "Weak scaling in batch: images per worker constant"
    if findings.tables.is_strong:
        batch = "Strong scaling in batch: images of all workers in a step constant"
    samples = unequal_samples(findings.tables)
    if samples is None:
        return f"{batch}, samples in total constant."
    return f"{batch}; samples in total from {count(samples[0])} to {count(samples[1])}."


def comparison(findings: StudyFindings) -> Table:
    """Compare schemes with the reference scheme."""
    cells = {
        "against": lambda row: str(row["reference"]),
        "images/s, ratio": spread("speed_ratio", decimals),
        "top-1 on test, points": spread("test_top1_difference", percent_points),
        "top-1 on validation, points": spread("top1_difference", percent_points),
    }
    caption = "Scheme against scheme at the same workers and settings, paired by seed."
    return concluded_table(findings, "comparison", "Comparison", caption, cells)


def time_to_target(findings: StudyFindings) -> Table:
    """Show the seconds and samples until the target is reached."""
    asked = findings.tables.about["target"]
    cells = {
        "target": lambda row: (decimals if is_of_loss(asked) else percent)(row["target"]),
        "reached": _reached,
        "seconds, mean": spread("seconds", seconds),
        "seconds, median": lambda row: shown(row["seconds_median"], seconds),
        "samples, mean": spread("samples", count),
        "samples, median": lambda row: shown(row["samples_median"], count),
    }
    origin = target_origin(findings)
    caption = (
        f"First of {IN_A_ROW} evaluations in a row (fewer at the end of a run) at or {side(asked)} "
        f"the target, {origin}. A run that ended "
        "before is counted as not reached (right-censored): then there is no mean, and the median "
        "takes it as later than all that got there."
    )
    caption = caption if origin else "No target: no finished point with one worker."
    return concluded_table(findings, "time_to_target", "Time to target", caption, cells)


def _reached(row: Frame) -> str:
    late = f", {row['n_censored']:.0f} censored" if row["n_censored"] else ""
    return f"{row['n_reached']:.0f} of {row['n_reached'] + row['n_censored']:.0f}{late}"


def _against(row: Frame, varying: list[str]) -> str:
    """Name the kind that `row` is compared with, and its values of the axes that differ."""
    own = [axis for axis in varying if f"against_{axis}" in row]
    parts = [f"{axis} {setting(row[f'against_{axis}'])}" for axis in own]
    return f"{row['against']} ({', '.join(parts)})" if parts else str(row["against"])


def _staleness(row: Frame) -> str:
    ratio, difference = ("staleness_ratio", decimals), ("staleness_difference", _signed)
    return spread(*(ratio if pd.notna(row["staleness_ratio_mean"]) else difference))(row)


def _signed(value: float) -> str:
    return f"{value:+.2f}"
