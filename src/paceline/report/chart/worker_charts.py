"""Draws the time that workers spend in each phase, and the staleness of pushes."""

from paceline.analysis.comparison import reference_scheme
from paceline.analysis.configuration import matching
from paceline.analysis.configuration_table import PHASES
from paceline.analysis.frames import Frame, Row
from paceline.report.chart.chart_style import Chart, chart, short, situation_rows
from paceline.report.findings import Situation, StudyFindings, situations
from paceline.report.words import scheme_name, scheme_words

_SHARE_WORDS = ("compute", "exchange and waiting", "waiting for data")
_SPAN_WORDS = {"compute": "compute", "communicate": "exchange", "wait": "wait"}
_MOST_WORKERS = 6
_MOST_SPANS = 2400  # of the whole page; more make it heavy, and are too thin to see


def phase_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of the shares of phases in a worker's time, with a bar per scheme."""
    rows = [
        known
        | {"phase": words, "order": order}
        | {"share": short(row[f"phase_{phase}"])}
        | {"seconds": short(row[f"phase_{phase}_seconds"], 4)}
        for row, known in situation_rows(findings, findings.known("phase_compute"))
        for order, (phase, words) in enumerate(zip(PHASES.values(), _SHARE_WORDS, strict=True))
    ]
    return chart("phases", rows)


def staleness_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of mean and spread of staleness, with a row per scheme that has servers."""
    rows = [
        known | {name: short(row[f"pushes_{name}"]) for name in ("mean", "low", "median", "high")}
        for row, known in situation_rows(findings, findings.known("pushes"))
    ]
    return chart("staleness", rows)


def timeline_chart(findings: StudyFindings) -> Chart | None:
    """Return the chart of workers' phases over time, in a run of the reference and one other.

    The other scheme is the best one of those with a finished run, in each situation.
    """
    timeline, finished = findings.tables.of_points["timeline"], findings.tables.finished
    spans = {key: rows for key, rows in timeline.groupby("key", sort=False)}
    runs, reference = finished[finished["key"].isin(spans)], reference_scheme(findings.tables.runs)
    shown = {each.name: _runs(findings, runs, each, reference) for each in situations(findings)}
    most = max(40, _MOST_SPANS // max(1, sum(map(len, shown.values()))))
    rows: list[Row] = []
    for situation, own in shown.items():
        every = [spans[run["key"]].sort_values("start", kind="stable") for run in own]
        chosen = [rows[rows["worker"] < _MOST_WORKERS] for rows in every]
        end = min((_end(each, most) for each in chosen), default=0)
        for run, each in zip(own, chosen, strict=True):
            known = {"situation": situation, "scheme": scheme_words(run.drop(findings.of_size))}
            rows += [
                known
                | {"worker": int(span["worker"])}
                | {"phase": _SPAN_WORDS.get(span["phase"], span["phase"])}
                | {"start": short(span["start"]), "end": short(min(span["end"], end))}
                for _, span in each[each["start"] < end].iterrows()
            ]
    return chart("timeline", rows, workers=_MOST_WORKERS, reference=scheme_name(reference))


def _runs(
    findings: StudyFindings, runs: Frame, situation: Situation, reference: str
) -> list[Frame]:
    """Return a run of the reference scheme, and a run of the best of the other schemes."""
    own, decision = situation.of(runs), situation.of(findings.concluded["decision"])
    ranked = decision.sort_values("target_seconds_mean", kind="stable")["scheme"]
    found = []
    for name in dict.fromkeys([reference, *ranked]):
        same = matching(own, {"scheme": name}).sort_values("seed", kind="stable")
        if len(same) and len(found) < 2:
            found.append(same.iloc[0])
    return found


def _end(rows: Frame, most: int) -> float:
    """Return the time [s] at which the chart ends, so that it has at most `most` spans.

    It ends no later than the first worker does, since this worker has no spans after its end.
    """
    cut = rows["start"].iloc[most] if len(rows) > most else float("inf")
    return float(min(rows.groupby("worker")["end"].max().min(), cut))
