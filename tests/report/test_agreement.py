"""How well modelled time agrees with real processes: counts and numbers, on tables made by hand."""

import math

import pandas as pd

from paceline.report.page_tables import page_tables
from paceline.report.summary import summary
from tests.made_findings import made_findings, numbers
from tests.made_reports import make_run

AXES = ["scheme", "workers", "cluster", "seed"]
OTHER = "async_parameter_server"


def judged(what, workers, mean, verdict, measure="ratio", low=math.nan, high=math.nan):
    far = math.nan if what == "test_top1" else abs(mean - (measure == "ratio"))
    row = {"scheme": OTHER, "workers": workers, "against": "paced", "what": what, "distance": far}
    return row | {"measure": measure, "verdict": verdict, "mean": mean, "low": low, "high": high}


def top1(workers, low, high, verdict):
    return judged("test_top1", workers, 0.0, verdict, "difference", low, high)


def said(*rows):
    """The summary of these rows of clock_agreement.csv."""
    return summary(made_findings(clock_agreement=pd.DataFrame(list(rows)))).rows


def test_agreement_is_counted_and_the_worst_is_named():
    speed, stale, accuracy = said(
        judged("images_per_second", 2, 1.20, "outside"),
        judged("images_per_second", 4, 1.02, "within"),
        judged("images_per_second", 8, math.nan, "unknown"),
        judged("staleness_mean", 2, 0.03, "within", "difference"),
        top1(2, -0.001, 0.002, "within"),
        top1(4, -0.05, 0.06, "outside"),
    )
    assert (speed[1], numbers(speed[2])) == ("1 of 2", ["1.20", "2"])
    assert (stale[1], numbers(stale[2])) == ("1 of 1", ["+0.03", "2"])
    assert (accuracy[1], numbers(accuracy[2])) == ("1 of 2", ["-5.00", "+6.00", "4"])
    assert summary(made_findings(clock_agreement=pd.DataFrame(columns=["against"]))) is None


def rate(workers, error, half="", kind="paced", scheme=OTHER, verdict=None):
    verdict = verdict or ("near" if abs(error) <= 0.1 else "far")
    row = {"scheme": scheme, "workers": workers, "kind": kind, "rate_half": half}
    return row | {"rate_n": 2, "rate_verdict": verdict, "rate_error": error}


def comparison(verdict, error=0.01, half="", kind="paced", against="sync_allreduce"):
    row = {"kind": kind, "half": half, "against": against}
    return row | {"verdict": verdict, "error": error}


def exchange(error, verdict, half="", staleness=(math.nan, math.nan, "")):
    columns = ("n", "half", "error", "verdict")
    columns += ("staleness_distance", "staleness_p", "staleness_verdict")
    values = (2, half, error, verdict, *staleness)
    return {f"exchange_{name}": value for name, value in zip(columns, values, strict=True)}


def predicted(rates, comparisons=(), exchanges=()):
    compared = pd.DataFrame(list(comparisons), columns=list(comparison("right")))
    found = made_findings(
        configurations=pd.DataFrame([*rates, *exchanges]),
        predicted_comparisons=compared,
        clock_agreement=pd.DataFrame(columns=["against"]),
    )
    return [row[1:] for row in summary(found).rows]


def test_comparisons_are_counted_and_those_with_the_reference_have_errors():
    rows = [comparison("right", 0.1), comparison("wrong", -0.3), comparison("too close", 0.02)]
    rows += [comparison("right", 0.9, against="1 worker")]
    _, faster, ratios = predicted([rate(2, 0.0)], rows)
    assert faster[0] == "2 of 3"
    assert ratios == ["2 of 3", "10 %", "-30 %"]


def test_exchange_and_staleness_are_counted():
    rows = [exchange(0.5, "far"), exchange(0.1, "near", staleness=(0.2, 0.04, "apart"))]
    rows += [exchange(-0.1, "near", staleness=(0.1, 0.9, "alike"))]
    rows = [row | {"scheme": OTHER, "workers": 2} for row in rows]
    _, exchanged, stale = predicted([rate(2, 0.0)], (), rows)
    assert exchanged[:2] == ["2 of 3", "10 %"]
    assert numbers(exchanged[2]) == ["+50", "2"]
    assert stale == ["1 of 2", "15 %", "20 % of pushes"]


def test_validation_comes_before_development():
    rates = [rate(1, 0.5, "development"), rate(2, 0.01, "validation")]
    rows = [comparison("right", half=half) for half in ("development", "validation", "validation")]
    found = predicted(rates, rows)
    assert [row[0] for row in found] == ["1 of 1", "2 of 2", "2 of 2", "0 of 1", "1 of 1", "1 of 1"]


def twins(workers, ratio=1.0, stale=(2.0, 2.0), points=(0.0, 0.0)):
    """Paced and virtual; `points` of top-1 by which the virtual seeds differ."""
    return [
        make_run(
            OTHER,
            workers,
            32,
            seed,
            kind=kind,
            cluster="local" if kind == "paced" else "virtual",
            key=f"{workers}{seed}{kind[0]}",
            images_per_second=1000.0 * (1 if kind == "paced" else ratio),
            staleness_mean=stale[kind == "virtual"],
            test_top1=0.8 + (0 if kind == "paced" else points[seed] / 100),
        )
        for seed in (0, 1)
        for kind in ("paced", "virtual")
    ]


def test_two_clocks_have_a_table_and_no_axis_of_their_clusters(findings):
    found = findings(twins(2, 1.1, points=(0, 1)) + twins(1, stale=(0.0, 0.0)), axes=AXES)
    assert found.varying == []
    table = page_tables(found)[0]
    assert table.name == "Virtual against paced"
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    two = next(row for row in rows if row["workers"] == "2")
    assert (two["compared with"], two["kind"]) == ("paced", "virtual")
    assert two["images/s, ratio"] == "1.10 (1.10 to 1.10), n = 2"
    assert two["top-1 on test, points"] == "+0.50 (-5.85 to +6.85), n = 2"
    assert {row["staleness, ratio or ± updates"] for row in rows} == {
        "1.00 (1.00 to 1.00), n = 2",
        "+0.00 (+0.00 to +0.00), n = 2",
    }
    both = [run | {"cluster": f"c{n % 4}"} for n, run in enumerate(twins(2))]
    assert findings(both, axes=AXES).varying == ["cluster"]
