"""Draws what workers did when: the first seconds of one finished run of two schemes."""

import altair as alt

from paceline.analysis.comparison import reference_scheme
from paceline.analysis.configuration import matching
from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import (
    COMPUTE_COLOUR,
    EXCHANGE_COLOUR,
    ROWS,
    Chart,
    Marks,
    short,
    specification,
    tips,
)
from paceline.report.findings import StudyFindings
from paceline.report.situations import Situation, situations
from paceline.report.words import scheme_words

_CAPTION = (
    "A row per worker, at most {workers} of them, from the start of training: one finished run of "
    "{reference} and one of the scheme with the shortest time to the target of the others."
)
_MOST_WORKERS = 6
_MOST_SPANS = 2400  # of the whole page; more make it heavy, and are too thin to see
_PHASES = {"compute": "compute", "communicate": "exchange", "wait": "wait"}
_COLOURS = [COMPUTE_COLOUR, EXCHANGE_COLOUR, "#C8C8C8"]


def timeline_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart; None if no finished run has a timeline."""
    timeline = findings.tables.timeline
    finished = findings.tables.finished
    runs = finished[finished["key"].isin(set(timeline["key"]))]
    shown = [(each, run) for each in situations(findings) for run in _runs(findings, runs, each)]
    if not shown:
        return None
    most = max(40, _MOST_SPANS // len(shown))
    spans = {key: rows for key, rows in timeline.groupby("key", sort=False)}
    rows: list[Row] = []
    for situation in dict.fromkeys(each.name for each, _ in shown):
        own = [run for each, run in shown if each.name == situation]
        chosen = [_spans(spans[run["key"]]) for run in own]
        end = min(_end(each, most) for each in chosen)
        for run, each in zip(own, chosen, strict=True):
            name = scheme_words(run.drop(findings.of_size))
            rows += [
                {"situation": situation, "scheme": name, **_row(span, end)}
                for _, span in each[each["start"] < end].iterrows()
            ]
    caption = _CAPTION.format(
        workers=_MOST_WORKERS,
        reference=scheme_words({"scheme": reference_scheme(findings.tables.runs)}),
    )
    return Chart("timeline", "What workers did when", caption, specification(_marks()), rows, True)


def _runs(findings: StudyFindings, runs: Frame, situation: Situation) -> list[Frame]:
    """Return a run of the reference, and one of the best of the others."""
    own = situation.of(runs)
    decision = situation.of(findings.concluded["decision"])
    decision = decision.sort_values("target_seconds_mean", kind="stable")
    reference = reference_scheme(findings.tables.runs)
    names = [name for name in decision["scheme"] if name != reference]
    found = []
    for name in dict.fromkeys([reference, *names]):
        same = matching(own, {"scheme": name}).sort_values("seed", kind="stable")
        if len(same) and len(found) < 2:
            found.append(same.iloc[0])
    return found


def _spans(rows: Frame) -> Frame:
    rows = rows[rows["worker"] < _MOST_WORKERS]
    return rows.sort_values("start", kind="stable")


def _end(rows: Frame, most: int) -> float:
    """Return the time up to which so many spans of each worker can be drawn [seconds]."""
    cut = rows["start"].iloc[most] if len(rows) > most else float("inf")
    return float(min(rows.groupby("worker")["end"].max().min(), cut))


def _row(span: Frame, end: float) -> Row:
    return {
        "worker": int(span["worker"]),
        "phase": _PHASES.get(span["phase"], span["phase"]),
        "start": short(span["start"]),
        "end": short(min(span["end"], end)),
    }


def _marks() -> Marks:
    return (
        alt.Chart(ROWS)
        .mark_bar(clip=True)
        .encode(
            x=alt.X("start:Q", title="seconds of the training clock"),
            x2="end:Q",
            y=alt.Y("worker:O", title="worker"),
            color=alt.Color(
                "phase:N",
                title=None,
                scale=alt.Scale(domain=list(_PHASES.values()), range=_COLOURS),
                legend=alt.Legend(orient="top"),
            ),
            row=alt.Row("scheme:N", title=None, header=alt.Header(labelAngle=0, labelAlign="left")),
            tooltip=tips(phase="on", start=("from", ".4~g"), end=("to", ".4~g")),
        )
        .properties(width=520, height=alt.Step(15))
        .resolve_scale(y="independent")
    )
