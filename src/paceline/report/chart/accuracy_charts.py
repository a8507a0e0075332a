"""Draws accuracy and time: against each other, the number of workers, trials, and predictions."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from paceline.analysis.comparison import compared_by, is_reference, reference_scheme
from paceline.analysis.configuration import (
    OPTIMIZER,
    PROCESSES,
    is_of_scheme,
    matching,
    situation_columns,
)
from paceline.analysis.configuration_table import NAME, PHASES
from paceline.analysis.frames import Frame, Row
from paceline.grouped import grouped
from paceline.report.answer import (
    BUDGETS,
    compared_configurations,
    target_metric,
    validation_images,
)
from paceline.report.chart.chart_style import Chart, chart, short, situation_rows
from paceline.report.findings import RATE, StudyFindings, situations
from paceline.report.words import scheme_words, values_words

_MOST = 4000  # points of the page, 75 bytes each
_MOST_CONFIGURATIONS = 40  # of a chart; the answer has them all
_FAR = 5  # times the margin; farther differences hide those within it
_PHASES = ("compute", "exchange and waiting", "waiting for data")


def time_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of accuracy against time, which marks the best accuracies so far."""
    decision, curves = findings.concluded["decision"], findings.mean_curves
    curves = curves[curves["seconds"] > 0] if len(curves) else curves
    decision = decision if target_metric(findings) == "top1" else decision[:0]
    targets = {each.name: each.of(decision)["target"].dropna() for each in situations(findings)}
    rows = [
        known
        | {"seconds": short(row["seconds"]), "top1": short(row["top1"])}
        | {"front": int(row["is_front"]), "n": int(row["n"])}
        | {"target": next(map(float, targets[known["situation"]]), None)}
        for row, known in situation_rows(findings, curves)
    ]
    ahead = {(row["situation"], row["scheme"]) for row in rows if row["front"]}
    rows = [row | {"ahead": (row["situation"], row["scheme"]) in ahead} for row in _thinned(rows)]
    return chart("time", rows, images=validation_images(findings))


def _thinned(rows: list[Row]) -> list[Row]:
    """Return about _MOST rows: of each line the last one, and every n-th before it."""
    every = -(-len(rows) // _MOST)
    lines = grouped(rows, lambda row: (row["situation"], row["scheme"]))
    return [row for line in lines.values() for row in line[::-1][::every][::-1]]


def configuration_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of a study that compares all configurations, with a row for each."""
    rows = compared_configurations(findings) if findings.compares_all else []
    if not 1 < len(rows) <= _MOST_CONFIGURATIONS:
        return None
    ends = ("value_mean", "value_low", "value_high")
    drawn = [
        {"scheme": row["scheme_words"], "words": row["words"], "place": place, "n": row["value_n"]}
        | {end: short(row[end]) for end in ends}
        for place, row in enumerate(rows)
    ]
    images = validation_images(findings)
    return chart("configurations", drawn, by=compared_by(findings.tables), images=images)


def scale_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of accuracy and images/s against the number of workers, a line per scheme.

    Accuracy is measured on test images, or on validation images if no run has the former. Images/s
    are relative to those of one worker, paired by seed where seeds are shared.
    """
    table, columns = findings.concluded[NAME], situation_columns(findings.tables.axes)
    if PROCESSES in columns:  # a line by workers would leave out of how many processes each is
        return None
    metric = "test_top1" if table["test_top1_mean"].notna().any() else "top1"
    known = table[table["n_finished"] > 0]
    reference = reference_scheme(findings.tables.runs)
    names = [name for name in columns if name in known and name != "workers"]
    rows = list[Row]()
    for each in situations(findings):
        own = matching(known, {name: each.values[name] for name in names})
        if own["workers"].nunique() > 1:
            rows += [{"situation": each.name} | row for row in _lines(own, reference, metric)]
    images = "test images" if metric == "test_top1" else validation_images(findings)
    workers = sorted({row["workers"] for row in rows})
    panels = {"accuracy": "mean", "images per second": "ratio"}
    drawn = [name for name, of in panels.items() if any(row[of] is not None for row in rows)]
    values = {"images": images, "workers": workers, "panels": drawn}
    made = chart("scale", rows if drawn else [], **values)
    if made:  # without a panel that would be empty
        both = zip(panels, made.spec["concat"], strict=True)
        made.spec["concat"] = [panel for name, panel in both if name in drawn]
    return made


def target_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of what more workers cost and bring, in one to three panels.

    These are top-1 minus that of one worker; images to the target, if a scheme reached it in all
    runs; and times as fast to the target, if that is known of two numbers of workers. Beside
    searched rates are those by rule. Images to the target are the fewest with any budget that the
    study has.
    """
    decision, table = findings.concluded["decision"], findings.concluded[NAME]
    columns = [name for name in situation_columns(findings.tables.axes) if name in table]
    if PROCESSES in columns or "target_samples_mean" not in table or decision.empty:
        return None
    axes = [name for name in ("kind", "data", *findings.tables.axes) if name in decision]
    both = decision.merge(table[[*axes, "target_samples_mean"]], on=axes)
    rows, budgets = list[Row](), set[float]()
    for situation in situations(findings):
        others = {name: situation.values[name] for name in columns if name != "workers"}
        same = matching(both, others)
        alone = same[same["workers"] == 1]
        single = [row for _, row in alone.iterrows() if is_reference(findings.tables.runs, row)]
        several = same[same["workers"] > 1]
        if len(single) != 1 or several["workers"].nunique() < 2:
            continue
        (one,) = single
        of_any_budget = matching(both, {n: v for n, v in others.items() if n not in BUDGETS})
        several = several.assign(target_samples_mean=_fewest_images(several, of_any_budget))
        budgets |= {value for name in BUDGETS if name in others for value in of_any_budget[name]}
        found = [_target_row(row, one) for _, row in several.iterrows()]
        if others.get(RATE) == "tuned":
            by_rule = matching(both, others | {RATE: "by_rule"}).query("workers > 1")
            found += [_target_row(row, one, by_rule=True) for _, row in by_rule.iterrows()]
        schemes = list(dict.fromkeys(row["scheme"] for row in found))
        begin = {"workers": 1, "by_rule": False, "points": 0.0, "speedup": 1.0, "diverged": 0}
        begin |= dict.fromkeys(("images", "few", "many"), short(one["target_samples_mean"]))
        begun = dict.fromkeys(  # one worker with another optimizer would not train alike
            scheme_words(row)
            for _, row in several.iterrows()
            if row.get(OPTIMIZER) == one.get(OPTIMIZER)
        )
        found = [*({"scheme": scheme} | begin for scheme in begun), *found]
        rows += [
            {"situation": situation.name, "beside": short(_beside(row, schemes))} | row
            for row in found
        ]
    several = [row for row in rows if row["workers"] > 1]
    if all(row["points"] is None and row["images"] is None for row in several):
        return None
    images, few = ([row[name] for row in several if row[name]] for name in ("images", "few"))
    margin = 100 * findings.tables.margin
    farthest = max((-(row["points_low"] or 0) for row in several), default=0)
    return chart(
        "target",
        rows,
        margin=margin,
        workers=sorted({row["workers"] for row in rows}),
        ends=[0.8 * min(images + few), 4 * max(images)] if images else [],
        is_far=farthest > _FAR * max(margin, 1),
        has_speed=len({row["workers"] for row in several if row["speedup"]}) > 1,
        has_diverged=any(row["diverged"] for row in rows),
        budgets=", ".join(f"{value:g}" for value in sorted(budgets)) if len(budgets) > 1 else "",
    )


def _fewest_images(rows: Frame, of_any_budget: Frame) -> list[float]:
    """Return for each row the fewest images to the target, over budgets with which every run
    reached it; NaN if there is none.
    """
    axes = [name for name in rows if name == "workers" or is_of_scheme(name)]
    found = [matching(of_any_budget, dict(row[axes])) for _, row in rows.iterrows()]
    return [own["target_samples_mean"].min() for own in found]


def _beside(row: Row, schemes: Sequence[str]) -> float:
    """Return the number of workers, moved so that the intervals of schemes do not overlap."""
    apart = (schemes.index(row["scheme"]) - (len(schemes) - 1) / 2) / max(len(schemes), 5)
    return row["workers"] * (1.0 if row["workers"] == 1 else 1.4**apart)


def _target_row(row: Frame, one: Frame, *, by_rule: bool = False) -> Row:
    """Return a scheme with its `workers` beside the row of `one` worker.

    `by_rule`: True if its rate follows from a rule, beside one that was searched.
    """
    name = scheme_words(row) + (", rate by rule" if by_rule else "")
    known: Row = {"scheme": name, "workers": int(row["workers"]), "by_rule": by_rule}
    for name, column, unit in (
        ("points", "one_worker_top1_difference", 100),
        ("speedup", "speedup", 1),
    ):
        for end in ("mean", "low", "high"):
            value = unit * row[f"{column}_{end}"]
            known[f"{name}_{end}".removesuffix("_mean")] = short(value)
    known |= {"images": short(row["target_samples_mean"]), "few": short(one["target_samples_mean"])}
    known["many"] = short(one["target_samples_mean"] * row["workers"])
    return known | {"n": int(row["n_finished"]), "diverged": int(row["n_diverged"])}


def _lines(rows: Frame, reference: str, metric: str) -> list[Row]:
    """Return a row per scheme and number of workers.

    The line of a scheme without a run of one worker begins at that of the reference, since one
    worker trains alike by all schemes.
    """
    single = rows[(rows["workers"] == 1) & (rows["scheme"] == reference)]
    one = float(single["images_per_second_mean"].iloc[0]) if len(single) else None
    lines: list[Row] = []
    for name, own in rows.groupby(rows.apply(scheme_words, axis=1), sort=False):
        line = own if (own["workers"] == 1).any() else pd.concat([single, own])
        lines += [_scale_row(row, name, one, metric) for _, row in line.iterrows()]
    return lines


def _scale_row(row: Frame, scheme: str, one: float | None, metric: str) -> Row:
    ends = {end: row[f"{metric}_{end}"] for end in ("mean", "low", "high")}
    shares = {end: short(float(np.clip(share, 0, 1))) for end, share in ends.items()}
    ratios = {"ratio": "mean", "slowest": "low", "fastest": "high"}
    is_paired = pd.notna(row["speedup_mean"])
    speed, unit = ("speedup", 1.0) if is_paired else ("images_per_second", one)
    known = {"scheme": scheme, "kind": row["kind"], "workers": int(row["workers"])}
    known |= {"n": int(row["n_finished"]), "diverged": int(row["n_diverged"])}
    known |= shares | {"speed": short(row["images_per_second_mean"])}
    return known | {
        n: short(row[f"{speed}_{end}"] / unit) if unit else None for n, end in ratios.items()
    }


def phase_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of the shares of phases in a worker's time, with a bar per scheme."""
    rows = [
        known
        | {"phase": words, "order": order}
        | {"share": short(row[f"phase_{phase}"])}
        | {"seconds": short(row[f"phase_{phase}_seconds"], 4)}
        for row, known in situation_rows(findings, findings.known("phase_compute"))
        for order, (phase, words) in enumerate(zip(PHASES.values(), _PHASES, strict=True))
    ]
    return chart("phases", rows)


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
