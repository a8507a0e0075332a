"""Chooses the figures of a study and writes their captions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from paceline.analysis.predicted import NEAR
from paceline.analysis.predicted_exchange import EXCHANGE_NEAR
from paceline.analysis.tables import Frame
from paceline.report import run_figures
from paceline.report.agreement_sentences import has_twins
from paceline.report.facets import MOST_PANELS, Panel, panels
from paceline.report.figure_style import as_svg, figure_settings
from paceline.report.findings import StudyFindings
from paceline.report.prediction_figure import predicted_exchanges, predicted_rates
from paceline.report.prediction_sentences import about_predictions
from paceline.report.timeline_figure import chosen, timeline
from paceline.report.worker_figures import Series, draw

MEANS = (
    "Markers are means over finished seeds, bars their 95 % intervals (none with one seed), "
    "small dots the seeds."
)
_DIVERGED_NOTE = (
    " Hollow markers below the lines: how many of all seeds diverged, which enter no mean."
)


@dataclass(frozen=True)
class Drawing:
    """Figure as the text of an SVG file.

    If there is nothing to draw, `svg` is empty and `caption` gives the reason.
    """

    name: str
    title: str
    caption: str
    svg: str


def drawings(findings: StudyFindings) -> list[Drawing]:
    """Return all figures of a study; equal findings result in equal bytes."""
    shown = panels(findings)
    if len(shown) > MOST_PANELS:
        text = (
            f"{' x '.join(findings.varying)} make {len(shown)} combinations, too many to draw; "
            "the tables have them all."
        )
        with figure_settings():
            together = [_drawing(findings, *each) for each in _predicted(findings, [Panel({})])]
        return [*together, Drawing("none", "No figures by setting", text, "")]
    with figure_settings():
        return [_drawing(findings, *parts) for parts in _drawing_parts(findings, shown)]


def _drawing(
    findings: StudyFindings, name: str, title: str, caption: str, draw: Callable[[], Figure | None]
) -> Drawing:
    runs = findings.tables.runs
    if name == "timeline":  # not drawn for points of all kinds
        runs = chosen(findings)
    predicted = ["predicted"] if name.startswith("predicted") else []
    kinds = [*dict.fromkeys(runs["kind"]), *predicted]
    caption = f"{caption} Numbers: {', '.join(kinds)}."
    figure = draw()
    if figure is None:
        return Drawing(name, title, f"Nothing to draw here. {caption}", "")
    svg = as_svg(figure)
    plt.close(figure)
    return Drawing(name, title, caption, svg)


def _within(findings: StudyFindings) -> str:
    kinds = dict.fromkeys(findings.concluded["predicted"]["kind"])
    return ", ".join(f"{100 * NEAR[kind]:.0f} % ({kind})" for kind in kinds)


def _predicted(findings: StudyFindings, shown: list[Panel]) -> Iterator[tuple]:
    if len(findings.concluded["predicted"]):
        yield (
            "predicted",
            "Predicted against observed throughput",
            "Images per second, harmonic means over seeds, with the number of workers "
            f"beside each marker; grey: within {_within(findings)}. "
            f"{about_predictions(findings)}",
            lambda: predicted_rates(findings, shown),
        )
    if len(findings.concluded["predicted_exchange"]):
        yield (
            "predicted_exchange",
            "Predicted against observed seconds of exchange",
            "What messages and servers add to a step of paced processes, with the number of "
            f"workers beside each marker; grey: within {100 * EXCHANGE_NEAR:.0f} %.",
            lambda: predicted_exchanges(findings, shown),
        )


def _drawing_parts(findings: StudyFindings, shown: list[Panel]) -> Iterator[tuple]:
    yield from _predicted(findings, shown)
    for name, title, caption, series in _series(findings):
        yield (
            name,
            title,
            f"{caption} {MEANS}",
            lambda s=series: _draw_series(s, shown, findings.schemes),
        )
    ends = (
        "Solid: the most workers of a scheme; dashed: the fewest. One line is one run; dotted: the "
        "target."
    )
    if has_twins(findings):
        ends += " Wide and pale: virtual."
    for x in ("samples", "seconds"):
        title = f"Validation top-1 against {x}"
        yield (
            f"curve_{x}",
            title,
            f"{ends} Seconds are those of the training clock, without evaluation."
            if x == "seconds"
            else f"{ends} Samples are counted over all workers.",
            lambda x=x: run_figures.curves(findings, shown, findings.schemes, x),
        )
    yield (
        "staleness",
        "Staleness of pushes",
        "Versions applied between a worker's read and the arrival of its gradient, over all "
        "finished seeds and servers at the most workers that finished; the last bar takes what "
        "lies beyond. Schemes without a server have none.",
        lambda: run_figures.staleness(findings, shown, findings.schemes),
    )
    yield (
        "phases",
        "Where the time goes",
        "What of its seconds each worker waited for data, computed and exchanged, mean over "
        "finished seeds, at the fewest and the most workers that finished. Exchange is what "
        "computing did not hide.",
        lambda: run_figures.phases(findings, shown),
    )
    if len(findings.tables.timeline):
        yield (
            "timeline",
            "Who did what when",
            "A row per worker, from the start of training: the first seed at the most workers of "
            "which a timeline was recorded. All panels share one axis, as long as the shortest.",
            lambda: timeline(findings),
        )


def _accuracy(name: str, split: str, table: Frame, points: Frame) -> Series:
    label = f"top-1, {split}"
    return Series(name, label, table, points, name, percent=True, from_zero=False, lost=True)


def _draw_series(series: Series, shown: list[Panel], schemes: list[str]) -> Figure | None:
    column = f"{series.name}_mean"
    if column not in series.table or not len(series.table):
        return None
    if series.table[column].isna().all() and not series.censored:
        return None
    return draw(series, shown, schemes)


def _series(findings: StudyFindings) -> Iterator[tuple[str, str, str, Series]]:
    finished = findings.points[findings.points["status"] == "finished"]
    summary, scaling = findings.concluded["summary"], findings.concluded["scaling"]
    equal_time = findings.concluded["equal_time"]
    rate = "images_per_second"
    yield (
        "throughput",
        "Throughput against workers",
        "Images per second over all workers, without warm-up and the last steps.",
        Series(rate, "images/s", summary, finished, rate),
    )
    against = (
        "against one worker of the same settings otherwise, seed by seed; where its scheme has no "
        "run with one worker, of the scheme that the table names."
    )
    yield (
        "speedup",
        "Speed-up against workers",
        f"Images per second {against}",
        Series("speedup", "speed-up", scaling, finished, "speedup", guide=lambda x: x),
    )
    yield (
        "efficiency",
        "Efficiency against workers",
        f"Speed-up divided by workers, {against}",
        Series(
            "efficiency",
            "efficiency",
            scaling,
            finished,
            "efficiency",
            percent=True,
            guide=lambda x: 0 * x + 1,
        ),
    )
    diverged = summary["n_diverged"].any()
    zoomed = (
        "each panel has an axis of its own, which does not start at zero, and intervals are cut "
        "off at 0 and 100 %."
        f"{_DIVERGED_NOTE if diverged else ''}"
    )
    for metric, split in (("test_top1", "test"), ("top1", "validation")):
        name = "accuracy" if metric == "test_top1" else "validation_accuracy"
        yield (
            name,
            f"{split.capitalize()} top-1 against workers",
            f"Top-1 on {split} at the end of the budget, at equal samples; {zoomed}",
            _accuracy(metric, split, summary, finished),
        )
    for budget, what in (("time", "ended"), ("updates", "had applied its last update")):
        yield (
            f"equal_{budget}",
            f"Validation top-1 against workers, at equal {budget}",
            f"By the last evaluation before the first finished run with as many workers {what}, "
            f"whatever its scheme and rate (none before: no marker); {zoomed}",
            _accuracy(f"top1_equal_{budget}", "validation", equal_time, finished),
        )
    trained = findings.points[findings.points["target"].notna()]
    trained = trained[trained["status"] != "failed"]
    yield (
        "time_to_target",
        "Seconds to the target",
        "Training seconds until the first evaluation at or above the target. A triangle is a run "
        "that ended without getting there, drawn at its end; then there is no mean.",
        Series(
            "seconds",
            "seconds",
            findings.concluded["time_to_target"],
            trained,
            "target_seconds",
            censored="seconds",
        ),
    )
