"""How well modelled time agrees with real processes: counts and numbers, on tables made by hand."""

import math

import pandas as pd

from paceline.report.page_tables import page_tables
from paceline.report.summary import agreement, predictions
from tests.made_findings import made_findings, numbers
from tests.made_reports import make_run

AXES = ["scheme", "workers", "cluster", "seed"]
OTHER = "async_parameter_server"


def judged(what, workers, mean, verdict, measure="ratio", low=math.nan, high=math.nan):
    row = {"scheme": OTHER, "workers": workers, "against": "paced", "what": what, "n": 2}
    return row | {"measure": measure, "verdict": verdict, "mean": mean, "low": low, "high": high}


def top1(workers, low, high, verdict):
    return judged("test_top1", workers, 0.0, verdict, "difference", low, high)


def said(*rows):
    """Sentences on these rows of clock_agreement.csv, which are sorted by distance."""
    return agreement(made_findings(clock_agreement=pd.DataFrame(list(rows))))


def test_all_within_ten_percent_names_the_furthest():
    speed, accuracy = said(
        judged("images_per_second", 2, 1.10, "within"),
        judged("images_per_second", 1, 1.02, "within"),
        judged("staleness_mean", 2, 0.95, "within"),
        judged("staleness_mean", 1, 0.0, "within", "difference"),
        top1(2, -0.001, 0.002, "within"),
    )
    assert numbers(speed) == ["10", "2", "2", "2", "1.10", "2", "2", "2", "2", "0.95", "2"]
    assert numbers(accuracy) == ["-1", "95", "±1.5", "1", "1", "2", "-0.10", "+0.20", "2"]


def test_what_is_outside_is_named_worst_first_and_no_more_than_three():
    rows = [
        judged("images_per_second", workers, 0.5 + workers / 100, "outside")
        for workers in (2, 4, 8, 16)
    ]
    rows += [judged("images_per_second", 1, math.nan, "unknown")]
    stale = judged("staleness_mean", 2, 0.5, "outside", "difference")
    wide = [top1(4, -0.05, 0.06, "outside"), top1(2, math.nan, math.nan, "unknown")]
    speed, accuracy = said(*rows, stale, *wide)
    speeds = ["0", "4", "2", "0.52", "2", "4", "0.54", "2", "8", "0.58", "2", "1"]
    assert numbers(speed) == ["10", *speeds, "0", "1", "2", "+0.50", "2", "1"]
    expected = ["-1", "95", "±1.5", "0", "1", "4", "-5.00", "+6.00", "2", "1"]
    assert numbers(accuracy) == expected


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


def predicted(rates, comparisons=(), exchanges=(), varying=()):
    compared = pd.DataFrame(list(comparisons), columns=list(comparison("right")))
    found = made_findings(
        configurations=pd.DataFrame([*rates, *exchanges]), predicted_comparisons=compared
    )
    found.varying[:] = varying
    return predictions(found)


def test_settings_have_a_sentence_each_unless_they_are_many():
    few = [rate(2, 0.01) | {"batch_size": 2**n} for n in range(6)]
    assert len(predicted(few, varying=["batch_size"])) == 6
    many = [*few, rate(2, 0.01) | {"batch_size": 999}]
    assert len(predicted(many, varying=["batch_size"])) == 1


def test_comparisons_are_counted_and_those_with_the_reference_have_errors():
    rows = [comparison("right", 0.1), comparison("wrong", -0.3), comparison("too close", 0.02)]
    rows += [comparison("right", 0.9, against="1 worker")]
    _, faster, ratios = predicted([rate(2, 0.0)], rows)
    assert numbers(faster) == ["4", "2", "1", "1", "10"]
    assert numbers(ratios) == ["10", "2", "3", "10", "-30"]


def test_exchange_and_staleness_are_counted():
    rows = [exchange(0.5, "far"), exchange(0.1, "near", staleness=(0.2, 0.04, "apart"))]
    rows += [exchange(-0.1, "near", staleness=(0.1, 0.9, "alike"))]
    _, exchanged, stale = predicted([rate(2, 0.0)], (), rows)
    assert numbers(exchanged) == ["20", "2", "3", "10", "+50"]
    assert numbers(stale) == ["1", "2", "5", "15.0", "20"]


def test_validation_comes_before_development():
    rates = [rate(1, 0.5, "development"), rate(2, 0.01, "validation")]
    rows = [comparison("right", half=half) for half in ("development", "validation", "validation")]
    texts = predicted(rates, rows)
    assert [text.split(":")[0] for text in texts] == ["Validation"] * 3 + ["Development"] * 3
    assert [numbers(text)[1:3] for text in texts[::3]] == [["1", "1"], ["0", "1"]]
    assert [numbers(text)[0] for text in texts[1::3]] == ["2", "1"]


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
