"""Makes the charts of a study from its tables of conclusions."""

import math

import pandas as pd

from paceline.analysis.comparison import SPEED, compared_by, reference_scheme
from paceline.analysis.configuration import BUDGETS, PROCESSES, situation_columns
from paceline.analysis.configuration_table import NAME, PHASES
from paceline.analysis.frames import Frame, Row
from paceline.analysis.intervals import POSITIVE, interval
from paceline.report.answer import compared_configurations
from paceline.report.chart.chart_style import Chart, chart, short
from paceline.report.findings import StudyFindings
from paceline.report.how_it_was_run import BANDWIDTH, scored_images
from paceline.report.number_format import plural
from paceline.report.spread import fullest, needed_images, top1_of
from paceline.report.words import scheme_words, value_words, values_words

_MOST_CONFIGURATIONS = 48  # of a chart; the table has them all
_MANY = 20  # from which on they are drawn closer to each other
_PHASES = ("compute", "exchange and waiting", "waiting for data")
_ENDS = ("mean", "low", "high")
_BELOW = (0.01, 0.02)  # one worker's top-1, of the targets in a chart


def scale_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of accuracy and speed against the number of workers, a line per scheme.

    It shows the settings that have the most numbers of workers. Speed is relative to one worker.
    """
    settings, rows = fullest(findings, findings.concluded["decision"])
    if rows.empty or rows["workers"].nunique() < 2:
        return None
    drawn = _lines(rows, reference_scheme(findings.tables.runs))
    names = {"accuracy": "top1", "speed": "speedup"}
    panels = [name for name, of in names.items() if any(row[of] is not None for row in drawn)]
    made = chart(
        "scale",
        drawn if panels else [],
        images=scored_images(findings),
        settings=settings,
        workers=sorted({row["workers"] for row in drawn}),
        panels=panels,
    )
    if made:  # without a panel that would be empty
        both = zip(names, made.spec["concat"], strict=True)
        made.spec["concat"] = [panel for name, panel in both if name in panels]
    return made


def _lines(rows: Frame, reference: str) -> list[Row]:
    """Return a row per scheme and number of workers.

    The line of a scheme without a run of one worker begins at that of the reference, since one
    worker trains alike by all schemes.
    """
    single = rows[(rows["workers"] == 1) & (rows["scheme"] == reference)]
    lines: list[Row] = []
    for name, own in rows.groupby(rows.apply(scheme_words, axis=1), sort=False):
        line = own if (own["workers"] == 1).any() else pd.concat([single, own])
        lines += [{"scheme": name} | _scale_row(row) for _, row in line.iterrows()]
    return lines


def _scale_row(row: Frame) -> Row:
    known: Row = {"workers": int(row["workers"]), "n": int(row["n_finished"])}
    for name in ("top1", "speedup"):
        known |= {f"{name}_{end}": short(row[f"{name}_{end}"]) for end in _ENDS}
        known[name] = known.pop(f"{name}_mean")
    known |= {"speedup": 1.0} if row["workers"] == 1 else {}
    return known | {
        "rate": short(row["images_per_second_mean"]),
        "not_trained": int(row["n_diverged"]),
    }


def target_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of steps to a target against the images of a step, a panel per target.

    Both are of all workers together (Shallue et al. 2019, arXiv:1811.03600). The targets are below
    the best mean top-1 of one worker. A scheme with several budgets is drawn by the mean over its
    seeds; where a seed misses, at its largest budget.
    """
    settings, rows = fullest(findings, findings.configurations, BUDGETS)
    if rows.empty or rows["workers"].nunique() < 2:
        return None
    drawn = list[Row]()
    for below in _BELOW:
        panel = f"one worker's top-1 less {plural(100 * below, 'point')}"
        own = [_target_row(each) for each in needed_images(findings, rows, below)]
        alone = [row["images"] for row in own if row["workers"] == 1 and not row["missed"]]
        perfect = [short(alone[0] / row["batch"]) if alone else None for row in own]
        for row, steps in zip(own, perfect, strict=True):
            drawn.append(row | {"panel": panel, "perfect": steps})
    if len({row["batch"] for row in drawn if not row["missed"]}) < 2:
        return None
    return chart(
        "target",
        drawn,
        panels=list(dict.fromkeys(row["panel"] for row in drawn)),
        batches=sorted({row["batch"] for row in drawn}),
        images=scored_images(findings),
        settings=settings,
    )


def _target_row(needs: Row) -> Row:
    """Return the point of a scheme with a number of workers, from a row of needed_images."""
    images, most = needs["needed"]["images"], needs["most"]
    is_missed = bool(images.max() == math.inf)
    mean = interval([most] if is_missed else images, POSITIVE)
    return {
        "scheme": scheme_words(needs),
        "workers": int(needs["workers"]),
        "batch": needs["batch"],
        "images": short(mean.mean),
        **{f"steps_{end}": short(getattr(mean, end) / needs["batch"]) for end in _ENDS},
        "missed": is_missed,
        "reached": f"{(images < math.inf).sum()} of {len(images)} runs",
    }


def time_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of top-1 at the end of each budget against the time of the whole run.

    Each scheme with a number of workers has a line over its budgets, in a panel for each speed of
    the links. Of one or two schemes, colours show the number of workers.
    """
    settings, rows = fullest(findings, findings.concluded[NAME], (*BUDGETS, BANDWIDTH))
    metric = top1_of(rows)
    rows = rows[rows[f"{metric}_mean"].notna()]
    if len(rows) < 2 or rows["seconds_mean"].nunique() < 2:
        return None
    drawn = [
        {
            "panel": value_words(BANDWIDTH, row[BANDWIDTH]) if BANDWIDTH in row else "",
            "scheme": scheme_words(row),
            "workers": f"{row['workers']:.0f}",
            "seconds": short(row["seconds_mean"]),
            **{f"top1_{end}": short(row[f"{metric}_{end}"]) for end in _ENDS},
            "n": int(row["n_finished"]),
        }
        for _, row in rows.iterrows()
    ]
    distinct = {n: list(dict.fromkeys(row[n] for row in drawn)) for n in ("panel", "scheme")}
    return chart(
        "time",
        drawn,
        panels=distinct["panel"],
        lines=distinct["scheme"],
        workers=sorted({row["workers"] for row in drawn}, key=int),
        images=scored_images(findings),
        settings=settings,
    )


def phase_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of the shares of phases in a worker's time, at the most workers."""
    settings, rows = fullest(findings, findings.known("phase_compute"))
    rows = rows[rows["workers"] == rows["workers"].max()]
    drawn = [
        {
            "scheme": scheme_words(row),
            "phase": words,
            "order": order,
            "share": short(row[f"phase_{phase}"]),
            "seconds": short(row[f"phase_{phase}_seconds"], 4),
        }
        for _, row in rows.iterrows()
        for order, (phase, words) in enumerate(zip(PHASES.values(), _PHASES, strict=True))
    ]
    of = [values_words(rows.iloc[0], ["workers"]), settings] if drawn else []
    return chart("phases", drawn, settings=", ".join(filter(None, of)))


def prediction_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of predicted images/s against those that were observed."""
    table = findings.known("rate_n")
    settings = ["workers", *(name for name in findings.varying if name in table)]
    rows = [
        {
            "scheme": scheme_words(row),
            "settings": values_words(row, settings),
            "observed": short(row["rate_observed"]),
            "predicted": short(row["rate_predicted"]),
            "error": short(row["rate_error"], 4),
            "verdict": str(row["rate_verdict"]),
        }
        for _, row in table.iterrows()
    ]
    ends = [row[name] for row in rows for name in ("observed", "predicted")] or [1]
    return chart("predicted", rows, low=min(ends) / 1.15, high=max(ends) * 1.15)


def configuration_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart with a row for each configuration of a study that compares all of them.

    Where workers are divided over processes, which no chart over workers shows, it is of images/s.
    """
    divides = PROCESSES in situation_columns(findings.tables.axes)
    by = SPEED if divides else compared_by(findings.tables)
    if not (divides or findings.compares_all):
        return None
    rows = compared_configurations(findings, by)
    if not 1 < len(rows) <= _MOST_CONFIGURATIONS:
        return None
    drawn = [
        {"scheme": row["scheme_words"], "words": row["words"], "place": place, "n": row["value_n"]}
        | {f"value_{end}": short(row[f"value_{end}"]) for end in _ENDS}
        for place, row in enumerate(rows)
    ]
    step = 24 if len(rows) < _MANY else 15
    return chart("configurations", drawn, by=by, images=scored_images(findings), step=step)
