"""Makes the charts of a study from its tables of conclusions."""

import pandas as pd

from paceline.analysis.comparison import SPEED, compared_by, reference_scheme
from paceline.analysis.configuration import (
    BUDGETS,
    PROCESSES,
    configurations,
    groups,
    is_of_scheme,
    situation_columns,
)
from paceline.analysis.configuration_table import NAME, PHASES
from paceline.analysis.frames import Frame, Row
from paceline.analysis.time_to_target import time_to_target
from paceline.report.answer import compared_configurations
from paceline.report.chart.chart_style import Chart, chart, short
from paceline.report.findings import StudyFindings
from paceline.report.how_it_was_run import BANDWIDTH, scored_images, target_words, validation_images
from paceline.report.spread import fullest, least_budget, step_images
from paceline.report.words import scheme_words, value_words, values_words

_MOST_CONFIGURATIONS = 48  # of a chart; the table has them all
_MANY = 20  # from which on they are drawn closer to each other
_PHASES = ("compute", "exchange and waiting", "waiting for data")
_ENDS = ("mean", "low", "high")
_BELOW = (0.005, 0.01, 0.02)  # one worker, of the targets in a chart


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
    """Return the chart of steps to the target against the images of a step, a panel per target.

    Both are of all workers together (Shallue et al. 2019, arXiv:1811.03600). Of the budgets of a
    scheme, that is drawn which needs the fewest steps; where none reaches the target in every run,
    the largest one, as a miss. A target below one worker has others beside it, so that none is
    special.
    """
    if "target_seconds_mean" not in findings.configurations:
        return None
    asked, drawn, settings = findings.tables.about["target"] or {}, list[Row](), ""
    is_share = "below_baseline" in asked and asked["metric"] != "loss"
    for below in sorted({*_BELOW, asked["below_baseline"]}) if is_share else (None,):
        settings, rows = fullest(findings, _with_target(findings, below), BUDGETS)
        if rows.empty or rows["workers"].nunique() < 2 or rows["target_seconds_mean"].isna().all():
            continue
        words = target_words(findings, rows["target"].iloc[0]).partition(" on ")[0]
        points = f"{100 * (below or 0):g} point{'s' * (below != 0.01)}"
        panel = f"{words}: one worker's less {points}" if below else words
        names = [name for name in rows if name == "workers" or is_of_scheme(name)]
        own: list[Row] = [_target_row(same) for _, same in groups(rows, names)]
        ended = [row["images"] for row in own if row["workers"] == 1 and not row["missed"]]
        for row in own:
            perfect = short(ended[0] / row["batch"]) if ended else None
            drawn.append(row | {"panel": panel, "perfect": perfect})
    return chart(
        "target",
        drawn,
        panels=list(dict.fromkeys(row["panel"] for row in drawn)),
        batches=sorted({row["batch"] for row in drawn}),
        images=validation_images(findings),
        settings=settings,
    )


def _with_target(findings: StudyFindings, below: float | None) -> Frame:
    """Return the configurations with the columns of a target that is `below` one worker."""
    tables, table = findings.tables, findings.configurations
    own = configurations(tables.runs, list(dict.fromkeys(["data", *tables.axes])))
    found = pd.DataFrame([time_to_target(tables, each, points, below) for each, points in own])
    return table.assign(**found)


def _target_row(budgets: Frame) -> Row:
    """Return a scheme with a number of workers; `budgets` are its rows, one per budget."""
    row = least_budget(budgets)
    is_missed = pd.isna(row["target_samples_mean"])
    images, batch = row["most_samples" if is_missed else "target_samples_mean"], step_images(row)
    return {
        "scheme": scheme_words(row),
        "workers": int(row["workers"]),
        "batch": batch,
        "steps": short(images / batch),
        "images": short(images),
        "missed": bool(is_missed),
        "reached": f"{row['target_n_reached']:.0f} of {row['n'] - row['n_failed']:.0f} runs",
    }


def time_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of top-1 at the end of each budget against the time of the whole run.

    Each scheme with a number of workers has a line over its budgets, in a panel for each speed of
    the links. Of one or two schemes, colours show the number of workers.
    """
    settings, rows = fullest(findings, findings.concluded[NAME], (*BUDGETS, BANDWIDTH))
    metric = "test_top1" if rows["test_top1_mean"].notna().any() else "top1"
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
